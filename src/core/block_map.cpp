#include "core/block_map.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cassert>
#include <new>

namespace holdfast::core {

namespace {

constexpr std::uint64_t whole_extents(std::uint64_t blocks) {
  return (blocks + kExtentBlocks - 1) / kExtentBlocks * kExtentBlocks;
}

// The length up to which a file grows before pieces are used, its first blocks not counted.
constexpr std::uint64_t bound(std::uint64_t in_force) { return 2 * in_force + kGrowthSlack; }

}  // namespace

BlockMap::Owners::~Owners() {
  if (mapped_ > 0) ::munmap(owners_, mapped_);
}

void BlockMap::Owners::resize(std::uint64_t blocks) {
  const std::uint64_t bytes = pages_of(blocks * sizeof(Owner)) * kPage;
  if (bytes > mapped_) {
    void* const memory = mapped_ == 0 ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
                                      : ::mremap(owners_, mapped_, bytes, MREMAP_MAYMOVE);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    owners_ = static_cast<Owner*>(memory);
    mapped_ = bytes;
  }
  blocks_ = blocks;
}

BlockMap::BlockMap(std::uint64_t end)
    : owner_(whole_extents(end - kFirstBlock)),
      used_(owner_.size() / kExtentBlocks, 0),
      closed_(used_.size(), 0) {}

bool BlockMap::claim(std::uint64_t block, Owner owner) {
  if (block < kFirstBlock || block >= end() || owner_[block - kFirstBlock] != kFree) return false;
  owner_[block - kFirstBlock] = owner;
  ++used_[extent_of(block)];
  ++in_force_;
  return true;
}

void BlockMap::allocate(std::uint64_t count, std::vector<BlockRun>& runs) {
  const std::lock_guard lock(mutex_);
  while (count > 0) {
    if (run_.count == 0) run_ = next_run(count);
    const std::uint64_t taken = std::min(count, run_.count);
    for (std::uint64_t block = run_.block; block < run_.block + taken; ++block) {
      assert(owner(block) == kFree);
      owner_[block - kFirstBlock] = kPending;
      ++used_[extent_of(block)];
    }
    pending_ += taken;
    if (!runs.empty() && runs.back().block + runs.back().count == run_.block) {
      runs.back().count += taken;
    } else {
      runs.push_back({run_.block, taken});
    }
    run_ = {run_.block + taken, run_.count - taken};
    count -= taken;
  }
}

BlockRun BlockMap::next_run(std::uint64_t wanted) {
  if (const BlockRun run = free_extents(wanted); run.count > 0) return run;
  if (owner_.size() < bound(in_force_)) {
    return extend(std::min(wanted, bound(in_force_) - owner_.size()));
  }
  if (const BlockRun run = piece(); run.count > 0) return run;
  return extend(wanted);
}

BlockRun BlockMap::free_extents(std::uint64_t wanted) {
  std::uint64_t& first = first_free_extent_;
  while (first < extents() && used_[first] != 0) ++first;
  BlockRun run{extent_block(first), 0};
  for (; first < extents() && used_[first] == 0 && run.count < wanted; ++first) {
    run.count += kExtentBlocks;
  }
  return run;
}

BlockRun BlockMap::extend(std::uint64_t wanted) {
  const BlockRun run{end(), whole_extents(wanted)};
  const std::uint64_t extents_then = extents() + run.count / kExtentBlocks;
  for (auto* const by_extent : {&used_, &closed_}) {  // so that only the first step can fail
    if (by_extent->capacity() < extents_then) by_extent->reserve(2 * extents_then);
  }
  owner_.resize(owner_.size() + run.count);
  used_.resize(owner_.size() / kExtentBlocks, 0);
  closed_.resize(used_.size(), 0);
  first_free_extent_ = extents();
  return run;
}

BlockRun BlockMap::piece() {
  std::uint64_t& first = first_piece_;
  while (first < owner_.size()) {
    const std::uint64_t extent = first / kExtentBlocks;
    if (used_[extent] == kExtentBlocks || closed_[extent] != 0) {
      first = (extent + 1) * kExtentBlocks;
    } else if (owner_[first] != kFree) {
      ++first;
    } else {
      BlockRun run{kFirstBlock + first, 0};
      const std::uint64_t end = (extent + 1) * kExtentBlocks;
      for (; first < end && owner_[first] == kFree; ++first) ++run.count;
      return run;
    }
  }
  return {};
}

void BlockMap::close(std::uint64_t extent) {
  closed_[extent] = 1;
  any_closed_ = true;
}

void BlockMap::keep(std::uint64_t block, Owner owner) {
  assert(this->owner(block) == kPending);
  owner_[block - kFirstBlock] = owner;
  --pending_;
  ++in_force_;
}

void BlockMap::release(std::uint64_t block) {
  assert(owner(block) != kFree && owner(block) != kPending);
  owner_[block - kFirstBlock] = kFree;
  --in_force_;
  const std::uint64_t extent = extent_of(block);
  if (--used_[extent] == 0) first_free_extent_ = std::min(first_free_extent_, extent);
  first_piece_ = std::min(first_piece_, block - kFirstBlock);
}

void BlockMap::give_back() {
  if (any_closed_) {
    std::fill(closed_.begin(), closed_.end(), 0);
    any_closed_ = false;
    first_piece_ = 0;
  }
  if (pending_ == 0) return;
  for (std::uint64_t block = kFirstBlock; block < end(); ++block) {
    if (owner(block) != kPending) continue;
    owner_[block - kFirstBlock] = kFree;
    --used_[extent_of(block)];
  }
  pending_ = 0;
  // What is left of the current run may now be part of a free extent: it is found again.
  run_ = {};
  first_free_extent_ = 0;
  first_piece_ = 0;
}

std::uint64_t BlockMap::roomy(std::uint64_t in_force) const {
  std::uint64_t blocks = run_.count;
  for (const std::uint8_t used : used_) blocks += used == 0 ? kExtentBlocks : 0;
  const std::uint64_t length = std::max(bound(in_force), owner_.size());
  return blocks + (length - owner_.size());
}

}  // namespace holdfast::core
