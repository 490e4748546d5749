// Memory for the objects of a memory server, within a budget. What was given back is given out
// again: checkpoints of a history are of one size mostly, and memory that was touched before is
// faster.
//
// Thread safety: any number of threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <span>
#include <utility>

#include "core/files.hpp"
#include "history/memory_wire.hpp"

namespace holdfast::history {

class MemoryPieces : public std::enable_shared_from_this<MemoryPieces> {
 public:
  explicit MemoryPieces(std::uint64_t budget) : budget_(budget) {}

  class Piece {
   public:
    Piece(std::shared_ptr<MemoryPieces> of, std::unique_ptr<std::byte[]> data,
          std::uint64_t capacity, std::uint64_t bytes)
        : of_(std::move(of)), data_(std::move(data)), capacity_(capacity), bytes_(bytes) {}
    ~Piece() { of_->give_back(std::move(data_), capacity_); }
    Piece(const Piece&) = delete;
    Piece& operator=(const Piece&) = delete;
    std::span<std::byte> bytes() const { return {data_.get(), bytes_}; }

   private:
    const std::shared_ptr<MemoryPieces> of_;
    std::unique_ptr<std::byte[]> data_;
    const std::uint64_t capacity_, bytes_;
  };

  // Throws no_space, no_memory.
  std::unique_ptr<Piece> take(std::uint64_t bytes) {
    std::unique_lock lock(mutex_);
    if (bytes > budget_ || used_ + bytes + kOverhead > budget_) {
      throw Error(Errc::no_space,
                  detail::concat("the memory server has ", core::human_bytes(budget_),
                                 ", of which ", core::human_bytes(used_),
                                 " are taken: no room for ", core::human_bytes(bytes),
                                 "; give it more, or keep fewer checkpoints there"));
    }
    const auto found = free_.lower_bound(bytes);
    if (found != free_.end() && found->first <= bytes + bytes / 8 &&
        used_ + found->first + kOverhead <= budget_) {
      auto data = std::move(found->second);
      const std::uint64_t capacity = found->first;
      free_.erase(found);
      kept_ -= capacity;
      used_ += capacity + kOverhead;
      lock.unlock();
      return make(std::move(data), capacity, bytes);
    }
    used_ += bytes + kOverhead;
    while (!free_.empty() && used_ + kept_ > budget_) drop(std::prev(free_.end()));
    lock.unlock();
    return make(nullptr, bytes, bytes);
  }
  std::uint64_t used() const {
    const std::lock_guard lock(mutex_);
    return used_;
  }

 private:
  using Free = std::multimap<std::uint64_t, std::unique_ptr<std::byte[]>>;

  // Of memory that was there before, or is taken now. REQUIRES: used_ counts it.
  std::unique_ptr<Piece> make(std::unique_ptr<std::byte[]> data, std::uint64_t capacity,
                              std::uint64_t bytes) {
    try {
      if (!data) data = std::make_unique_for_overwrite<std::byte[]>(capacity);
      return std::make_unique<Piece>(shared_from_this(), std::move(data), capacity, bytes);
    } catch (const std::bad_alloc&) {
      const std::lock_guard lock(mutex_);
      used_ -= capacity + kOverhead;
      throw Error(Errc::no_memory,
                  detail::concat("the memory server's machine has no ", core::human_bytes(bytes),
                                 " left: give it fewer"));
    }
  }
  void give_back(std::unique_ptr<std::byte[]> data, std::uint64_t capacity) noexcept {
    const std::lock_guard lock(mutex_);
    used_ -= capacity + kOverhead;
    if (capacity < wire::kPart || used_ + kept_ + capacity > budget_) return;
    try {
      free_.emplace(capacity, std::move(data));
      kept_ += capacity;
    } catch (...) {  // no memory for the note of it: then it goes
    }
  }
  void drop(Free::iterator entry) {
    kept_ -= entry->first;
    free_.erase(entry);
  }

  // An object without bytes takes memory, too: its key and what leads to it.
  static constexpr std::uint64_t kOverhead = 1024;
  const std::uint64_t budget_;
  mutable std::mutex mutex_;
  std::uint64_t used_ = 0, kept_ = 0;
  Free free_;
};

}  // namespace holdfast::history
