#include "core/dax.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "core/sysfs.hpp"
#include "holdfast/config.hpp"

#ifndef MAP_SHARED_VALIDATE
#define MAP_SHARED_VALIDATE 0x03
#endif
#ifndef MAP_SYNC
#define MAP_SYNC 0x80000
#endif

namespace holdfast::core {

using detail::concat;

namespace {

// Huge-page alignment, so that a mapping can use huge pages and a device accepts its address.
constexpr std::uint64_t kHuge = 2 << 20;
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 46;

std::uint64_t round_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

bool plain_file_allowed(const DaxOptions& options) {
  const char* setting = std::getenv("HOLDFAST_DAX_PLAIN_FILE");
  return options.allow_plain_file || (setting && std::strcmp(setting, "1") == 0);
}

std::string device_folder(const char* kind, std::uint64_t number) {
  return concat("/sys/dev/", kind, "/", major(number), ":", minor(number));
}

// The number of the character device at `path`; nothing if it is something else or not there.
std::optional<std::uint64_t> character_device(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0 || !S_ISCHR(info.st_mode)) return std::nullopt;
  return info.st_rdev;
}

// Asked before opening: opening another kind of device may do something to it.
void check_is_dax(const std::string& root, std::uint64_t number, const std::string& path) {
  const auto subsystem = sysfs::resolve(root, device_folder("char", number) + "/subsystem");
  if (subsystem && subsystem->filename() == "dax") return;
  throw Error(
      Errc::invalid_argument,
      concat("'", path,
             "' is a device, but no DAX device; see 'holdfast doctor' for those there are"));
}

std::uint64_t device_alignment(const std::string& root, const std::string& folder) {
  for (const char* name : {"/align", "/device/align"}) {
    const auto value = sysfs::read_u64(root + folder + name);
    if (value && *value >= kPageBytes && *value <= 1u << 30 && (*value & (*value - 1)) == 0) {
      return *value;
    }
  }
  return kHuge;
}

std::uint64_t file_bytes(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw system_error(errno, "look at", path);
  return static_cast<std::uint64_t>(info.st_size);
}

// Takes the space now: a store into a hole of a full file system would be a bus error.
void allocate(int fd, std::uint64_t bytes, const std::string& path) {
  const IgnoreFileSizeSignal guard;
  int error;
  do {
    error = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  } while (error == EINTR);
  if (error != 0) throw system_error(error, concat("take ", human_bytes(bytes), " for"), path);
}

void check_bytes(std::uint64_t bytes, const std::string& path) {
  if (bytes == 0 || bytes > kMaxBytes) {
    throw Error(Errc::invalid_argument,
                concat("'", path, "' cannot have ", bytes, " bytes; give 1 to ", kMaxBytes));
  }
}

Error not_dax(const std::string& path) {
  return {Errc::unsupported,
          concat("the file system of '", path,
                 "' is not DAX, so its pages are no persistent memory; use Domain::file there, or "
                 "give a device-DAX such as /dev/dax0.0 or a file on a file system mounted with "
                 "-o dax")};
}

}  // namespace

const char* to_string(DaxKind kind) noexcept {
  switch (kind) {
    case DaxKind::device:
      return "device-dax";
    case DaxKind::file:
      return "fsdax";
    case DaxKind::plain_file:
      return "plain file";
  }
  return "unknown";
}

DaxMapping::DaxMapping(const std::string& path, const DaxOptions& options)
    : path_(path), options_(options) {}

DaxMapping DaxMapping::open(const std::string& path, const DaxOptions& options) {
  DaxMapping mapping(path, options);
  if (const auto device = character_device(path)) {
    mapping.open_device(*device);
  } else {
    mapping.open_file();
  }
  return mapping;
}

