#include "workload/file_target.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>

#include "holdfast/error.hpp"
#include "workload/inputs.hpp"

namespace workload {
namespace {

// Direct and other writes do not share a page: what the page cache holds of it would be stale.
constexpr std::uint64_t kPage = 4096;
constexpr std::uint64_t kMostAlignment = 64u << 10;

// What direct I/O of the file wants, at least a page; 0: it has none.
std::uint64_t direct_alignment(int descriptor) {
  struct statfs system {};
  if (::fstatfs(descriptor, &system) != 0) return 0;
  // These take the flag, and copy all the same.
  if (system.f_type == TMPFS_MAGIC || system.f_type == RAMFS_MAGIC) return 0;
  std::uint64_t alignment = kPage;
#ifdef STATX_DIOALIGN
  struct statx info {};
  if (::statx(descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
      (info.stx_mask & STATX_DIOALIGN) != 0) {
    if (info.stx_dio_offset_align == 0) return 0;
    alignment = std::max<std::uint64_t>({kPage, info.stx_dio_offset_align, info.stx_dio_mem_align});
  }
#endif
  return std::has_single_bit(alignment) && alignment <= kMostAlignment ? alignment : 0;
}

}  // namespace

void FileTarget::File::open(std::uint64_t bytes, bool wants_direct) {
  descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (descriptor < 0) fail("open");
  struct stat info {};
  if (::fstat(descriptor, &info) != 0) fail("fstat");
  was_there = info.st_size != 0;
  if (was_there && static_cast<std::uint64_t>(info.st_size) != bytes) {
    throw holdfast::Error(
        holdfast::Errc::invalid_argument,
        holdfast::detail::concat("file '", path, "' has ", info.st_size, " bytes, not ", bytes,
                                 ": it is of a run with other sizes; remove it, or name another "
                                 "region"));
  }
  // Space is taken now, so that no write in a timed step pays for it or runs out of it.
  if (!was_there) {
    if (const int error = ::posix_fallocate(descriptor, 0, static_cast<off_t>(bytes))) {
      errno = error;
      fail("posix_fallocate");
    }
  }
  if (!wants_direct) return;
  open_direct();
  if (direct >= 0 && !was_there) write_zeros(bytes);
}

void FileTarget::File::open_direct() {
  alignment = direct_alignment(descriptor);
  if (alignment == 0) return;
  direct = ::open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
}

// So that no write in a timed step is the first to a block, which changes the file's metadata.
void FileTarget::File::write_zeros(std::uint64_t bytes) const {
  constexpr std::uint64_t kAtOnce = 1u << 20;
  struct Freed {
    void operator()(char* memory) const {
      ::operator delete[](memory, std::align_val_t(kMostAlignment));
    }
  };
  const std::unique_ptr<char, Freed> zeros(
      static_cast<char*>(::operator new[](kAtOnce, std::align_val_t(kMostAlignment))));
  std::memset(zeros.get(), 0, kAtOnce);
  for (std::uint64_t at = 0; at < bytes; at += kAtOnce) {
    write(zeros.get(), std::min(kAtOnce, bytes - at), at);
  }
  if (::fsync(descriptor) != 0) fail("fsync");
}

FileTarget::File::~File() {
  if (direct >= 0) ::close(direct);
  if (descriptor >= 0) ::close(descriptor);
}

void FileTarget::File::fail(const char* call) const {
  const int error = errno;
  const auto code = error == ENOSPC ? holdfast::Errc::no_space : holdfast::Errc::io;
  throw holdfast::Error(code,
                        holdfast::detail::concat(call, " of '", path, "': ", std::strerror(error)));
}

FileTarget::FileTarget(const std::string& path, std::uint64_t bytes, unsigned most_files,
                       bool direct)
    : files_(std::clamp<std::uint64_t>((bytes + kStripe - 1) / kStripe, 1, most_files)) {
  const std::uint64_t count = files_.size();
  for (std::uint64_t i = 0; i < count; ++i) {
    File& file = files_[i];
    file.path = i == 0 ? path : holdfast::detail::concat(path, ".", i);
    // The whole stripes, and the rest in the file where it falls.
    const std::uint64_t whole = bytes / kStripe;
    const std::uint64_t rest = whole % count == i ? bytes % kStripe : 0;
    file.open((whole + count - 1 - i) / count * kStripe + rest, direct);
    was_there_ = was_there_ && file.was_there;
  }
}

FileTarget::~FileTarget() = default;

bool FileTarget::is_direct() const { return files_.front().direct >= 0; }

template <class Body>
void FileTarget::for_stripes(std::uint64_t bytes, std::uint64_t offset, const Body& body) const {
  if (files_.size() == 1) {
    body(files_[0], offset, bytes);
    return;
  }
  while (bytes > 0) {
    const std::uint64_t stripe = offset / kStripe;
    const std::uint64_t within = offset % kStripe;
    const std::uint64_t count = std::min(bytes, kStripe - within);
    body(files_[stripe % files_.size()], stripe / files_.size() * kStripe + within, count);
    offset += count;
    bytes -= count;
  }
}

void FileTarget::write(const void* from, std::uint64_t bytes, std::uint64_t offset) const {
  const char* at = static_cast<const char*>(from);
  for_stripes(bytes, offset, [&](const File& file, std::uint64_t place, std::uint64_t left) {
    // Looked at first: threads would take its line from one another.
    if (!file.written.load(std::memory_order_relaxed)) file.written = true;
    file.write(at, left, place);
    at += left;
  });
}

// What lies before and behind whole pages goes through the page cache.
void FileTarget::File::write(const char* at, std::uint64_t bytes, std::uint64_t place) const {
  const auto memory = reinterpret_cast<std::uintptr_t>(at);
  if (direct < 0 || (memory - place) % alignment != 0) {
    write_to(descriptor, at, bytes, place);
    return;
  }
  const std::uint64_t head = std::min(bytes, -place % alignment);
  const std::uint64_t whole = (bytes - head) / alignment * alignment;
  write_to(descriptor, at, head, place);
  write_to(direct, at + head, whole, place + head);
  write_to(descriptor, at + head + whole, bytes - head - whole, place + head + whole);
}

void FileTarget::File::write_to(int to, const char* at, std::uint64_t bytes,
                                std::uint64_t place) const {
  while (bytes > 0) {
    const ssize_t count = ::pwrite(to, at, bytes, static_cast<off_t>(place));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("pwrite");
    // Direct I/O that wrote a part goes on where it stopped, if that is still aligned.
    if (to == direct && static_cast<std::uint64_t>(count) % alignment != 0) to = descriptor;
    at += count;
    place += static_cast<std::uint64_t>(count);
    bytes -= static_cast<std::uint64_t>(count);
  }
}

void FileTarget::read(void* to, std::uint64_t bytes, std::uint64_t offset) const {
  char* at = static_cast<char*>(to);
  for_stripes(bytes, offset, [&](const File& file, std::uint64_t place, std::uint64_t left) {
    while (left > 0) {
      const ssize_t count = ::pread(file.descriptor, at, left, static_cast<off_t>(place));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) file.fail("pread");
      at += count;
      place += static_cast<std::uint64_t>(count);
      left -= static_cast<std::uint64_t>(count);
    }
  });
}

void FileTarget::sync() const {
  for (const File& file : files_) {
    if (!file.written.exchange(false)) continue;
    if (::fsync(file.descriptor) != 0) file.fail("fsync");
  }
}

std::string target_prefix(const std::string& region_path) {
  const char* const folder = std::getenv("HOLDFAST_ARENA_DIR");
  const std::string absolute = std::filesystem::absolute(region_path).lexically_normal();
  return holdfast::detail::concat(folder != nullptr && *folder != '\0' ? folder : "/dev/shm",
                                  "/holdfast-target-", checksum(absolute.data(), absolute.size()),
                                  "-");
}

void remove_targets(const std::string& region_path) {
  const std::filesystem::path prefix = target_prefix(region_path);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(prefix.parent_path(), error)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(prefix.filename().string())) {
      std::filesystem::remove(entry.path(), error);
    }
  }
}

}  // namespace workload
