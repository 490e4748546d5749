#include "core/arena.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "core/checksum.hpp"
#include "core/directory.hpp"
#include "core/shared_memory.hpp"

namespace holdfast::core {

using detail::concat;

std::string arena_folder(const std::string& option) {
  if (!option.empty()) return from_anywhere(option);
  const char* set = std::getenv("HOLDFAST_ARENA_DIR");
  return set != nullptr && set[0] != 0 ? from_anywhere(set) : "/dev/shm";
}

std::string arena_path(const std::string& folder, const Uuid& uuid) {
  return concat(folder, "/holdfast-", ::geteuid(), "-", to_text(uuid), ".arena");
}

std::string fall_back() {
  return "; to go on from the last commit without it, open with last_commit (--last-commit)";
}

std::string arena_in_words(const std::string& path) {
  return concat("the arena '", path, "' (", fall_back().substr(2), ")");
}

ImageIdentity identify(int image_fd, const std::string& path) {
  struct stat info {};
  if (::fstat(image_fd, &info) != 0) throw system_error(errno, "look at", path);
  return {path, info.st_dev, info.st_ino};
}

namespace {

using Clock = std::chrono::steady_clock;

// How long an ending process is waited for.
constexpr std::chrono::seconds kPatience{5};

[[noreturn]] void damaged(const std::string& path, const std::string& what) {
  throw Error(Errc::damaged, concat("the arena '", path, "' ", what, fall_back()));
}

// Reads and checks the arena's page, but not what it says about boot and image.
ArenaHeader read_header(int fd, const std::string& path, const Uuid& uuid) {
  ArenaHeader header;
  if (!read_exactly(fd, &header, sizeof header, 0, path)) damaged(path, "is cut off");
  // The eighth character is the version's.
  if (std::memcmp(header.magic, kArenaMagic, 7) != 0) damaged(path, "has no arena header");
  if (header.version > kFormatVersion) {
    throw Error(Errc::newer_version,
                concat("the arena '", path, "' was written in format version ", header.version,
                       "; open the region with a newer build once, and close it", fall_back()));
  }
  const char* const magic = header.version == 1 ? kArenaMagicV1 : kArenaMagic;
  if (header.version == 0 || std::memcmp(header.magic, magic, 8) != 0 ||
      header.checksum != hash_bytes(&header, offsetof(ArenaHeader, checksum))) {
    damaged(path, "has a header that does not match its checksum");
  }
  if (header.page_bytes != kPage || header.uuid != uuid) damaged(path, "is of another region");
  if (header.version == 1) {  // had other things behind the checksum
    std::memset(reinterpret_cast<std::byte*>(&header) + offsetof(ArenaHeader, state), 0,
                sizeof header - offsetof(ArenaHeader, state));
  }
  if (header.state > static_cast<std::uint64_t>(ArenaUse::closed) ||
      std::memchr(header.image_path, 0, sizeof header.image_path) == nullptr) {
    damaged(path, "has a header with impossible values");
  }
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

ProcessName owner_of(const ArenaHeader& header) {
  return {header.owner_pid, header.owner_start, header.owner_pid_namespace};
}

// Locks the arena once nothing of a dead owner can write to it any more. The lock alone does not
// tell: a process lets go of its files one by one, and its GPU stops when the driver's is let go
// of. Nor does the owner: what it forked has its memory, too, and holds the lock by it.
void lock_when_quiet(int fd, const std::string& path, const ProcessName& owner) {
  const Clock::time_point deadline = Clock::now() + kPatience;
  for (;;) {
    try {
      lock_file(fd, true, path);
      break;
    } catch (const Error& error) {
      const bool may_go = life_of(owner) != Life::running && owner.pid != 0;
      if (error.code() != Errc::in_use || !may_go || Clock::now() >= deadline) throw;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  if (owner == this_process() || wait_for_end(owner, deadline)) return;
  throw Error(Errc::in_use,
              concat("process ", owner.pid, " has let go of the lock of '", path,
                     "' and has not ended: it, or its GPU, may still write there; end it first"));
}

}  // namespace

std::optional<FoundArena> find_arena(const std::string& path, const Uuid& uuid, bool writable) {
  FoundArena found;
  found.path = path;
  try {
    found.fd = open_own_file(path, writable, "an arena");
  } catch (const Error& error) {
    if (error.code() == Errc::not_found) return std::nullopt;
    throw;
  }
  const int fd = found.fd.get();
  ArenaHeader header;
  const bool named =
      read_exactly(fd, &header, sizeof header, 0, path) && header.version == kFormatVersion;
  if (writable) {
    lock_when_quiet(fd, path, named ? owner_of(header) : ProcessName{});
  } else {
    lock_file(fd, false, path);
  }
  found.header = read_header(fd, path, uuid);
  return found;
}

std::optional<ArenaHeader> sound_header(int fd, const std::string& path, const Uuid& uuid) try {
  return read_header(fd, path, uuid);
} catch (const Error& error) {
  if (error.code() != Errc::damaged) throw;
  return std::nullopt;
}

std::uint64_t check_content(const FoundArena& found, const Uuid& uuid, std::uint64_t least) {
  const std::string& path = found.path;
  const std::uint64_t bytes = file_facts(found.fd.get(), path).bytes;
  if (bytes % kPage != 0 || bytes < kPage + kMetadataBytes || bytes - kPage > kMaxRegionBytes) {
    damaged(path, concat("has an impossible size of ", bytes, " bytes"));
  }
  // Read and not mapped: a hole in the file must not be touched.
  std::vector<std::byte> metadata(kMetadataBytes);
  if (!read_exactly(found.fd.get(), metadata.data(), kMetadataBytes, kPage, path)) {
    damaged(path, "is cut off");
  }
  RegionHeader region;
  std::memcpy(&region, metadata.data(), sizeof region);
  if (std::memcmp(region.magic, kRegionMagic, 8) != 0 || region.uuid != uuid) {
    damaged(path, "does not hold the region's bytes");
  }
  const Directory directory = Directory::load(metadata.data(), bytes - kPage, arena_in_words(path),
                                              [](const void*, std::size_t) {});
  if (directory.region_bytes() < least) {
    damaged(path, concat("holds a region of ", directory.region_bytes(),
                         " bytes, and its image one of ", least));
  }
  // A kill within grow() leaves a file that is longer than the region, perhaps with holes there.
  if (file_facts(found.fd.get(), path).allocated < kPage + directory.region_bytes()) {
    damaged(path, "has holes: it was changed from outside");
  }
  return directory.region_bytes();
}

Arena::Arena(std::string path, std::uint64_t size, std::uint64_t max_size)
    : path_(std::move(path)),
      size_(size),
      max_size_(std::max(size, max_size)),
      space_(kPage + max_size_, concat("the arena '", path_, "'")) {}

Arena::~Arena() {
  space_.unpin();
  // From here on nothing of this process writes there. A forked child is not the owner.
  if (fd_ && header()->owner_pid == static_cast<std::uint64_t>(::getpid())) set_owner({});
}

std::unique_ptr<Arena> Arena::create(const std::string& path, const Uuid& uuid, const Uuid& boot,
                                     std::uint64_t size, std::uint64_t max_size) {
  const std::string folder = folder_of(path);
  std::unique_ptr<Arena> arena(new Arena(path, size, max_size));
  arena->unpublished_ = std::make_unique<NewFile>(folder, base_name(path));
  const int fd = arena->unpublished_->fd();
  check_lock_holds(fd, true, path);
  enlarge_shared(fd, folder, 0, kPage + size);
  arena->space_.map(fd, 0, kPage + size);
  allocate_shared(fd, folder, 0, kPage + size, arena->space_.base());

  ArenaHeader* header = arena->header();
  std::memcpy(header->magic, kArenaMagic, 8);
  header->version = kFormatVersion;
  header->page_bytes = kPageBytes;
  header->uuid = uuid;
  header->boot_id = boot;
  header->arena_id = new_uuid();
  return arena;
}

void Arena::publish(const ImageIdentity& image) {
  ArenaHeader* const page = header();
  page->image_device = image.device;
  page->image_inode = image.inode;
  const std::string absolute = absolute_path(image.path);
  std::memcpy(page->image_path, absolute.data(),
              std::min(absolute.size(), sizeof page->image_path - 1));
  page->checksum = hash_bytes(page, offsetof(ArenaHeader, checksum));
  set_owner(this_process());
  try {
    fd_ = unpublished_->publish();
  } catch (const Error& error) {
    if (error.code() != Errc::already_exists) throw;
    throw Error(Errc::in_use, concat("there is an arena '", path_, "' of another copy of '",
                                     image.path, "'; close that copy first"));
  }
  unpublished_.reset();
}

std::unique_ptr<Arena> Arena::adopt(FoundArena found, const Uuid& uuid, std::uint64_t least,
                                    const std::function<std::uint64_t(std::uint64_t)>& max_size) {
  const std::uint64_t size = check_content(found, uuid, least);
  const int fd = found.fd.get();
  check_lock_holds(fd, true, found.path);
  std::unique_ptr<Arena> arena(new Arena(found.path, size, max_size(size)));
  if (file_facts(fd, found.path).bytes > kPage + size &&
      ::ftruncate(fd, static_cast<off_t>(kPage + size)) != 0) {
    throw system_error(errno, "cut", found.path);
  }
  arena->space_.map(fd, 0, kPage + size);
  arena->fd_ = std::move(found.fd);  // once there is a header to be read
  arena->set_owner(this_process());
  return arena;
}

void Arena::grow(std::uint64_t size) {
  const int fd = unpublished_ ? unpublished_->fd() : fd_.get();
  const std::string folder = folder_of(path_);
  try {
    enlarge_shared(fd, folder, kPage + size_, size - size_);
    space_.map(fd, kPage + size_, kPage + size);
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
  struct stat info {};
  if (fd_ && (::fstat(fd_.get(), &info) != 0 || info.st_nlink == 0)) {
    return {Rung::none, Rung::power,
            concat("the arena '", path_,
                   "' was removed while the region was open, so a crash loses what was not "
                   "committed; close() the region and open it again (systemd removes a user's "
                   "shared memory at logout, unless RemoveIPC=no)")};
  }
  return {Rung::process, Rung::power,
          "the region's bytes are in shared memory, which outlives the process but not the "
          "machine; commit() writes them to the image and syncs it"};
}

namespace {

void store_word(std::uint64_t& word, std::uint64_t value) {
  std::atomic_ref<std::uint64_t>(word).store(value, std::memory_order_release);
}

}  // namespace

void Arena::set_owner(const ProcessName& owner) {
  ArenaHeader* const page = header();
  store_word(page->owner_pid, 0);
  store_word(page->owner_start, owner.start);
  store_word(page->owner_pid_namespace, owner.pid_namespace);
  store_word(page->owner_pid, owner.pid);
}

void Arena::set_use(ArenaUse use) { store_word(header()->state, static_cast<std::uint64_t>(use)); }

// A kill within a copy leaves the other one of the two whole, and that is then the image's.
void Arena::announce(const Uuid& commit) {
  header()->next = commit;
  std::atomic_thread_fence(std::memory_order_release);
}

void Arena::agree(const Uuid& commit) {
  header()->base = commit;
  std::atomic_thread_fence(std::memory_order_release);
}

void Arena::leave_to_maker() noexcept {
  ::munmap(space_.base(), kPage + max_size_);
  ::close(fd_.get());
}

void Arena::remove() noexcept {
  struct stat ours {
  }, named{};
  if (::fstat(fd_.get(), &ours) == 0 && ::lstat(path_.c_str(), &named) == 0 &&
      (named.st_dev != ours.st_dev || named.st_ino != ours.st_ino)) {
    return;  // another one's by now
  }
  ::unlink(path_.c_str());
}

}  // namespace holdfast::core
