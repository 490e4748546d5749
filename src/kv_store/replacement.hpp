// What each thread of a batch stores, once choose_changes() has found what changes. For the store's
// own kernels, and for those that a benchmark sets beside them.
#pragma once

#include "kv_store/table.hpp"

namespace holdfast::kv {

// What this thread is to store, if anything.
struct Replacement {
  Change change;
  Pair after{0, 0};
  bool needed = false;
};

__device__ inline std::uint32_t position_of_thread() {
  return blockIdx.x * blockDim.x + threadIdx.x;
}

__device__ inline Replacement replacement_of_thread(const Batch& batch, const Outcome* outcome) {
  Replacement mine;
  const std::uint32_t position = position_of_thread();
  if (outcome->reserved_keys != 0 || position >= batch.count) return mine;
  mine.change = batch.changes[position];
  if (mine.change.bucket == kNone) return mine;
  const std::uint32_t op = mine.change.op;
  if (!batch.erases(op)) mine.after = Pair{~batch.keys[op], batch.values[op]};
  const Pair& before = mine.change.before;
  mine.needed = mine.after.key != before.key || mine.after.value != before.value;
  return mine;
}

// Stores it; with a copy of the table, where nothing else in its line changes, the whole line.
// Returns whether this thread has to persist(). REQUIRES: blocks of whole warps, all of whose
// threads call it.
__device__ inline bool store_in_table(const Table& kvs, const Replacement& mine) {
  const auto store = [](Pair* place, const Pair& pair) { detail::kv_store_pair(place, pair); };
  if (kvs.copy == nullptr) {
    if (mine.needed) store(kvs.place_of(mine.change), mine.after);
    return mine.needed;
  }
  const LineChange change = !mine.needed        ? LineChange::none
                            : mine.change.alone ? LineChange::line
                                                : LineChange::cell;
  const std::uint64_t at = std::uint64_t{mine.change.bucket} * kWays + mine.change.way;
  return store_by_lines(kvs.buckets->ways, kvs.copy->ways, change, at, mine.after, store);
}

// Of a change that is in the table, in the copy that kernels read.
__device__ inline void store_in_copy(const Table& kvs, const Replacement& done) {
  if (kvs.copy == nullptr) return;
  detail::kv_store_pair(&kvs.copy[done.change.bucket].ways[done.change.way], done.after);
}

}  // namespace holdfast::kv
