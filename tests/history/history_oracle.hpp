// What the tests of histories that die share: arrays whose contents follow from an id, and a folder
// in which the process kills itself.
#pragma once

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "history/folder.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::test {

// An array of the CPU backend, where the host may touch device memory. Its size, too, follows from
// the id, which stands in front.
class Field {
 public:
  static constexpr std::uint64_t kMost = 48 << 10;  // bytes
  Field() : memory_(kMost / 8) {}

  std::byte* data() const { return reinterpret_cast<std::byte*>(memory_.data()); }
  std::uint64_t id() const { return memory_.data()[0]; }
  // Returns the size. REQUIRES: no queued work uses it.
  std::uint64_t fill(std::uint64_t id) {
    const std::uint64_t bytes = bytes_of(id);
    for (std::uint64_t i = 0; i < bytes / 8; ++i) memory_.data()[i] = word(id, i);
    return bytes;
  }
  bool holds(std::uint64_t id, std::uint64_t bytes) const {
    if (bytes != bytes_of(id)) return false;
    for (std::uint64_t i = 0; i < bytes / 8; ++i) {
      if (memory_.data()[i] != word(id, i)) return false;
    }
    return true;
  }
  static std::uint64_t bytes_of(std::uint64_t id) { return 8 + mix(id) % (kMost / 8) * 8; }

 private:
  static std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15u;
    return (x ^ (x >> 29)) >> 3;
  }
  static std::uint64_t word(std::uint64_t id, std::uint64_t i) {
    return i == 0 ? id : mix(id * 1048583u + i);
  }
  DeviceBuffer<std::uint64_t> memory_;
};

// Where a process kills itself.
enum class Deadly : std::uint8_t {
  nowhere,
  staging,  // among the copies of a save: by whoever saves
  reserve,
  write,
  sync_file,
  before_rename,
  behind_rename,
  sync,
  before_unlink,
  behind_unlink,
  read,
  list,  // while it opens the history
};
inline constexpr unsigned kDeadlies = 12;
inline Deadly die_here = Deadly::nowhere;

// The folder of another, in which the operation number `number` of the kind `die_here` is the last.
class DeadlyFolder : public history::Folder {
 public:
  DeadlyFolder(std::unique_ptr<Folder> inner, std::uint64_t number)
      : inner_(std::move(inner)), left_(std::make_shared<std::atomic<std::uint64_t>>(number)) {}

  Opened open(const std::string& name) override { return wrap(inner_->open(name)); }
  Opened create(const std::string& name) override { return wrap(inner_->create(name)); }
  int look_for(const std::string& name) override { return inner_->look_for(name); }
  int rename(const std::string& from, const std::string& to) override {
    pass(Deadly::before_rename, *left_);
    const int error = inner_->rename(from, to);
    pass(Deadly::behind_rename, *left_);
    return error;
  }
  int unlink(const std::string& name) override {
    pass(Deadly::before_unlink, *left_);
    const int error = inner_->unlink(name);
    pass(Deadly::behind_unlink, *left_);
    return error;
  }
  int sync() override {
    pass(Deadly::sync, *left_);
    return inner_->sync();
  }
  int list(std::vector<std::string>& names) override {
    pass(Deadly::list, *left_);
    return inner_->list(names);
  }
  void lock(const std::string& name) override { inner_->lock(name); }
  const std::string& path() const override { return inner_->path(); }

 private:
  using Left = std::atomic<std::uint64_t>;
  static void pass(Deadly here, Left& left) {
    if (die_here == here && left-- == 0) ::raise(SIGKILL);
  }
  class File : public history::FolderFile {
   public:
    File(std::unique_ptr<history::FolderFile> inner, std::shared_ptr<Left> left)
        : inner_(std::move(inner)), left_(std::move(left)) {}
    std::int64_t read(void* to, std::size_t bytes, std::uint64_t offset) override {
      pass(Deadly::read, *left_);
      return inner_->read(to, bytes, offset);
    }
    std::int64_t write(const void* from, std::size_t bytes, std::uint64_t offset) override {
      if (die_here == Deadly::write && *left_ == 0) {  // in the middle
        inner_->write(from, std::min<std::size_t>(bytes, 4096), offset);
      }
      pass(Deadly::write, *left_);
      return inner_->write(from, bytes, offset);
    }
    int reserve(std::uint64_t bytes) override {
      pass(Deadly::reserve, *left_);
      return inner_->reserve(bytes);
    }
    std::int64_t size() override { return inner_->size(); }
    int sync() override {
      pass(Deadly::sync_file, *left_);
      return inner_->sync();
    }

   private:
    std::unique_ptr<history::FolderFile> inner_;
    std::shared_ptr<Left> left_;
  };
  Opened wrap(Opened opened) {
    if (opened.file) opened.file = std::make_unique<File>(std::move(opened.file), left_);
    return opened;
  }

  std::unique_ptr<Folder> inner_;
  std::shared_ptr<Left> left_;
};

}  // namespace holdfast::test
