// The writes that a commit makes, recorded; and files as a crash in between would leave them.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/region_access.hpp"

namespace holdfast::test {

struct IoOperation {
  enum Kind { write, sync, resize } kind;
  std::uint64_t offset = 0;  // resize: the new size
  std::vector<std::byte> bytes;
};

// Sees every change of an image before it is made. A result other than 0 is the errno with which
// the change fails instead.
class IoTap {
 public:
  virtual ~IoTap() = default;
  virtual int on_write(std::uint64_t offset, const void* data, std::size_t bytes) = 0;
  virtual int on_sync() = 0;
  virtual int on_resize(std::uint64_t bytes) = 0;
};

// Makes regions whose image a tap can watch. Outlives them.
class TapPoint {
 public:
  Region create(const std::string& path, const RegionOptions& options) {
    return core::RegionAccess::create(path, options, around());
  }
  Region open(const std::string& path, const OpenOptions& options = {}) {
    return core::RegionAccess::open(path, options, around());
  }
  std::atomic<IoTap*> tap{nullptr};

 private:
  class Store : public core::FileStore {
   public:
    Store(core::UniqueFd fd, const std::string& path, TapPoint& point)
        : FileStore(std::move(fd), path), point_(point) {}

    // A tap sees every page as a write of its own.
    void write_parts(std::uint64_t offset, std::span<iovec> parts) override {
      IoTap* const tap = point_.tap;
      if (tap == nullptr) return FileStore::write_parts(offset, parts);
      for (const iovec& part : parts) {
        const auto* const data = static_cast<const std::byte*>(part.iov_base);
        for (std::size_t at = 0; at < part.iov_len; at += core::kPage) {
          const std::size_t bytes = std::min<std::size_t>(core::kPage, part.iov_len - at);
          check(tap->on_write(offset, data + at, bytes));
          iovec piece{const_cast<std::byte*>(data) + at, bytes};
          FileStore::write_parts(offset, {&piece, 1});
          offset += bytes;
        }
      }
    }
    void sync() override {
      if (IoTap* const tap = point_.tap) check(tap->on_sync());
      FileStore::sync();
    }
    void resize(std::uint64_t bytes) override {
      if (IoTap* const tap = point_.tap) check(tap->on_resize(bytes));
      FileStore::resize(bytes);
    }
    unsigned writers() const override { return point_.tap != nullptr ? 1 : FileStore::writers(); }

   private:
    void check(int error) const {
      if (error != 0) throw core::system_error(error, "write to", path());
    }
    TapPoint& point_;
  };

  core::Surroundings around() {
    core::Surroundings result;
    result.make_store = [this](core::UniqueFd fd, const std::string& path) {
      return std::make_unique<Store>(std::move(fd), path, *this);
    };
    return result;
  }
};

class IoRecorder : public IoTap {
 public:
  explicit IoRecorder(TapPoint& point) : point_(point) { point_.tap = this; }
  ~IoRecorder() override { point_.tap = nullptr; }

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

 private:
  TapPoint& point_;
};

// Fails the n-th change from now on, once.
class IoFailure : public IoTap {
 public:
  IoFailure(TapPoint& point, int after, int error_number)
      : point_(point), left_(after), error_(error_number) {
    point_.tap = this;
  }
  ~IoFailure() override { point_.tap = nullptr; }
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
  TapPoint& point_;
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
