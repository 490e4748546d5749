#include "core/dax_medium.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "core/dax.hpp"
#include "core/directory.hpp"
#include "core/medium.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::core {

using detail::concat;

namespace {

bool on_gpu() { return std::strcmp(backend::name(), "cuda") == 0; }

bool has_region_magic(const void* bytes) { return std::memcmp(bytes, kRegionMagic, 8) == 0; }

// Parts of a mapping that kernels may use.
class Pins {
 public:
  explicit Pins(const DaxMapping& mapping) : mapping_(mapping) {}
  ~Pins() {
    for (const auto& [address, bytes] : ranges_) backend::unregister_host(address, bytes);
  }
  Pins(const Pins&) = delete;
  Pins& operator=(const Pins&) = delete;

  void add(std::uint64_t from, std::uint64_t to) {
    void* const address = static_cast<std::byte*>(mapping_.address()) + from;
    ranges_.reserve(ranges_.size() + 1);
    try {
      backend::register_host(address, to - from, mapping_.path());
    } catch (const Error& error) {
      const std::string hint = dax_pin_hint(mapping_.kind(), on_gpu());
      if (hint.empty()) throw;
      throw Error(Errc::unsupported, concat(error.what(), ". ", hint));
    }
    ranges_.emplace_back(address, to - from);
  }

 private:
  const DaxMapping& mapping_;
  std::vector<std::pair<void*, std::uint64_t>> ranges_;
};

// Invariant: size() is at most the mapping's bytes; what lies behind it is no one's.
class DaxMedium : public Medium {
 public:
  // REQUIRES: size is a whole number of pages and at most mapping.bytes().
  DaxMedium(DaxMapping mapping, std::uint64_t size)
      : mapping_(std::move(mapping)), pins_(mapping_), size_(size) {
    pins_.add(0, size);
  }

  std::byte* base() const override { return static_cast<std::byte*>(mapping_.address()); }
  std::uint64_t size() const override { return size_; }
  std::uint64_t max_size() const override { return mapping_.max_bytes(); }

  void grow(std::uint64_t size) override {
    mapping_.grow(size);
    // A device, or a file whose growth a crash cut short, holds old bytes there.
    zero(size_, size - size_);
    pins_.add(size_, size);
    size_ = size;
  }

  // A new file gets its name once the region's header stands, which is written last: before that
  // a kill leaves nothing behind.
  void flush(const void* address, std::size_t bytes) override {
    mapping_.flush(address, bytes);
    if (address == base() && has_region_magic(base())) mapping_.publish();
  }

  Guarantee guarantee() const override {
    return dax_guarantee({mapping_.path(), mapping_.kind(), mapping_.persistence_domain(), on_gpu(),
                          backend::device_pci_address()},
                         Platform());
  }

 private:
  DaxMapping mapping_;
  Pins pins_;
  std::uint64_t size_;
};

std::uint64_t growth_room(std::uint64_t size, std::uint64_t max_size) {
  const std::uint64_t wanted = max_size ? max_size : std::min(size, kMaxRegionBytes / 4) * 4;
  return std::min(std::max(wanted, size), kMaxRegionBytes);
}

std::unique_ptr<Medium> create_medium(const std::string& path, std::uint64_t size,
                                      std::uint64_t max_size) {
  DaxOptions options;
  options.max_bytes = growth_room(size, max_size);
  size = std::max(pages_of(size), kMetadataPages) * kPage;
  DaxMapping mapping = DaxMapping::create(path, size, options);
  if (has_region_magic(mapping.address())) {
    throw Error(Errc::already_exists,
                concat("device '", path, "' holds a region; open it, or destroy it first"));
  }
  auto medium = std::make_unique<DaxMedium>(std::move(mapping), size);
  medium->zero(0, kMetadataBytes);
  return medium;
}

std::uint64_t file_size(const std::string& path) {
  struct stat info {};
  return ::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode)
             ? static_cast<std::uint64_t>(info.st_size)
             : 0;
}

DaxMapping open_mapping(const std::string& path, std::uint64_t max_size) {
  DaxOptions options;
  options.max_bytes = growth_room(file_size(path), max_size);
  options.min_bytes = kMetadataBytes;
  return DaxMapping::open(path, options);
}

// Reads and checks the region's header and directory.
Directory read_directory(const DaxMapping& mapping) {
  return Directory::load(static_cast<std::byte*>(mapping.address()), mapping.bytes(),
                         mapping.path(), [](const void*, std::size_t) {});
}

std::unique_ptr<Medium> open_medium(const std::string& path, std::uint64_t max_size) {
  DaxMapping mapping = open_mapping(path, max_size);
  // Refused before anything is pinned, let alone written.
  const std::uint64_t size = read_directory(mapping).region_bytes();
  return std::make_unique<DaxMedium>(std::move(mapping), size);
}

}  // namespace

std::unique_ptr<Medium> make_dax_medium(const std::string& path, bool create, std::uint64_t size,
                                        std::uint64_t max_size) {
  return create ? create_medium(path, size, max_size) : open_medium(path, max_size);
}

bool is_dax_region(const std::string& path) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return false;
  if (S_ISCHR(info.st_mode)) return true;
  if (!S_ISREG(info.st_mode)) return false;
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  char magic[8];
  return fd && ::pread(fd.get(), magic, sizeof magic, 0) == 8 && has_region_magic(magic);
}

void destroy_dax_region(const std::string& path) {
  const DaxMapping mapping = open_mapping(path, 0);
  read_directory(mapping);
  if (mapping.kind() != DaxKind::device) {
    if (::unlink(path.c_str()) != 0) throw system_error(errno, "remove", path);
    sync_folder_of(path);
    return;
  }
  std::memset(mapping.address(), 0, sizeof(RegionHeader));
  mapping.flush(mapping.address(), sizeof(RegionHeader));
}

}  // namespace holdfast::core
