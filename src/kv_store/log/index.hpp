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

// What both forms of an index have. A record is live if the slot that is noted for it has its
// position: nothing of that needs the medium. No record is at position 0, so that zeroed memory is
// an empty index.
//
// The forms are Index (pairs and positions) and FingerprintIndex (fingerprint_index.hpp). Kernels
// take either, by what both have:
//   find_place(index, key)           where a key is; keys are inverted, as pairs have them
//   put, erase                       what a record of a batch that is committed changes, the counts
//                                    of the record that it replaces included
//   where_of, record_of              of a slot: its record's position, and the record
//   follow, drop                     a copy of its record; its tombstone is not needed any more
//   is_gone, is_passed, make_empty   slots that can be used again
//   end_segment                      before a segment is free
//   listed, listed_at                how many pairs and other things it lists, and those
//   view                             for lookups
struct IndexBase {
  std::uint32_t* slot_of;   // by position; anything where there is no live record
  std::uint32_t* live;      // by segment: live records, tombstones included
  std::uint32_t* tombs;     // by segment: tombstones that are live
  std::uint64_t mask;       // slots - 1
  std::uint32_t shift;      // log2 of a segment's records
  std::uint32_t positions;  // records of the log

  // The record that a slot held so far counts no longer: `was`, its position, with kErasedBit of a
  // tombstone.
  __device__ void forget(std::uint32_t was) const {
    const std::uint32_t position = was & ~kErasedBit;
    if (position == 0) return;
    atomicSub(&live[position >> shift], 1u);
    if ((was & kErasedBit) != 0) atomicSub(&tombs[position >> shift], 1u);
  }
};

// Where a key is, or where a search for a free slot for it begins.
struct Place {
  std::uint32_t slot = kNone;  // kNone: there is none
  bool present = false;
  bool erased = false;  // the slot is its own, with a tombstone, perhaps
  std::uint64_t value = 0;
};

// What putting a pair changed.
struct Put {
  std::uint32_t slot = kNone;  // kNone: there was none for it
  bool fresh = false;          // the slot was empty
};

// Slots of pairs (kv_store_ref.hpp).
struct Index : IndexBase {
  KvPair* pairs;         // slots, and one for the pair whose inverted key is kGone
  std::uint32_t* where;  // by slot: the record's position, with kErasedBit of a tombstone

  __host__ __device__ detail::KvView view() const {
    return {detail::KvLayout::index, pairs, mask, where};
  }
  __device__ bool is_erased(std::uint32_t slot) const {
    return pairs[slot].value == kErased && (where[slot] & kErasedBit) != 0;
  }
  __device__ std::uint32_t where_of(std::uint32_t slot) const { return where[slot]; }
  // Of a tombstone the value is any.
  __device__ Record record_of(std::uint32_t slot) const {
    const KvPair pair = pairs[slot];
    return {pair.key, pair.value};
  }

  // `slot`: of the key, if it is `present`, or from where it takes one. Lookups may run beside it:
  // kv_store_ref.hpp says what they are to see. REQUIRES: no other thread puts the same key.
  __device__ Put put(std::uint32_t slot, bool present, const Record& record,
                     std::uint32_t position) const {
    Put done{slot};
    if (!present) {
      std::uint64_t key = 0;
      done.slot = take_slot(record.key, slot, &key);
      if (done.slot == kNone) return done;
      done.fresh = key == 0;
    }
    store(done.slot, record, position);
    return done;
  }
  __device__ void erase(std::uint32_t slot, std::uint64_t inverted, std::uint32_t position) const {
    store(slot, {inverted, kErased}, position | kErasedBit);
  }

