// The space of one cache tier: a contiguous buffer, allocated and pinned once, cut into fragments
// that hold a checkpoint each or nothing (a gap).
//
// Interface: which fragments there are; one checkpoint put in the place of a run of neighbours;
// one erased. Which run is eviction.hpp's choice.
//
// Source: SCORE (HPDC '23), sections 4.1.4 and 4.1.5. The paper's table also holds when a
// checkpoint can be evicted; that changes by itself, so here it is asked for at every decision
// (eviction.hpp).
//
// Tested: against an array with an owner for every unit of the buffer, by random calls; what a
// fragment's neighbours become, by hand (tests/history/allocation_table_test.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "history/step_store.hpp"

namespace holdfast::history {

inline constexpr Step kGap = ~Step{0};  // a fragment that holds no checkpoint

// Bytes of a tier's buffer.
struct Fragment {
  std::uint64_t offset;
  std::uint64_t bytes;
  Step step;
  std::uint64_t note = 0;  // its user's, of the checkpoint

  bool operator==(const Fragment&) const = default;
};

// Where a gap goes that a new checkpoint leaves of its window.
enum class Rest { behind, before };

// A value: copies are independent, and the same calls give the same table.
//
// Invariants:
// - The fragments are in the order of their offsets and cover the buffer, with no hole.
// - None is empty; offsets and sizes are multiples of the alignment.
// - No two gaps are neighbours, and no step has two fragments.
//
// Thread safety: none; its user has a lock.
class AllocationTable {
 public:
  // One gap. What does not fill a unit of `alignment` at the buffer's end is not used. Throws
  // invalid_argument: an alignment that is no power of two, a buffer without room for a unit.
  AllocationTable(std::uint64_t capacity, std::uint64_t alignment);

  // Valid until place() or erase().
  std::span<const Fragment> fragments() const { return fragments_; }
  // What can be used of the buffer: bytes, a multiple of the alignment.
  std::uint64_t capacity() const { return capacity_; }
  // Bytes of the fragments that hold a checkpoint.
  std::uint64_t used() const { return used_; }
  // What a checkpoint of `bytes` takes: a unit at least. The largest number, which fits into no
  // buffer, where the multiple is too large to be told.
  std::uint64_t rounded(std::uint64_t bytes) const;

  // Puts a checkpoint in the place of fragments [first, last) and returns its offset; those that
  // held a checkpoint are forgotten. What is left becomes a gap on the side that `rest` says,
  // merged with a gap that is there. The note is 0. REQUIRES: first < last <= fragments().size();
  // the window has rounded(bytes); step is not kGap, and not in the table unless in the window.
  // O(N): what follows moves up. Throws bad_alloc, and changes nothing then.
  std::uint64_t place(std::size_t first, std::size_t last, Step step, std::uint64_t bytes,
                      Rest rest = Rest::behind);

  // Puts a checkpoint at an offset, as one that was found there. False, and nothing changes, if
  // that is no multiple of the alignment, or not all of it is a gap. REQUIRES: step is not kGap,
  // and not in the table. O(N).
  bool place_at(std::uint64_t offset, Step step, std::uint64_t bytes);

  // The checkpoint's fragment becomes a gap, merged with its neighbours; false if there is none.
  // O(N).
  bool erase(Step step);
  // The same for the checkpoint at this offset. O(N): what follows moves down.
  bool erase_at(std::uint64_t offset);
  // Keeps `note` with the checkpoint at this offset. REQUIRES: there is one. O(log N).
  void set_note(std::uint64_t offset, std::uint64_t note);

  // Null if there is none. Valid until place() or erase(). O(N).
  const Fragment* find(Step step) const;
  // The same for the checkpoint at this offset. O(log N).
  const Fragment* find_at(std::uint64_t offset) const;

  // Whether the invariants hold. O(N log N): for tests and assertions.
  bool valid() const;

  bool operator==(const AllocationTable&) const = default;

 private:
  bool gap_at(std::size_t index) const {
    return index < fragments_.size() && fragments_[index].step == kGap;
  }

  std::uint64_t alignment_;
  std::uint64_t capacity_;
  std::uint64_t used_ = 0;
  std::vector<Fragment> fragments_;
};

}  // namespace holdfast::history
