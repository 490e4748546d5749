// What a batch finds of its keys, and counts.
#pragma once

#include "kv_store/log/batch.hpp"
#include "kv_store/log/commit.hpp"

namespace holdfast::kv::log {

__device__ inline bool is_last_of_key(const Batch& batch, std::uint32_t op) {
  return static_cast<std::uint32_t>(seen(batch.claims[batch.claim_of[op]])) == op + 1;
}

struct Tally {
  unsigned inserted = 0;
  unsigned updated = 0;
  unsigned removed = 0;
  unsigned revived = 0;
  unsigned lost = 0;
  unsigned long long digest = 0;
};

// REQUIRES: all threads of the block call.
__device__ inline void add_up(const Tally& tally, Outcome* outcome) {
  __shared__ unsigned sums[5];
  __shared__ unsigned long long digest;
  if (threadIdx.x < 5) sums[threadIdx.x] = 0;
  if (threadIdx.x == 0) digest = 0;
  __syncthreads();
  if (tally.inserted) atomicAdd(&sums[0], tally.inserted);
  if (tally.updated) atomicAdd(&sums[1], tally.updated);
  if (tally.removed) atomicAdd(&sums[2], tally.removed);
  if (tally.revived) atomicAdd(&sums[3], tally.revived);
  if (tally.lost) atomicAdd(&sums[4], tally.lost);
  if (tally.digest) atomicAdd(&digest, tally.digest);
  __syncthreads();
  unsigned long long* const totals[5] = {&outcome->inserted, &outcome->updated, &outcome->removed,
                                         &outcome->revived, &outcome->lost};
  if (threadIdx.x < 5 && sums[threadIdx.x] != 0) {
    atomicAdd(totals[threadIdx.x], static_cast<unsigned long long>(sums[threadIdx.x]));
  }
  if (threadIdx.x == 0 && digest != 0) atomicAdd(&outcome->digest, digest);
}

// Notes where the key of an operation, the last of its key, was found.
template <class Form>
__device__ Tally note_place(const Form& index, const Batch& batch, std::uint32_t op,
                            const Place& place) {
  Tally tally;
  if (place.slot == kNone) {
    batch.slots[op] = kNone;
    tally.lost = batch.erases() ? 0 : 1;
    return tally;
  }
  const std::uint64_t key = ~batch.keys[op];
  batch.slots[op] = place.slot | (place.present ? kPresentBit : 0);
  if (place.present) tally.digest -= pair_digest(key, place.value);
  if (batch.erases()) {
    tally.removed = place.present;
    return tally;
  }
  tally.digest += pair_digest(key, batch.values[op]);
  tally.updated = place.present;
  tally.inserted = !place.present;
  // A tombstone that was dropped has left the key its slot at most.
  tally.revived = place.erased && (index.where_of(place.slot) & ~kErasedBit) != 0;
  return tally;
}

template <class Form>
__device__ Tally look(const Form& index, const Batch& batch, std::uint32_t op) {
  if (!is_last_of_key(batch, op)) {
    batch.slots[op] = kNone;
    return {};
  }
  return note_place(index, batch, op, find_place(index, ~batch.keys[op]));
}

}  // namespace holdfast::kv::log