  __device__ void follow(std::uint32_t slot, std::uint32_t to) const { where[slot] = to; }
  __device__ void drop(std::uint32_t slot) const {
    where[slot] = kErasedBit;
    // The value stays: who looks the key up meanwhile must not find it.
    if (slot <= mask) *const_cast<volatile std::uint64_t*>(&pairs[slot].key) = kGone;
  }
  __device__ bool is_gone(std::uint64_t slot) const {
    return detail::kv_load_word(&pairs[slot].key) == kGone;
  }
  __device__ void make_empty(std::uint64_t slot) const {
    *const_cast<volatile std::uint64_t*>(&pairs[slot].key) = 0;
  }
  // Whether a search for a key that is there passes by a slot: one between it and the next that is
  // empty holds a key whose search begins no later.
  __device__ bool is_passed(std::uint64_t slot) const {
    for (std::uint64_t passed = 1; passed <= mask; ++passed) {
      const std::uint64_t key = detail::kv_load_word(&pairs[(slot + passed) & mask].key);
      if (key == 0) return false;
      if (key == kGone) continue;
      const std::uint64_t home = detail::kv_slot_of(view(), key);
      if (((slot + passed - home) & mask) >= passed) return true;
    }
    return true;
  }
  __device__ void end_segment(std::uint32_t) const {}

  // By slot. Of what is no pair that is there the key is 0.
  std::uint64_t listed() const { return mask + 2; }
  __device__ KvPair listed_at(std::uint64_t slot) const {
    return where[slot] == 0 || (where[slot] & kErasedBit) != 0 ? KvPair{0, 0} : pairs[slot];
  }

 private:
  // What was there is counted first: stores to lines that are still being loaded took twice as
  // long.
  __device__ void store(std::uint32_t slot, const Record& record, std::uint32_t to) const {
    forget(where[slot]);
    *const_cast<volatile std::uint32_t*>(&where[slot]) = to;
    detail::kv_store_pair(&pairs[slot], {record.key, record.value});
  }
  // Takes a slot for a key that is not there, from place `slot` on. Returns it, kNone if there is
  // none; *was is the key that it had.
  __device__ std::uint32_t take_slot(std::uint64_t inverted, std::uint32_t slot,
                                     std::uint64_t* was) const {
    for (std::uint64_t passed = 0; passed <= mask; ++passed) {
      const std::uint64_t held = detail::kv_load_word(&pairs[slot].key);
      *was = held;
      if (held == inverted) return slot;
      if (held == 0 || held == kGone) {
        auto* const key = reinterpret_cast<unsigned long long*>(&pairs[slot].key);
        if (atomicCAS(key, static_cast<unsigned long long>(held),
                      static_cast<unsigned long long>(inverted)) == held) {
          return slot;
        }
      }
      slot = static_cast<std::uint32_t>((slot + 1) & mask);
    }
    return kNone;
  }
};

// `inverted`: the key as pairs have it. Other keys may be put meanwhile: a slot that was free may
// be taken then, which put() looks at.
__device__ inline Place find_place(const Index& index, std::uint64_t inverted) {
  std::uint64_t slot = detail::kv_slot_of(index.view(), inverted);
  Place place;
  for (std::uint64_t passed = 0; passed <= index.mask; ++passed) {
    const KvPair pair = detail::kv_load_pair<detail::KvLoads::strong>(&index.pairs[slot]);
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

// As lookups that are ordered with all batches find it.
__device__ inline bool find_value(const Index& index, std::uint64_t key, std::uint64_t* value) {
  return detail::kv_find_in_index<detail::KvLoads::plain>(index.view(), key, value);
}

// What is live at a position.
struct Held {
  std::uint32_t slot = kNone;  // kNone: nothing is
  bool tombstone = false;
};

template <class Form>
__device__ Held held_at(const Form& index, std::uint32_t position) {
  if (position == 0) return {};
  const std::uint32_t slot = index.slot_of[position];
  const std::uint32_t where = index.where_of(slot);
  if ((where & ~kErasedBit) != position) return {};
  return {slot, (where & kErasedBit) != 0};
}

}  // namespace holdfast::kv::log
