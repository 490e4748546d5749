#include "core/ddio.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <iomanip>
#include <optional>
#include <sstream>

#include "holdfast/error.hpp"

namespace holdfast {

namespace {

using Kind = DdioState::Kind;

constexpr std::uint16_t kIntel = 0x8086;
constexpr off_t kPerfCtrlSts0 = 0x180;
// The one bit that is switched. NoSnoopOpWrEn (bit 3) decides whether writes that ask not to be
// snooped skip the caches; those reach memory either way, so the firmware's choice is kept.
constexpr std::uint32_t kUseAllocatingFlowWr = 1u << 7;

class ConfigFile {
 public:
  ConfigFile(const std::string& path, int flags)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK)), error_(fd_ < 0 ? errno : 0) {
    struct stat status {};
    if (fd_ >= 0 && ::fstat(fd_, &status) == 0 && !S_ISREG(status.st_mode)) {
      ::close(fd_);
      fd_ = -1;
      error_ = EINVAL;
    }
  }
  ~ConfigFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  ConfigFile(const ConfigFile&) = delete;
  ConfigFile& operator=(const ConfigFile&) = delete;

  bool is_open() const { return fd_ >= 0; }
  int error() const { return error_; }
  // Two processes that switch the same port must not undo each other's bits.
  void lock() const {
    while (::flock(fd_, LOCK_EX) < 0 && errno == EINTR) {
    }
  }

  // PCI configuration space is little-endian.
  std::optional<std::uint32_t> read32(off_t offset) const {
    std::array<unsigned char, 4> b{};
    if (::pread(fd_, b.data(), b.size(), offset) != static_cast<ssize_t>(b.size())) return {};
    return std::uint32_t{b[0]} | std::uint32_t{b[1]} << 8 | std::uint32_t{b[2]} << 16 |
           std::uint32_t{b[3]} << 24;
  }
  bool write32(off_t offset, std::uint32_t value) {
    std::array<unsigned char, 4> b{};
    for (unsigned i = 0; i < 4; ++i) b[i] = static_cast<unsigned char>(value >> (8 * i));
    const ssize_t n = ::pwrite(fd_, b.data(), b.size(), offset);
    error_ = n < 0 ? errno : EIO;
    return n == static_cast<ssize_t>(b.size());
  }

 private:
  int fd_;
  int error_;
};

std::string hex(std::uint32_t value) {
  std::ostringstream out;
  out << std::hex << std::setw(4) << std::setfill('0') << value;
  return out.str();
}

// What stands in the way of using the register; Kind::on if nothing does.
DdioState reachable(const std::string& vendor, const std::string& port, const ConfigFile& file) {
  if (vendor != "GenuineIntel") {
    return {Kind::absent, detail::concat("a processor of vendor ", vendor, " has no DDIO switch")};
  }
  if (!file.is_open()) {
    return {Kind::unreadable,
            detail::concat("cannot open the PCI configuration of root port ", port, ": ",
                           std::strerror(file.error()), "; run as root")};
  }
  const auto id = file.read32(0);
  if (!id || *id == 0xffffffff) {
    return {Kind::unreadable,
            detail::concat("root port ", port, " does not answer configuration reads")};
  }
  const auto vendor_id = static_cast<std::uint16_t>(*id);
  const auto device_id = static_cast<std::uint16_t>(*id >> 16);
  if (vendor_id != kIntel || !ddio_register_documented(device_id)) {
    return {Kind::unknown,
            detail::concat("root port ", port, " (", hex(vendor_id), ":", hex(device_id),
                           ") is none whose DDIO register is documented; switch "
                           "DDIO off in the firmware's setup, or use eADR")};
  }
  return {Kind::on, ""};
}

[[noreturn]] void refuse(const DdioState& state) {
  throw Error(state.kind == Kind::unreadable ? Errc::permission : Errc::unsupported,
              "cannot switch DDIO: " + state.why);
}

DdioState state_of(const std::optional<std::uint32_t>& value, const std::string& port) {
  if (!value || *value == 0xffffffff) {
    return {Kind::unreadable,
            detail::concat("the DDIO register of root port ", port,
                           " lies beyond what this process may read of the port's configuration; "
                           "run as root (CAP_SYS_ADMIN)")};
  }
  return {*value & kUseAllocatingFlowWr ? Kind::on : Kind::off, ""};
}

}  // namespace

bool ddio_register_documented(std::uint16_t id) {
  const auto within = [id](std::uint16_t first, std::uint16_t last) {
    return id >= first && id <= last;
  };
  return within(0x0e02, 0x0e0b) ||  // Xeon E5/E7 v2
         within(0x2f02, 0x2f0b) ||  // Xeon E5/E7 v3
         within(0x6f02, 0x6f0b) ||  // Xeon E5/E7 v4
         within(0x2030, 0x2033) ||  // Xeon Scalable, first to third generation (14 nm)
         within(0x347a, 0x347d);    // Xeon Scalable, third generation (10 nm)
}

DdioState read_ddio(const std::string& vendor, const std::string& root_port,
                    const std::string& config) {
  const ConfigFile file(config, O_RDONLY);
  const DdioState state = reachable(vendor, root_port, file);
  if (state.kind != Kind::on) return state;
  return state_of(file.read32(kPerfCtrlSts0), root_port);
}

void write_ddio(const std::string& vendor, const std::string& root_port, const std::string& config,
                bool enabled) {
  const Kind wanted = enabled ? Kind::on : Kind::off;
  // Asked for what is already so, a process without the right to write can be content.
  const DdioState before = read_ddio(vendor, root_port, config);
  if (before.kind == wanted) return;
  if (before.kind != Kind::on && before.kind != Kind::off) refuse(before);

  ConfigFile file(config, O_RDWR);
  if (!file.is_open()) {
    refuse({Kind::unreadable,
            detail::concat("cannot open the PCI configuration of root port ", root_port,
                           " for writing: ", std::strerror(file.error()), "; run as root")});
  }
  file.lock();
  const auto value = file.read32(kPerfCtrlSts0);
  const DdioState now = state_of(value, root_port);
  if (now.kind == Kind::unreadable) refuse(now);
  const std::uint32_t next =
      enabled ? *value | kUseAllocatingFlowWr : *value & ~kUseAllocatingFlowWr;
  if (!file.write32(kPerfCtrlSts0, next)) {
    refuse({Kind::unreadable,
            detail::concat("writing the PCI configuration of root port ", root_port,
                           " failed: ", std::strerror(file.error()),
                           "; run as root, with kernel lockdown (Secure Boot) off")});
  }
  if (state_of(file.read32(kPerfCtrlSts0), root_port).kind != wanted) {
    throw Error(
        Errc::unsupported,
        detail::concat("root port ", root_port, " did not take DDIO ", enabled ? "on" : "off",
                       ": the register is locked by the firmware or by a hypervisor; "
                       "change it in the firmware's setup"));
  }
}

}  // namespace holdfast
