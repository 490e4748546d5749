#include "workload/file_target.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "holdfast/error.hpp"
#include "workload/inputs.hpp"

namespace workload {

void FileTarget::File::open(std::uint64_t bytes) {
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
}

FileTarget::File::~File() {
  if (descriptor >= 0) ::close(descriptor);
}

void FileTarget::File::fail(const char* call) const {
  const int error = errno;
  const auto code = error == ENOSPC ? holdfast::Errc::no_space : holdfast::Errc::io;
  throw holdfast::Error(code,
                        holdfast::detail::concat(call, " of '", path, "': ", std::strerror(error)));
}

FileTarget::FileTarget(const std::string& path, std::uint64_t bytes, unsigned most_files)
    : files_(std::clamp<std::uint64_t>((bytes + kStripe - 1) / kStripe, 1, most_files)) {
  const std::uint64_t count = files_.size();
  for (std::uint64_t i = 0; i < count; ++i) {
    File& file = files_[i];
    file.path = i == 0 ? path : holdfast::detail::concat(path, ".", i);
    // The whole stripes, and the rest in the file where it falls.
    const std::uint64_t whole = bytes / kStripe;
    const std::uint64_t rest = whole % count == i ? bytes % kStripe : 0;
    file.open((whole + count - 1 - i) / count * kStripe + rest);
    was_there_ = was_there_ && file.was_there;
  }
}

FileTarget::~FileTarget() = default;

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
    while (left > 0) {
      const ssize_t count = ::pwrite(file.descriptor, at, left, static_cast<off_t>(place));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) file.fail("pwrite");
      at += count;
      place += static_cast<std::uint64_t>(count);
      left -= static_cast<std::uint64_t>(count);
    }
  });
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
