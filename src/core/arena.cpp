#include "core/arena.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>

#include "core/checksum.hpp"
#include "core/directory.hpp"
#include "core/shared_memory.hpp"

namespace holdfast::core {

using detail::concat;

std::string arena_folder(const std::string& option) {
  if (!option.empty()) return option;
  const char* set = std::getenv("HOLDFAST_ARENA_DIR");
  return set != nullptr && set[0] != 0 ? set : "/dev/shm";
}

std::string arena_path(const std::string& folder, const Uuid& uuid) {
  return concat(folder, "/holdfast-", ::geteuid(), "-", to_text(uuid), ".arena");
}

Uuid this_boot() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string text;
  Uuid result{};
  std::getline(file, text);
  std::erase(text, '-');
  for (std::size_t i = 0; i < result.size() && 2 * i + 1 < text.size(); ++i) {
    result[i] = static_cast<std::uint8_t>(std::strtoul(text.substr(2 * i, 2).c_str(), nullptr, 16));
  }
  if (result == Uuid{}) {
    throw Error(Errc::unsupported,
                "cannot read /proc/sys/kernel/random/boot_id, which tells a crash from a reboot; "
                "mount /proc");
  }
  return result;
}

std::string to_text(const Uuid& uuid) {
  std::string text;
  for (std::size_t i = 0; i < uuid.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += "0123456789abcdef"[uuid[i] >> 4];
    text += "0123456789abcdef"[uuid[i] & 15];
  }
  return text;
}

Uuid new_uuid() {
  std::random_device random;
  Uuid uuid{};
  for (std::uint8_t& byte : uuid) byte = static_cast<std::uint8_t>(random());
  uuid[6] = (uuid[6] & 0x0f) | 0x40;  // version 4, variant 1: a random UUID
  uuid[8] = (uuid[8] & 0x3f) | 0x80;
  return uuid;
}

ImageIdentity identify(int image_fd, const std::string& path) {
  struct stat info {};
  if (::fstat(image_fd, &info) != 0) throw system_error(errno, "look at", path);
  return {path, info.st_dev, info.st_ino};
}

namespace {

std::string fall_back(const std::string& path) {
  return concat("; to fall back to the last commit, remove '", path, "'");
}

[[noreturn]] void damaged(const std::string& path, const std::string& what) {
  throw Error(Errc::damaged, concat("the arena '", path, "' ", what, fall_back(path)));
}

// Reads and checks the arena's page, but not what it says about boot and image.
ArenaHeader read_header(int fd, const std::string& path, const Uuid& uuid) {
  ArenaHeader header;
  if (!read_exactly(fd, &header, sizeof header, 0, path)) damaged(path, "is cut off");
  if (std::memcmp(header.magic, kArenaMagic, 8) != 0) damaged(path, "has no arena header");
  if (header.version > kFormatVersion) {
    throw Error(Errc::newer_version,
                concat("the arena '", path, "' was written in format version ", header.version,
                       "; open it with a newer build once, and close it", fall_back(path)));
  }
  if (header.checksum != hash_bytes(&header, offsetof(ArenaHeader, checksum))) {
    damaged(path, "has a header that does not match its checksum");
  }
  if (header.page_bytes != kPage || header.uuid != uuid) damaged(path, "is of another region");
  return header;
}

// A file with holes was not made by us, or was cut off and extended: touching a hole while shared
// memory is full would kill the process.
struct FileFacts {
  std::uint64_t bytes;
  std::uint64_t allocated;
};
FileFacts file_facts(int fd, const std::string& path) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw system_error(errno, "look at", path);
  return {static_cast<std::uint64_t>(info.st_size),
          static_cast<std::uint64_t>(info.st_blocks) * 512};
}

// A second descriptor of the same file, for mapping. A mapping keeps its descriptor alive, and a
// driver may keep a dead process's mappings for a while: the lock must not wait for that.
UniqueFd reopen(int fd, const std::string& path) {
  UniqueFd again(::open(concat("/proc/self/fd/", fd).c_str(), O_RDWR | O_CLOEXEC));
  if (!again) throw system_error(errno, "open", path);
  return again;
}

}  // namespace

Arena::Arena(std::string path, std::uint64_t size, std::uint64_t max_size)
    : path_(std::move(path)),
      size_(size),
      max_size_(std::max(size, max_size)),
      space_(kPage + max_size_, concat("the arena '", path_, "'")) {}

std::unique_ptr<Arena> Arena::create(const std::string& path, const Uuid& uuid, std::uint64_t size,
                                     std::uint64_t max_size) {
  const std::string folder = folder_of(path);
  std::unique_ptr<Arena> arena(new Arena(path, size, max_size));
  arena->unpublished_ = std::make_unique<NewFile>(folder, base_name(path));
  const int fd = arena->unpublished_->fd();
  enlarge_shared(fd, folder, 0, kPage + size);
  arena->map_fd_ = reopen(fd, path);
  arena->space_.map(arena->map_fd_.get(), 0, kPage + size);
  allocate_shared(fd, folder, 0, kPage + size, arena->space_.base());

  ArenaHeader* header = arena->header();
  std::memcpy(header->magic, kArenaMagic, 8);
  header->version = kFormatVersion;
  header->page_bytes = kPageBytes;
  header->uuid = uuid;
  header->boot_id = this_boot();
  return arena;
}

