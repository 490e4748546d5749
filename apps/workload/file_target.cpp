#include "workload/file_target.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "holdfast/error.hpp"
#include "workload/inputs.hpp"

namespace workload {

FileTarget::FileTarget(const std::string& path, std::uint64_t bytes) : path_(path) {
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file_ < 0) fail("open");
  struct stat info {};
  if (::fstat(file_, &info) != 0) fail("fstat");
  was_there_ = info.st_size != 0;
  if (was_there_ && static_cast<std::uint64_t>(info.st_size) != bytes) {
    ::close(file_);
    throw holdfast::Error(
        holdfast::Errc::invalid_argument,
        holdfast::detail::concat("file '", path, "' has ", info.st_size, " bytes, not ", bytes,
                                 ": it is of a run with other sizes; remove it, or name another "
                                 "region"));
  }
  // Space is taken now, so that no write in a timed step pays for it or runs out of it.
  if (!was_there_) {
    if (const int error = ::posix_fallocate(file_, 0, static_cast<off_t>(bytes))) {
      errno = error;
      fail("posix_fallocate");
    }
  }
}

FileTarget::~FileTarget() { ::close(file_); }

void FileTarget::fail(const char* call) const {
  const int error = errno;
  const auto code = error == ENOSPC ? holdfast::Errc::no_space : holdfast::Errc::io;
  throw holdfast::Error(
      code, holdfast::detail::concat(call, " of '", path_, "': ", std::strerror(error)));
}

void FileTarget::write(const void* from, std::uint64_t bytes, std::uint64_t offset) const {
  const char* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t count = ::pwrite(file_, at, bytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("pwrite");
    at += count;
    offset += static_cast<std::uint64_t>(count);
    bytes -= static_cast<std::uint64_t>(count);
  }
}

void FileTarget::read(void* to, std::uint64_t bytes, std::uint64_t offset) const {
  char* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t count = ::pread(file_, at, bytes, static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("pread");
    at += count;
    offset += static_cast<std::uint64_t>(count);
    bytes -= static_cast<std::uint64_t>(count);
  }
}

void FileTarget::sync() const {
  if (::fsync(file_) != 0) fail("fsync");
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
