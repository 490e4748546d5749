// A made tree of /sys and /proc in a temporary folder, removed at the end.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <stdlib.h>

namespace holdfast {

class FakeSysfs {
 public:
  FakeSysfs() {
    std::string form = (std::filesystem::temp_directory_path() / "holdfast-sysfs-XXXXXX").string();
    root_ = ::mkdtemp(form.data());
    std::filesystem::create_directories(root_ + "/sys/bus/pci/devices");
  }
  ~FakeSysfs() {
    std::error_code error;
    std::filesystem::remove_all(root_, error);
  }
  FakeSysfs(const FakeSysfs&) = delete;
  FakeSysfs& operator=(const FakeSysfs&) = delete;

  const std::string& root() const { return root_; }

  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path, std::ios::binary) << text;
  }

  // A link at `path` to `target`, relative as the kernel's are.
  void link(const std::string& path, const std::string& target) const {
    namespace fs = std::filesystem;
    const fs::path folder = fs::path(root_ + path).parent_path();
    fs::create_directories(folder);
    fs::create_symlink(fs::path(root_ + target).lexically_relative(folder), root_ + path);
  }

  void cpu(const std::string& vendor) const {
    write("/proc/cpuinfo", "processor\t: 0\nvendor_id\t: " + vendor + "\nmodel\t\t: 85\n");
  }

  // The PCI device at the end of `chain`, below "pci0000:3a" or another domain root.
  void pci(const std::string& domain_root, const std::vector<std::string>& chain) const {
    std::string path = "/sys/devices/" + domain_root;
    for (const std::string& address : chain) path += "/" + address;
    std::filesystem::create_directories(root_ + path);
    link("/sys/bus/pci/devices/" + chain.back(), path);
  }

  // Configuration space of `bytes` bytes: vendor and device id, and the DDIO register if it fits.
  void config(const std::string& folder, std::size_t bytes, std::uint32_t ddio_register,
              std::uint16_t vendor = 0x8086, std::uint16_t device = 0x2030) const {
    std::string space(bytes, '\0');
    const auto put = [&](std::size_t at, std::uint32_t value, unsigned width) {
      for (unsigned i = 0; i < width && at + i < bytes; ++i)
        space[at + i] = static_cast<char>(value >> (8 * i));
    };
    put(0, vendor, 2);
    put(2, device, 2);
    put(0x180, ddio_register, 4);
    write(folder + "/config", space);
  }

  std::uint32_t config_word(const std::string& folder, std::streamoff at) const {
    std::ifstream file(root_ + folder + "/config", std::ios::binary);
    file.seekg(at);
    unsigned char b[4] = {};
    file.read(reinterpret_cast<char*>(b), 4);
    return std::uint32_t{b[0]} | std::uint32_t{b[1]} << 8 | std::uint32_t{b[2]} << 16 |
           std::uint32_t{b[3]} << 24;
  }

 private:
  std::string root_;
};

}  // namespace holdfast
