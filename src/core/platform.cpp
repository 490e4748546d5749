#include "holdfast/platform.hpp"

#include <sys/resource.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <regex>
#include <system_error>
#include <utility>

#include "core/ddio.hpp"
#include "core/files.hpp"
#include "core/sysfs.hpp"

namespace holdfast {

namespace fs = std::filesystem;

namespace {

// The system's form of an address, "0000:01:00.0". Throws, so no path can be smuggled in.
std::string canonical_address(const std::string& address) {
  static const std::regex kForm(
      "(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\\.([0-7])");
  std::smatch part;
  if (address.size() > 32 || !std::regex_match(address, part, kForm)) {
    throw Error(
        Errc::invalid_argument,
        detail::concat("'", address.substr(0, 64), "' is not a PCI address such as 0000:01:00.0"));
  }
  const unsigned long domain = part[1].matched ? std::stoul(part[1].str(), nullptr, 16) : 0;
  char text[32];
  std::snprintf(text, sizeof text, "%04lx:%02lx:%02lx.%c", domain,
                std::stoul(part[2].str(), nullptr, 16), std::stoul(part[3].str(), nullptr, 16),
                part[4].str()[0]);
  return text;
}

bool is_address(const std::string& name) {
  static const std::regex kForm("[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]");
  return name.size() <= 32 && std::regex_match(name, kForm);
}

bool is_domain_root(const std::string& name) {
  static const std::regex kForm("pci[0-9a-f]{4,8}:[0-9a-f]{2}");
  return name.size() <= 32 && std::regex_match(name, kForm);
}

struct PciPath {
  std::string root_port;
  fs::path root_port_folder;
};

// Walks up from the device by the names in its real path. Of several domain roots the last counts:
// ports behind a volume management device have a root of their own inside the outer one.
PciPath walk_up(const std::string& root, const std::string& pci_address) {
  const std::string address = canonical_address(pci_address);
  const auto real = sysfs::resolve(root, "/sys/bus/pci/devices/" + address);
  if (!real) throw Error(Errc::not_found, "there is no PCI device " + address);

  fs::path at;
  PciPath found;
  bool below_root = false;
  for (const fs::path& part : *real) {
    at /= part;
    if (is_domain_root(part)) {
      below_root = true;
    } else if (below_root) {
      found = is_address(part) ? PciPath{part, at} : PciPath{};
      below_root = false;
    }
  }
  if (found.root_port.empty() || found.root_port_folder == *real) {
    throw Error(Errc::not_found,
                detail::concat("PCI device ", address,
                               " has no root port above it (a virtual machine often shows none); "
                               "read the DDIO state on the host instead"));
  }
  return found;
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  while (!error && entry != fs::directory_iterator()) {
    names.push_back(entry->path().filename());
    entry.increment(error);
  }
  std::sort(names.begin(), names.end());
  return names;
}

int read_numa_node(const fs::path& file) {
  const auto node = sysfs::read_u64(file);
  return node && *node < 1 << 16 ? static_cast<int>(*node) : -1;
}

// With this driver the device serves as ordinary memory, and /dev has no file for it.
bool is_system_ram(const fs::path& device) {
  std::error_code error;
  return fs::read_symlink(device / "driver", error).filename() == "kmem";
}

void add_device_dax(const std::string& root, std::vector<DaxDevice>& devices) {
  const std::string folder = "/sys/bus/dax/devices";
  static const std::regex kForm("dax[0-9]+\\.[0-9]+");
  for (const std::string& name : names_in(root + folder)) {
    if (name.size() > 32 || !std::regex_match(name, kForm)) continue;
    const auto real = sysfs::resolve(root, folder + "/" + name);
    if (!real || is_system_ram(*real)) continue;
    devices.push_back({"/dev/" + name, "device-dax", sysfs::read_u64(*real / "size").value_or(0),
                       sysfs::persistence_domain(root, *real),
                       read_numa_node(*real / "numa_node")});
  }
}

std::uint64_t sectors_to_bytes(std::uint64_t sectors) {
  constexpr std::uint64_t kSector = 512;  // whatever the device's own sector size is
  return sectors > std::numeric_limits<std::uint64_t>::max() / kSector ? 0 : sectors * kSector;
}

void add_fsdax(const std::string& root, std::vector<DaxDevice>& devices) {
  static const std::regex kForm("pmem[0-9]+(\\.[0-9]+)?");
  for (const std::string& name : names_in(root + "/sys/block")) {
    if (name.size() > 32 || !std::regex_match(name, kForm)) continue;
    const auto real = sysfs::resolve(root, "/sys/block/" + name);
    if (!real || sysfs::read_line(*real / "queue/dax") != "1") continue;
    devices.push_back(
        {"/dev/" + name, "fsdax", sectors_to_bytes(sysfs::read_u64(*real / "size").value_or(0)),
         sysfs::persistence_domain(root, *real), read_numa_node(*real / "device/numa_node")});
  }
}

struct statvfs folder_status(const std::string& folder) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) == 0) return status;
  const int error = errno;
  const Errc code = error == ENOENT || error == ENOTDIR ? Errc::not_found
                    : error == EACCES                   ? Errc::permission
                                                        : Errc::io;
  throw Error(code,
              detail::concat("cannot ask for the space of ", folder, ": ", std::strerror(error)));
}

