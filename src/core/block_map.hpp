// Which block of an image belongs to whom. Nothing of it is stored: it follows from the tables.
//
// A block is one page of the file. An *extent* is a run of kExtentBlocks blocks, the piece in
// which space is cleaned: wholly free extents are what keeps the writes of a commit in long runs.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "core/format.hpp"

namespace holdfast::core {

inline constexpr std::uint64_t kExtentBlocks = 32;
static_assert(kFirstBlock % kExtentBlocks == 0);

// How far a file grows beyond twice what it stores before pieces between other blocks are used.
inline constexpr std::uint64_t kGrowthSlack = 1024;

// Neighbouring blocks.
struct BlockRun {
  std::uint64_t block = 0;
  std::uint64_t count = 0;
};

// Memory: 4 bytes for a block that is or was owned, and 2 for each extent of the file.
//
// Invariants:
// - No block has two owners, and none that is owned or pending is handed out.
// - The current run holds free blocks only.
//
// Thread safety: allocate() from any thread; the rest while nothing else runs.
class BlockMap {
 public:
  // What a block is. Pages and segments are numbered from 0.
  using Owner = std::uint32_t;
  static constexpr Owner kFree = 0;
  static constexpr Owner kPending = 0xffffffff;  // handed out to a commit that is not in force
  static constexpr Owner page(std::uint64_t page) { return static_cast<Owner>(page + 1); }
  static constexpr Owner table(std::uint64_t segment) {
    return kTable | static_cast<Owner>(segment);
  }
  static constexpr bool is_page(Owner owner) { return owner != kFree && (owner & kTable) == 0; }
  static constexpr bool is_table(Owner owner) { return owner != kPending && (owner & kTable) != 0; }
  static constexpr std::uint64_t page_of(Owner owner) { return owner - 1; }
  static constexpr std::uint64_t segment_of(Owner owner) { return owner & ~kTable; }

  // A file of `end` blocks, all of them free.
  explicit BlockMap(std::uint64_t end);

  // Gives a block to an owner; false if it lies outside the file's blocks or has one already.
  [[nodiscard]] bool claim(std::uint64_t block, Owner owner);

  // Takes `count` free blocks, in as few runs as there is room for, and appends them to `runs`.
  // In this order: what is left of the current run, wholly free extents, new blocks at the end
  // while the file is not much larger than twice what is in force, pieces of other extents, new
  // blocks.
  void allocate(std::uint64_t count, std::vector<BlockRun>& runs);
  // Pieces of this extent are not handed out until give_back().
  void close(std::uint64_t extent);

  // The commit that took the block is in force.
  void keep(std::uint64_t block, Owner owner);
  // The commit in force does not name the block any more.
  void release(std::uint64_t block);
  // Frees what a commit took that never came into force; opens what was closed.
  void give_back();

  // Behind the last block: the file's length in pages.
  std::uint64_t end() const { return kFirstBlock + owner_.size(); }
  std::uint64_t in_force() const { return in_force_; }
  Owner owner(std::uint64_t block) const { return owner_[block - kFirstBlock]; }

  std::uint64_t extents() const { return used_.size(); }
  static std::uint64_t extent_of(std::uint64_t block) {
    return (block - kFirstBlock) / kExtentBlocks;
  }
  static std::uint64_t extent_block(std::uint64_t extent) {
    return kFirstBlock + extent * kExtentBlocks;
  }
  // Blocks of an extent that are not free.
  std::uint64_t used(std::uint64_t extent) const { return used_[extent]; }
  // The next allocate() goes on in this extent.
  bool is_current(std::uint64_t extent) const {
    return run_.count > 0 && extent_of(run_.block) == extent;
  }
  // Blocks that come in runs of an extent at least: in wholly free extents, and at the end before
  // the file is as long as it may be with so many blocks in force.
  std::uint64_t roomy(std::uint64_t in_force) const;

 private:
  static constexpr Owner kTable = Owner{1} << 31;

  // A long file that is nearly empty, as no one but a forger makes it, must not cost memory for
  // each of its blocks: what was never written to is zero and takes none.
  class Owners {
   public:
    explicit Owners(std::uint64_t blocks) { resize(blocks); }
    ~Owners();
    Owners(const Owners&) = delete;
    Owners& operator=(const Owners&) = delete;
    // New ones are kFree. Throws bad_alloc, and is then as it was. REQUIRES: no fewer than now.
    void resize(std::uint64_t blocks);
    std::uint64_t size() const { return blocks_; }
    Owner& operator[](std::uint64_t i) { return owners_[i]; }
    Owner operator[](std::uint64_t i) const { return owners_[i]; }

   private:
    Owner* owners_ = nullptr;
    std::uint64_t blocks_ = 0;
    std::uint64_t mapped_ = 0;  // bytes
  };

  BlockRun next_run(std::uint64_t wanted);
  BlockRun free_extents(std::uint64_t wanted);
  BlockRun extend(std::uint64_t wanted);
  BlockRun piece();

  mutable std::mutex mutex_;
  Owners owner_;                      // whole extents, from kFirstBlock on
  std::vector<std::uint8_t> used_;    // by extent
  std::vector<std::uint8_t> closed_;  // by extent
  std::uint64_t in_force_ = 0;
  std::uint64_t pending_ = 0;
  bool any_closed_ = false;
  BlockRun run_;  // the current one
  // No extent before this one is wholly free, no block before that one is free and may be taken,
  // but for the current run.
  std::uint64_t first_free_extent_ = 0;
  std::uint64_t first_piece_ = 0;
};

}  // namespace holdfast::core
