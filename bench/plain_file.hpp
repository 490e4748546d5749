// What a disk can do by itself: a file written and read by threads that do nothing but O_DIRECT
// transfers of 4 MiB, into space that is taken before, with one sync at the end.
//
// Memory is at multiples of 4096 bytes, and its size is one. Throws std::runtime_error.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace bench {

inline void check(bool good, const char* what) {
  if (!good) throw std::runtime_error(std::string(what) + ": " + std::strerror(errno));
}

// A file that is written and read with nothing around it.
class PlainFile {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{4} << 20;
  PlainFile(std::string path, unsigned threads) : path_(std::move(path)), threads_(threads) {}
  ~PlainFile() { ::unlink(path_.c_str()); }

  void write(std::span<const std::byte> from) {
    const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600);
    check(fd >= 0, "open");
    check(::fallocate(fd, 0, 0, static_cast<off_t>(from.size())) == 0, "fallocate");
    in_pieces(from.size(), [&](std::size_t at, std::size_t bytes) {
      check(::pwrite(fd, from.data() + at, bytes, static_cast<off_t>(at)) ==
                static_cast<ssize_t>(bytes),
            "write");
    });
    check(::fdatasync(fd) == 0, "sync");
    ::close(fd);
  }
  void read(std::span<std::byte> into) {
    const int fd = ::open(path_.c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
    check(fd >= 0, "open");
    in_pieces(into.size(), [&](std::size_t at, std::size_t bytes) {
      check(::pread(fd, into.data() + at, bytes, static_cast<off_t>(at)) ==
                static_cast<ssize_t>(bytes),
            "read");
    });
    ::close(fd);
  }
  void remove() { ::unlink(path_.c_str()); }

 private:
  template <class Body>
  void in_pieces(std::size_t total, Body&& body) {
    std::atomic<std::size_t> next{0};
    std::vector<std::thread> threads;
    threads.reserve(threads_);
    for (unsigned i = 0; i < threads_; ++i) {
      threads.emplace_back([&] {
        for (std::size_t at; (at = next.fetch_add(kPieceBytes)) < total;) {
          body(at, std::min<std::size_t>(kPieceBytes, total - at));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const std::string path_;
  const unsigned threads_;
};

}  // namespace bench