DaxMapping DaxMapping::create(const std::string& path, std::uint64_t bytes,
                              const DaxOptions& options) {
  check_bytes(bytes, path);
  DaxMapping mapping(path, options);
  if (const auto device = character_device(path)) {
    mapping.open_device(*device);
    if (mapping.bytes_ < bytes) {
      throw Error(Errc::no_space, concat("device '", path, "' has ", human_bytes(mapping.bytes_),
                                         ", less than the ", human_bytes(bytes), " asked for"));
    }
    return mapping;
  }
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0) throw system_error(EEXIST, "create", path);
  if (path.rfind("/dev/dax", 0) == 0) throw system_error(ENOENT, "open", path);
  mapping.pending_ = std::make_unique<NewFile>(folder_of(path), base_name(path));
  bytes = round_up(bytes, kPageBytes);
  allocate(mapping.fd(), bytes, path);
  mapping.map_file(bytes);
  return mapping;
}

DaxMapping::DaxMapping(DaxMapping&& other) noexcept
    : path_(std::move(other.path_)),
      options_(std::move(other.options_)),
      fd_(std::move(other.fd_)),
      pending_(std::move(other.pending_)),
      address_(std::exchange(other.address_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      max_bytes_(std::exchange(other.max_bytes_, 0)),
      reserved_(std::exchange(other.reserved_, 0)),
      kind_(other.kind_),
      domain_(std::move(other.domain_)),
      flush_(std::move(other.flush_)) {}

DaxMapping::~DaxMapping() { unmap(); }

void DaxMapping::unmap() noexcept {
  flush_ = DaxFlush();
  if (address_) ::munmap(address_, reserved_);
  address_ = nullptr;
}

void DaxMapping::publish() {
  if (!pending_) return;
  fd_ = pending_->publish();
  sync_folder_of(path_);
  pending_.reset();
}

// ---- Devices ------------------------------------------------------------------------------------

void DaxMapping::open_device(std::uint64_t number) {
  check_is_dax(options_.sysfs_root, number, path_);
  fd_ = UniqueFd(::open(path_.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd_) throw system_error(errno, "open the device", path_);
  struct stat info {};
  if (::fstat(fd_.get(), &info) != 0) throw system_error(errno, "look at", path_);
  if (!S_ISCHR(info.st_mode) || info.st_rdev != number) {
    throw Error(Errc::io, concat("'", path_, "' was replaced while it was opened; try again"));
  }
  lock_file(fd_.get(), true, path_);
  map_device(number);
}

void DaxMapping::map_device(std::uint64_t number) {
  const std::string folder = device_folder("char", number);
  const auto size = sysfs::read_u64(options_.sysfs_root + folder + "/size");
  if (!size) {
    throw Error(Errc::io, concat("the system does not say how large '", path_, "' is: ", folder,
                                 "/size cannot be read"));
  }
  const std::uint64_t align = device_alignment(options_.sysfs_root, folder);
  const std::uint64_t bytes = *size / align * align;
  if (bytes == 0 || bytes < options_.min_bytes || bytes > kMaxBytes) {
    throw Error(Errc::damaged,
                concat("device '", path_, "' has ", human_bytes(bytes),
                       ", and what is on it needs ", human_bytes(options_.min_bytes)));
  }
  // The driver picks an address with the alignment that it needs.
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
  if (address == MAP_FAILED) {
    throw system_error(
        errno,
        concat("map ", human_bytes(bytes), " (alignment ", human_bytes(align), ") of the device"),
        path_);
  }
  address_ = address;
  bytes_ = max_bytes_ = reserved_ = bytes;
  kind_ = DaxKind::device;
  if (const auto real = sysfs::resolve(options_.sysfs_root, folder)) {
    domain_ = sysfs::persistence_domain(options_.sysfs_root, *real);
  }
  start_flush();
}

// ---- Files --------------------------------------------------------------------------------------

void DaxMapping::open_file() {
  fd_ = open_own_file(path_, true, "a DAX device or a file on a DAX file system");
  lock_file(fd_.get(), true, path_);
  const std::uint64_t bytes = file_bytes(fd_.get(), path_);
  if (bytes == 0 || bytes < options_.min_bytes || bytes % kPageBytes != 0 || bytes > kMaxBytes) {
    throw Error(Errc::damaged,
                concat("'", path_, "' has ", bytes, " bytes, which is no whole number of pages ",
                       "or less than the ", std::max<std::uint64_t>(options_.min_bytes, kPageBytes),
                       " that are needed; it was cut off, or is not a region"));
  }
  map_file(bytes);
}

void DaxMapping::map_file(std::uint64_t bytes) {
  max_bytes_ = round_up(std::max(bytes, std::min(options_.max_bytes, kMaxBytes)), kPageBytes);
  reserve(max_bytes_);
  map_range(0, bytes, false);
  bytes_ = bytes;
  struct stat info {};
  if (kind_ == DaxKind::file && ::fstat(fd(), &info) == 0) {
    if (const auto real =
            sysfs::resolve(options_.sysfs_root, device_folder("block", info.st_dev))) {
      domain_ = sysfs::persistence_domain(options_.sysfs_root, *real);
    }
  }
  start_flush();
}

// Address space of `bytes`, at a huge-page boundary, that nothing else can take.
void DaxMapping::reserve(std::uint64_t bytes) {
  const std::uint64_t all = bytes + kHuge;
  void* start = ::mmap(nullptr, all, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) throw system_error(errno, "keep address space for", path_);
  const auto begin = reinterpret_cast<std::uintptr_t>(start);
  const std::uintptr_t aligned = round_up(begin, kHuge);
  if (aligned > begin) ::munmap(start, aligned - begin);
  if (begin + all > aligned + bytes) {
    ::munmap(reinterpret_cast<void*>(aligned + bytes), begin + all - (aligned + bytes));
  }
  address_ = reinterpret_cast<void*>(aligned);
  reserved_ = bytes;
}

// MAP_SYNC is the test, too: only a DAX file system accepts it.
void DaxMapping::map_range(std::uint64_t offset, std::uint64_t bytes, bool plain) {
  const int flags = plain ? MAP_SHARED : MAP_SHARED_VALIDATE | MAP_SYNC;
  void* at = static_cast<char*>(address_) + offset;
  if (::mmap(at, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd(),
             static_cast<off_t>(offset)) != MAP_FAILED) {
    kind_ = plain ? DaxKind::plain_file : DaxKind::file;
    return;
  }
  const int error = errno;
  if (plain || (error != EOPNOTSUPP && error != EINVAL)) {
    throw system_error(error, concat("map ", human_bytes(bytes), " of"), path_);
  }
  if (!plain_file_allowed(options_)) throw not_dax(path_);
  map_range(offset, bytes, true);
}

void DaxMapping::grow(std::uint64_t bytes) {
  check_bytes(bytes, path_);
  bytes = round_up(bytes, kPageBytes);
  if (bytes <= bytes_) return;
  if (bytes > max_bytes_) {
    throw Error(Errc::invalid_argument,
                concat("'", path_, "' cannot grow to ", human_bytes(bytes), ": ",
                       kind_ == DaxKind::device ? "the device has " : "max_size is ",
                       human_bytes(max_bytes_)));
  }
  allocate(fd(), bytes, path_);
  map_range(bytes_, bytes - bytes_, kind_ == DaxKind::plain_file);
  bytes_ = bytes;
  start_flush();
}

// ---- Flushing -----------------------------------------------------------------------------------

void DaxMapping::start_flush() {
  flush_ = DaxFlush();  // libpmem2 accepts an address once
  const FlushUnit unit = kind_ == DaxKind::plain_file ? FlushUnit::page
                         : domain_ == "cpu_cache"     ? FlushUnit::fence
                                                      : FlushUnit::cache_line;
  flush_ = DaxFlush(fd(), address_, bytes_, unit, path_);
}

void DaxMapping::flush(const void* address, std::size_t bytes) const {
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  const auto base = reinterpret_cast<std::uintptr_t>(address_);
  if (first < base || first - base > bytes_ || bytes > bytes_ - (first - base)) {
    throw Error(Errc::invalid_argument, concat("the range to flush is not within '", path_, "'"));
  }
  flush_.persist(address, bytes);
}

}  // namespace holdfast::core
