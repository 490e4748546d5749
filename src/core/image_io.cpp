#include "core/image_io.hpp"

#include <unistd.h>

#include <cerrno>

#include "core/files.hpp"
#include "core/format.hpp"

namespace holdfast::core {

using detail::concat;

std::atomic<IoTap*> ImageIo::tap{nullptr};

namespace {

Error commit_error(int error_number, const char* action, const std::string& path) {
  const Error plain = system_error(error_number, action, path);
  return {plain.code(), concat(plain.what(), "; the image still holds the previous commit")};
}

// As write_exactly(), from several places.
int gather_exactly(int fd, std::span<iovec> parts, std::uint64_t offset) noexcept {
  const IgnoreFileSizeSignal guard;
  while (!parts.empty()) {
    const ssize_t put =
        ::pwritev(fd, parts.data(), static_cast<int>(parts.size()), static_cast<off_t>(offset));
    if (put < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    if (put == 0) return ENOSPC;
    offset += static_cast<std::uint64_t>(put);
    parts = skip_bytes(parts, static_cast<std::size_t>(put));
  }
  return 0;
}

}  // namespace

void ImageIo::write(std::uint64_t offset, const void* data, std::size_t bytes) const {
  int error = 0;
  if (IoTap* watcher = tap.load()) error = watcher->on_write(offset, data, bytes);
  if (error == 0) error = write_exactly(fd_, data, bytes, offset);
  if (error != 0) throw commit_error(error, "write to", path_);
}

void ImageIo::gather(std::uint64_t offset, std::span<iovec> parts) const {
  if (tap.load() != nullptr) {
    for (const iovec& part : parts) {
      const auto* const data = static_cast<const std::byte*>(part.iov_base);
      for (std::size_t at = 0; at < part.iov_len; at += kPage, offset += kPage) {
        write(offset, data + at, kPage);
      }
    }
    return;
  }
  if (const int error = gather_exactly(fd_, parts, offset); error != 0) {
    throw commit_error(error, "write to", path_);
  }
}

void ImageIo::sync() const {
  int error = 0;
  if (IoTap* watcher = tap.load()) error = watcher->on_sync();
  if (error == 0 && ::fdatasync(fd_) != 0) error = errno;
  if (error != 0) throw commit_error(error, "sync", path_);
}

void ImageIo::resize(std::uint64_t bytes) const {
  const IgnoreFileSizeSignal guard;
  int error = 0;
  if (IoTap* watcher = tap.load()) error = watcher->on_resize(bytes);
  if (error == 0 && ::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) error = errno;
  if (error != 0) throw commit_error(error, "enlarge", path_);
}

}  // namespace holdfast::core
