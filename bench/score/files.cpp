#include "files.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "holdfast/error.hpp"

namespace score {

namespace {

constexpr std::uint64_t kChunk = 4u << 20;
constexpr unsigned kThreads = 4;

[[noreturn]] void fail(const std::string& path, const char* what) {
  throw holdfast::Error(holdfast::Errc::io, path + ": " + what + ": " + std::strerror(errno));
}

}  // namespace

DirectFile::DirectFile(std::string path) : path_(std::move(path)) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC;
  fd_ = ::open(path_.c_str(), kFlags | O_DIRECT, 0600);
  if (fd_ < 0 && errno == EINVAL) fd_ = ::open(path_.c_str(), kFlags, 0600);
  if (fd_ < 0) fail(path_, "open");
}

DirectFile::~DirectFile() { ::close(fd_); }

void DirectFile::sync() {
  if (::fdatasync(fd_) != 0) fail(path_, "fdatasync");
}

void DirectFile::move_piece(const Piece& piece, bool writes) {
  for (std::uint64_t done = 0; done < piece.bytes;) {
    const auto offset = static_cast<off_t>(piece.offset + done);
    const ssize_t moved = writes ? ::pwrite(fd_, piece.memory + done, piece.bytes - done, offset)
                                 : ::pread(fd_, piece.memory + done, piece.bytes - done, offset);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) fail(path_, writes ? "write" : "read");
    if (moved == 0) {
      errno = EIO;
      fail(path_, "ends early");
    }
    done += static_cast<std::uint64_t>(moved);
  }
}

void DirectFile::move(const std::vector<Piece>& pieces, bool writes) {
  std::vector<Piece> chunks;
  for (const Piece& piece : pieces) {
    for (std::uint64_t at = 0; at < piece.bytes; at += kChunk) {
      chunks.push_back({piece.memory + at, std::min(kChunk, piece.bytes - at), piece.offset + at});
    }
  }
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr error;
  const auto work = [&] {
    try {
      for (std::size_t i = next++; i < chunks.size(); i = next++) move_piece(chunks[i], writes);
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
      next = chunks.size();
    }
  };
  std::vector<std::thread> threads;
  std::uint64_t bytes = 0;
  for (const Piece& chunk : chunks) bytes += chunk.bytes;
  // A thread costs what a MiB does.
  const std::size_t others =
      std::min<std::size_t>({chunks.size(), kThreads, bytes / (1u << 20) + 1});
  for (std::size_t i = 1; i < others; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
}

}  // namespace score
