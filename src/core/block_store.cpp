#include "core/block_store.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace holdfast::core {

bool BlockStore::read(std::uint64_t offset, void* data, std::size_t bytes) const {
  iovec part{data, bytes};
  return read_parts(offset, {&part, 1});
}

void BlockStore::write(std::uint64_t offset, const void* data, std::size_t bytes) {
  iovec part{const_cast<void*>(data), bytes};
  write_parts(offset, {&part, 1});
}

FileStore::FileStore(UniqueFd fd, std::string path)
    : fd_(std::move(fd)),
      path_(std::move(path)),
      absolute_(absolute_path(folder_of(path_)) + "/" + base_name(path_)) {}

bool FileStore::read_parts(std::uint64_t offset, std::span<iovec> parts) const {
  while (!parts.empty()) {
    const ssize_t got =
        ::preadv(fd(), parts.data(), static_cast<int>(parts.size()), static_cast<off_t>(offset));
    if (got < 0) {
      if (errno == EINTR) continue;
      throw system_error(errno, "read", path_);
    }
    if (got == 0) return false;
    offset += static_cast<std::uint64_t>(got);
    parts = skip_bytes(parts, static_cast<std::size_t>(got));
  }
  return true;
}

void FileStore::write_parts(std::uint64_t offset, std::span<iovec> parts) {
  const IgnoreFileSizeSignal guard;
  while (!parts.empty()) {
    const ssize_t put =
        ::pwritev(fd(), parts.data(), static_cast<int>(parts.size()), static_cast<off_t>(offset));
    if (put < 0) {
      if (errno == EINTR) continue;
      throw system_error(errno, "write to", path_);
    }
    if (put == 0) throw system_error(ENOSPC, "write to", path_);
    offset += static_cast<std::uint64_t>(put);
    parts = skip_bytes(parts, static_cast<std::size_t>(put));
  }
}

void FileStore::sync() {
  if (::fdatasync(fd()) != 0) throw system_error(errno, "sync", path_);
}

void FileStore::sync_name() { sync_folder_of(path_); }

void FileStore::resize(std::uint64_t bytes) {
  const IgnoreFileSizeSignal guard;
  if (::ftruncate(fd(), static_cast<off_t>(bytes)) != 0) {
    throw system_error(errno, "enlarge", path_);
  }
}

std::uint64_t FileStore::size() const {
  struct stat info {};
  if (::fstat(fd(), &info) != 0) throw system_error(errno, "look at", path_);
  return static_cast<std::uint64_t>(info.st_size);
}

void FileStore::check_in_place(std::uint64_t bytes) const {
  struct stat ours {};
  if (::fstat(fd(), &ours) != 0) throw system_error(errno, "look at", path_);
  struct stat named {};
  const bool replaced = ::stat(absolute_.c_str(), &named) == 0 &&
                        (named.st_dev != ours.st_dev || named.st_ino != ours.st_ino);
  // One that was renamed is not lost.
  if (ours.st_nlink == 0 || replaced) {
    throw Error(Errc::not_found,
                detail::concat("'", path_, "' was ", replaced ? "replaced" : "removed",
                               " while the region was open: a commit to it would be lost"));
  }
  if (static_cast<std::uint64_t>(ours.st_size) < bytes) {
    throw Error(Errc::damaged, detail::concat("'", path_, "' was cut to ", ours.st_size,
                                              " bytes while the region was open: it had ", bytes));
  }
}

}  // namespace holdfast::core