std::uint64_t times(std::uint64_t blocks, std::uint64_t block_bytes) {
  constexpr auto kMost = std::numeric_limits<std::uint64_t>::max();
  return block_bytes && blocks > kMost / block_bytes ? kMost : blocks * block_bytes;
}

DdioState ddio_state(const Platform& platform, const PciPath& path) {
  return read_ddio(platform.processor_vendor(), path.root_port, path.root_port_folder / "config");
}

}  // namespace

Platform::Platform(std::string root) : root_(std::move(root)) {}

std::vector<DaxDevice> Platform::dax_devices() const {
  std::vector<DaxDevice> devices;
  add_device_dax(root_, devices);
  add_fsdax(root_, devices);
  return devices;
}

std::string Platform::root_port(const std::string& pci_address) const {
  return walk_up(root_, pci_address).root_port;
}

std::optional<Ddio> Platform::ddio(const std::string& pci_address) const {
  const PciPath path = walk_up(root_, pci_address);
  switch (ddio_state(*this, path).kind) {
    case DdioState::Kind::on:
      return Ddio{path.root_port, true};
    case DdioState::Kind::off:
      return Ddio{path.root_port, false};
    default:
      return std::nullopt;
  }
}

std::string Platform::ddio_reason(const std::string& pci_address) const {
  try {
    return ddio_state(*this, walk_up(root_, pci_address)).why;
  } catch (const Error& error) {
    return error.what();
  }
}

void Platform::set_ddio(const std::string& pci_address, bool enabled) const {
  const PciPath path = walk_up(root_, pci_address);
  write_ddio(processor_vendor(), path.root_port, path.root_port_folder / "config", enabled);
}

std::string Platform::processor_vendor() const {
  const auto text = sysfs::read_text(root_ + "/proc/cpuinfo");
  static const std::regex kLine("(?:^|\n)vendor_id[ \t]*:[ \t]*([A-Za-z0-9_.!+-]{1,32})");
  std::smatch part;
  // The first processor's entry is enough, and bounds the work of the match.
  const std::string head = text ? text->substr(0, 1024) : "";
  return std::regex_search(head, part, kLine) ? part[1].str() : "unknown";
}

std::uint64_t Platform::memory_lock_limit() const {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) {
    throw Error(Errc::io,
                detail::concat("cannot read the limit of locked memory: ", std::strerror(errno)));
  }
  return limit.rlim_cur == RLIM_INFINITY ? std::numeric_limits<std::uint64_t>::max()
                                         : limit.rlim_cur;
}

std::uint64_t Platform::folder_bytes_free(const std::string& folder) const {
  const auto status = folder_status(folder);
  return times(status.f_bavail, status.f_frsize);
}

std::uint64_t Platform::folder_bytes_total(const std::string& folder) const {
  const auto status = folder_status(folder);
  return times(status.f_blocks, status.f_frsize);
}

bool locks_hold(const std::string& folder) {
  const core::NewFile probe(folder, "holdfast-locks");
  try {
    core::check_lock_holds(probe.fd(), true, folder);
    return true;
  } catch (const Error& error) {
    if (error.code() != Errc::unsupported) throw;
    return false;
  }
}

}  // namespace holdfast
