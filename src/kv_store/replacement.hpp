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

// Returns the place.
__device__ inline Pair* store_in_table(const Table& kvs, const Replacement& mine) {
  Pair* const place = &kvs.buckets[mine.change.bucket].ways[mine.change.way];
  detail::kv_store_pair(place, mine.after);
  return place;
}

// Of a change that is in the table, in the copy that kernels read.
__device__ inline void store_in_copy(const Table& kvs, const Replacement& done) {
  if (kvs.copy == nullptr) return;
  detail::kv_store_pair(&kvs.copy[done.change.bucket].ways[done.change.way], done.after);
}

}  // namespace holdfast::kv
