// A folder on disk whose operations fail when they are told to; any number of threads.
#pragma once

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "history/folder.hpp"

namespace holdfast::test {

enum class Fault {
  none,
  error,           // nothing happens, and `error` is the answer
  short_transfer,  // a part is moved, and the count says so
  torn,            // a part is written, and `error` is the answer
  slow,
  exception,  // of no kind that is known
};

// What befalls the operations on a folder, numbered from 0 by their beginning.
struct Faults {
  std::atomic<Fault> fault{Fault::none};
  std::atomic<int> error{EIO};
  std::atomic<std::uint64_t> first{0}, times{~std::uint64_t{0}};
  std::atomic<std::uint64_t> operations{0}, struck{0};
  std::atomic<std::uint64_t> capacity{~std::uint64_t{0}};  // bytes of all files: ENOSPC

  Fault begin() {
    const std::uint64_t number = operations++;
    if (fault == Fault::none || number < first || number - first >= times) return Fault::none;
    ++struck;
    if (fault == Fault::slow) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    if (fault == Fault::exception) throw 42;
    return fault;
  }
  int error_of(Fault met) const { return met == Fault::error ? error.load() : 0; }
};

class FaultyFolder : public history::Folder {
 public:
  FaultyFolder(std::unique_ptr<Folder> inner, std::shared_ptr<Faults> faults)
      : inner_(std::move(inner)), faults_(std::move(faults)) {}

  Opened open(const std::string& name) override {
    if (const int error = faults_->error_of(faults_->begin())) return {nullptr, error};
    return wrap(inner_->open(name));
  }
  Opened create(const std::string& name) override {
    if (const int error = faults_->error_of(faults_->begin())) return {nullptr, error};
    return wrap(inner_->create(name));
  }
  int look_for(const std::string& name) override {
    const int error = faults_->error_of(faults_->begin());
    return error != 0 ? error : inner_->look_for(name);
  }
  int rename(const std::string& from, const std::string& to) override {
    const int error = faults_->error_of(faults_->begin());
    return error != 0 ? error : inner_->rename(from, to);
  }
  int unlink(const std::string& name) override {
    const int error = faults_->error_of(faults_->begin());
    return error != 0 ? error : inner_->unlink(name);
  }
  int sync() override {
    const int error = faults_->error_of(faults_->begin());
    return error != 0 ? error : inner_->sync();
  }
  int list(std::vector<std::string>& names) override {
    const int error = faults_->error_of(faults_->begin());
    return error != 0 ? error : inner_->list(names);
  }
  void lock(const std::string& name) override { inner_->lock(name); }
  const std::string& path() const override { return inner_->path(); }

 private:
  class File : public history::FolderFile {
   public:
    File(FaultyFolder& owner, std::unique_ptr<history::FolderFile> inner)
        : folder_(owner.path()), faults_(owner.faults_), inner_(std::move(inner)) {}

    std::int64_t read(void* to, std::size_t bytes, std::uint64_t offset) override {
      const Fault met = faults_->begin();
      if (met == Fault::error || met == Fault::torn) return -faults_->error.load();
      if (met == Fault::short_transfer) bytes = (bytes + 1) / 2;
      return inner_->read(to, bytes, offset);
    }
    std::int64_t write(const void* from, std::size_t bytes, std::uint64_t offset) override {
      const Fault met = faults_->begin();
      if (met == Fault::error) return -faults_->error.load();
      if (met == Fault::short_transfer || met == Fault::torn) bytes = (bytes + 1) / 2;
      const std::int64_t moved = inner_->write(from, bytes, offset);
      return met == Fault::torn ? -faults_->error.load() : moved;
    }
    int reserve(std::uint64_t bytes) override {
      if (const int error = faults_->error_of(faults_->begin())) return error;
      static std::mutex one_at_a_time;
      const std::lock_guard lock(one_at_a_time);
      std::uint64_t used = 0;
      for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
        std::error_code gone;
        const std::uint64_t size = entry.file_size(gone);
        if (!gone) used += size;
      }
      return used + bytes > faults_->capacity ? ENOSPC : inner_->reserve(bytes);
    }
    std::int64_t size() override {
      const int error = faults_->error_of(faults_->begin());
      return error != 0 ? -error : inner_->size();
    }
    int sync() override {
      const int error = faults_->error_of(faults_->begin());
      return error != 0 ? error : inner_->sync();
    }

   private:
    const std::string folder_;
    std::shared_ptr<Faults> faults_;
    std::unique_ptr<history::FolderFile> inner_;
  };
  Opened wrap(Opened opened) {
    if (opened.file) opened.file = std::make_unique<File>(*this, std::move(opened.file));
    return opened;
  }

  std::unique_ptr<Folder> inner_;
  std::shared_ptr<Faults> faults_;
};

}  // namespace holdfast::test
