// The writes that a commit makes, recorded; and files as a crash in between would leave them.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "core/image_io.hpp"

namespace holdfast::test {

struct IoOperation {
  enum Kind { write, sync, resize } kind;
  std::uint64_t offset = 0;  // resize: the new size
  std::vector<std::byte> bytes;
};

class IoRecorder : public core::IoTap {
 public:
  IoRecorder() { core::ImageIo::tap = this; }
  ~IoRecorder() override { core::ImageIo::tap = nullptr; }

  int on_write(std::uint64_t offset, const void* data, std::size_t bytes) override {
    const auto* from = static_cast<const std::byte*>(data);
    operations.push_back({IoOperation::write, offset, {from, from + bytes}});
    return 0;
  }
  int on_sync() override {
    operations.push_back({IoOperation::sync, 0, {}});
    return 0;
  }
  int on_resize(std::uint64_t bytes) override {
    operations.push_back({IoOperation::resize, bytes, {}});
    return 0;
  }

  std::vector<IoOperation> operations;
};

// Fails the n-th change from now on, once.
class IoFailure : public core::IoTap {
 public:
  IoFailure(int after, int error_number) : left_(after), error_(error_number) {
    core::ImageIo::tap = this;
  }
  ~IoFailure() override { core::ImageIo::tap = nullptr; }
  int on_write(std::uint64_t, const void*, std::size_t) override { return step(); }
  int on_sync() override { return step(); }
  int on_resize(std::uint64_t) override { return step(); }
  bool failed() const { return failed_; }

 private:
  int step() {
    if (failed_ || left_-- > 0) return 0;
    failed_ = true;
    return error_;
  }
  int left_;
  int error_;
  bool failed_ = false;
};

// A file to which parts of recorded operations are applied and taken back.
class FileUnderTest {
 public:
  explicit FileUnderTest(const std::string& path) : fd_(::open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    if (fd_ < 0) throw std::runtime_error("cannot open " + path);
  }
  ~FileUnderTest() { ::close(fd_); }
  FileUnderTest(const FileUnderTest&) = delete;
  FileUnderTest& operator=(const FileUnderTest&) = delete;

  std::uint64_t size() const {
    struct stat info {};
    ::fstat(fd_, &info);
    return static_cast<std::uint64_t>(info.st_size);
  }
  void resize(std::uint64_t bytes) {
    if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) throw std::runtime_error("ftruncate");
  }
  void write(std::uint64_t offset, const void* data, std::size_t bytes) {
    if (::pwrite(fd_, data, bytes, static_cast<off_t>(offset)) != static_cast<ssize_t>(bytes)) {
      throw std::runtime_error("pwrite");
    }
  }
  std::vector<std::byte> read(std::uint64_t offset, std::size_t bytes) const {
    std::vector<std::byte> result(bytes);
    const ssize_t got = ::pread(fd_, result.data(), bytes, static_cast<off_t>(offset));
    result.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
    return result;
  }
  void apply(const IoOperation& operation) {
    if (operation.kind == IoOperation::resize) resize(operation.offset);
    if (operation.kind == IoOperation::write) {
      write(operation.offset, operation.bytes.data(), operation.bytes.size());
    }
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace holdfast::test
