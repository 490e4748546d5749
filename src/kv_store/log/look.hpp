// What a batch finds of its keys, and counts.
#pragma once

#include "kv_store/log/batch.hpp"
#include "kv_store/log/block_sum.hpp"
#include "kv_store/log/commit.hpp"

namespace holdfast::kv::log {

__device__ inline bool is_last_of_key(const Batch& batch, std::uint32_t op) {
  return is_last_claim(batch.claims, batch.claim_of[op], op);
}

struct Tally {
  unsigned inserted = 0;
  unsigned updated = 0;
  unsigned removed = 0;
  unsigned revived = 0;
  unsigned lost = 0;
  unsigned fresh = 0;  // slots that were empty and are not any more
  unsigned long long digest = 0;
};

// REQUIRES: all threads of the block call.
__device__ inline void add_up(const Tally& tally, const Batch& batch, Outcome* outcome) {
  constexpr unsigned kBits = 12;
  static_assert(kSmallBatch < 1u << kBits && kBlock < 1u << kBits, "five counts are in one word");
  const unsigned mine[5] = {tally.inserted, tally.updated + tally.removed, tally.revived,
                            tally.lost, tally.fresh};
  unsigned long long counts = 0;
  for (unsigned i = 0; i < 5; ++i) counts |= static_cast<unsigned long long>(mine[i]) << i * kBits;
  counts = block_sum(counts);
  const unsigned long long digest = block_sum(tally.digest);
  const unsigned long long removed = batch.mixed() ? block_sum(tally.removed) : 0;
  if (threadIdx.x != 0) return;
  if (removed != 0) {
    atomicAdd(&outcome->removed, removed);
    counts -= removed << kBits;
  }
  unsigned long long* const totals[5] = {&outcome->inserted,
                                         batch.erases() ? &outcome->removed : &outcome->updated,
                                         &outcome->revived, &outcome->lost, &outcome->slots};
  for (unsigned i = 0; i < 5; ++i) {
    const unsigned long long count = counts >> i * kBits & ((1u << kBits) - 1);
    if (count != 0) atomicAdd(totals[i], count);
  }
  if (digest != 0) atomicAdd(&outcome->digest, digest);
}

// Where a key was found, as one word: a slot, with kPresentBit if the key is there; or kNone.
__device__ inline std::uint32_t found_at(const Place& place) {
  return place.slot == kNone ? kNone : place.slot | (place.present ? kPresentBit : 0);
}

// What the last operation of a key does to the counts, and to the digest but for the value that it
// sets. `key`: inverted.
template <class Form>
__device__ Tally tally_of(const Form& index, bool erases, std::uint64_t key, const Place& place) {
  Tally tally;
  if (place.slot == kNone) {
    tally.lost = erases ? 0 : 1;
    return tally;
  }
  (erases ? tally.removed : tally.updated) = place.present;
  if (place.present) tally.digest -= pair_digest(key, place.value);
  if (erases) return tally;
  tally.inserted = !place.present;
  // A tombstone that was dropped has left the key its slot at most.
  tally.revived = place.erased && (index.where_of(place.slot) & ~kErasedBit) != 0;
  return tally;
}

// Notes it for what comes behind.
template <class Form>
__device__ Tally note_place(const Form& index, const Batch& batch, std::uint32_t op,
                            const Place& place) {
  batch.slots[op] = found_at(place);
  return tally_of(index, batch.erases(op), ~batch.keys[op], place);
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