void Arena::publish(const ImageIdentity& image, std::uint64_t generation) {
  ArenaHeader* const page = header();
  page->image_device = image.device;
  page->image_inode = image.inode;
  const std::string absolute = absolute_path(image.path);
  std::memcpy(page->image_path, absolute.data(),
              std::min(absolute.size(), sizeof page->image_path - 1));
  page->checksum = hash_bytes(page, offsetof(ArenaHeader, checksum));
  page->generation = generation;
  try {
    fd_ = unpublished_->publish(false);
  } catch (const Error& error) {
    if (error.code() != Errc::already_exists) throw;
    throw Error(Errc::in_use, concat("there is an arena '", path_, "' of another copy of '",
                                     image.path, "'; close that copy first"));
  }
  unpublished_.reset();
}

ArenaState Arena::look(const std::string& path, const Uuid& uuid) {
  UniqueFd fd;
  try {
    fd = open_own_file(path, true, "an arena");
  } catch (const Error& error) {
    if (error.code() == Errc::not_found) return ArenaState::absent;
    throw;
  }
  lock_file(fd.get(), true, path);
  const ArenaHeader header = read_header(fd.get(), path, uuid);
  return header.boot_id == this_boot() ? ArenaState::this_boot : ArenaState::earlier_boot;
}

Arena::Checked Arena::check(const std::string& path, const Uuid& uuid, const ImageIdentity& image,
                            std::uint64_t image_generation) {
  Checked found;
  found.fd = open_own_file(path, true, "an arena");
  const int fd = found.fd.get();
  lock_file(fd, true, path);
  const ArenaHeader header = read_header(fd, path, uuid);
  if (header.image_device != image.device || header.image_inode != image.inode) {
    const std::string owner(header.image_path,
                            ::strnlen(header.image_path, sizeof header.image_path));
    throw Error(
        Errc::in_use,
        concat("the arena '", path, "' holds what a crashed process left of '", owner, "', and '",
               image.path, "' is a copy of it (or was moved); open and close that one first",
               fall_back(path)));
  }
  // A commit writes the image before it notes so in the arena: one ahead is a crash in between.
  if (image_generation != header.generation && image_generation != header.generation + 1) {
    throw Error(Errc::damaged,
                concat("the arena '", path, "' continues commit ", header.generation,
                       " of the region, but the image '", image.path, "' holds commit ",
                       image_generation, ": one of them was replaced", fall_back(path)));
  }
  const std::uint64_t bytes = file_facts(fd, path).bytes;
  if (bytes % kPage != 0 || bytes < kPage + kMetadataBytes || bytes - kPage > kMaxRegionBytes) {
    damaged(path, concat("has an impossible size of ", bytes, " bytes"));
  }
  // Read and not mapped: a hole in the file must not be touched.
  std::vector<std::byte> metadata(kMetadataBytes);
  if (!read_exactly(fd, metadata.data(), kMetadataBytes, kPage, path)) damaged(path, "is cut off");
  RegionHeader region;
  std::memcpy(&region, metadata.data(), sizeof region);
  if (std::memcmp(region.magic, kRegionMagic, 8) != 0 || region.uuid != uuid) {
    damaged(path, "does not hold the region's bytes");
  }
  const Directory directory =
      Directory::load(metadata.data(), bytes - kPage,
                      concat("the arena '", path, "' (to fall back to the last commit, remove it)"),
                      [](const void*, std::size_t) {});
  found.region_bytes = directory.region_bytes();
  found.file_bytes = bytes;
  return found;
}

std::unique_ptr<Arena> Arena::adopt(const std::string& path, const Uuid& uuid,
                                    const ImageIdentity& image, std::uint64_t image_generation,
                                    const std::function<std::uint64_t(std::uint64_t)>& max_size) {
  Checked found = check(path, uuid, image, image_generation);
  const int fd = found.fd.get();
  const std::uint64_t bytes = kPage + found.region_bytes;
  // A kill within grow() leaves a file that is longer than the region, perhaps with holes there.
  if (found.file_bytes > bytes && ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    throw system_error(errno, "cut", path);
  }
  if (file_facts(fd, path).allocated < bytes) {
    damaged(path, "has holes: it was changed from outside");
  }
  const std::uint64_t size = found.region_bytes;
  std::unique_ptr<Arena> arena(new Arena(path, size, max_size(size)));
  arena->fd_ = std::move(found.fd);
  arena->map_fd_ = reopen(fd, path);
  arena->space_.map(arena->map_fd_.get(), 0, bytes);
  return arena;
}

void Arena::grow(std::uint64_t size) {
  const int fd = unpublished_ ? unpublished_->fd() : fd_.get();
  const std::string folder = folder_of(path_);
  try {
    enlarge_shared(fd, folder, kPage + size_, size - size_);
    space_.map(map_fd_.get(), kPage + size_, kPage + size);
    allocate_shared(fd, folder, kPage + size_, size - size_, base() + size_);
    space_.pin(kPage + size_, kPage + size);
  } catch (...) {
    space_.unmap(kPage + size_, kPage + size);
    (void)!::ftruncate(fd, static_cast<off_t>(kPage + size_));
    throw;
  }
  size_ = size;
}

Guarantee Arena::guarantee() const {
  return {Rung::process, Rung::power,
          "the region's bytes are in shared memory, which outlives the process but not the "
          "machine; commit() writes them to the image and syncs it"};
}

void Arena::set_generation(std::uint64_t generation) {
  std::atomic_ref<std::uint64_t>(header()->generation).store(generation, std::memory_order_release);
}

void Arena::remove() noexcept { ::unlink(path_.c_str()); }

}  // namespace holdfast::core
