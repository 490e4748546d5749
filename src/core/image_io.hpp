// The writes to an image, all in one place, so that tests can watch, cut and fail them.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace holdfast::core {

// Sees every change of an image before it is made. A result other than 0 is the errno with
// which the change fails instead. While a tap is set, an image is written by one thread.
class IoTap {
 public:
  virtual ~IoTap() = default;
  virtual int on_write(std::uint64_t offset, const void* data, std::size_t bytes) = 0;
  virtual int on_sync() = 0;
  virtual int on_resize(std::uint64_t bytes) = 0;
};

// Thread safety: write() and gather() from any number of threads.
class ImageIo {
 public:
  ImageIo(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  // Each throws no_space or io, naming the image.
  void write(std::uint64_t offset, const void* data, std::size_t bytes) const;
  // Writes pieces of memory, whole pages each, one behind the other; uses up `parts`. A tap sees
  // every page as a write of its own.
  void gather(std::uint64_t offset, std::span<iovec> parts) const;
  void sync() const;
  void resize(std::uint64_t bytes) const;

  int fd() const { return fd_; }
  const std::string& path() const { return path_; }

  static std::atomic<IoTap*> tap;

 private:
  int fd_;
  std::string path_;
};

}  // namespace holdfast::core
