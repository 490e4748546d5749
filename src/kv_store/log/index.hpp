// The index in device memory, as kernels see it.
#pragma once

#include <cstdint>

#include "holdfast/kernel.hpp"
#include "holdfast/kv_store_ref.hpp"
#include "kv_store/log/format.hpp"

namespace holdfast::kv::log {

inline constexpr std::uint32_t kNone = 0xffffffffu;
inline constexpr std::uint32_t kErasedBit = detail::kKvErasedBit;
inline constexpr std::uint64_t kGone = detail::kKvGone;
inline constexpr std::uint64_t kErased = detail::kKvErased;

using detail::KvPair;

// Slots of pairs (kv_store_ref.hpp), and what each segment has that is live. A record is live if
// the slot that is noted for it has its position: nothing of that needs the medium. No record is at
// position 0, so that zeroed memory is an empty index.
struct Index {
  KvPair* pairs;            // slots, and one for the pair whose inverted key is kGone
  std::uint32_t* where;     // by slot: the record's position, with kErasedBit of a tombstone
  std::uint32_t* slot_of;   // by position; anything where there is no live record
  std::uint32_t* live;      // by segment: live records, tombstones included
  std::uint32_t* tombs;     // by segment: tombstones that are live
  std::uint64_t mask;       // slots - 1
  std::uint32_t shift;      // log2 of a segment's records
  std::uint32_t positions;  // records of the log

  __host__ __device__ detail::KvView view() const {
    return {detail::KvLayout::index, pairs, mask, where};
  }
  __device__ bool is_erased(std::uint32_t slot) const {
    return pairs[slot].value == kErased && (where[slot] & kErasedBit) != 0;
  }
};

// Where a key is, or where a search for a free slot for it begins.
struct Place {
  std::uint32_t slot = kNone;  // kNone: there is none
  bool present = false;
  bool erased = false;  // the slot is its own, with a tombstone, perhaps
  std::uint64_t value = 0;
};

// `inverted`: the key as pairs have it.
__device__ inline Place find_place(const Index& index, std::uint64_t inverted) {
  std::uint64_t slot = detail::kv_slot_of(index.view(), inverted);
  Place place;
  for (std::uint64_t passed = 0; passed <= index.mask; ++passed) {
    const KvPair pair = index.pairs[slot];
    const auto here = static_cast<std::uint32_t>(slot);
    if (pair.key == inverted) {
      const bool erased = index.is_erased(here);
      return {here, !erased, erased, pair.value};
    }
    if (inverted == kGone) return {here, false, false, 0};
    const bool free = pair.key == 0 || pair.key == kGone;
    if (free && place.slot == kNone) place.slot = here;
    if (pair.key == 0) break;
    slot = (slot + 1) & index.mask;
  }
  return place;
}

// Takes a slot for a key that is not there, from place `slot` on. Returns it, kNone if there is
// none; *was is the key that it had. REQUIRES: no other thread takes one for the same key.
__device__ inline std::uint32_t take_slot(const Index& index, std::uint64_t inverted,
                                          std::uint32_t slot, std::uint64_t* was) {
  for (std::uint64_t passed = 0; passed <= index.mask; ++passed) {
    const std::uint64_t held = detail::kv_load_word(&index.pairs[slot].key);
    *was = held;
    if (held == inverted) return slot;
    if (held == 0 || held == kGone) {
      auto* const key = reinterpret_cast<unsigned long long*>(&index.pairs[slot].key);
      if (atomicCAS(key, static_cast<unsigned long long>(held),
                    static_cast<unsigned long long>(inverted)) == held) {
        return slot;
      }
    }
    slot = static_cast<std::uint32_t>((slot + 1) & index.mask);
  }
  return kNone;
}

}  // namespace holdfast::kv::log
