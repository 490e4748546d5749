// The index of a store whose pairs do not fit into device memory: fingerprints, whose keys are
// compared over the link.
#pragma once

#include "kv_store/log/index.hpp"

namespace holdfast::kv::log {

// Slots of one word each (kv_store_ref.hpp), so that each is taken, and changed, at once. Of a
// key's hash a word has the highest 24 bits and the lowest eight. What a search passes by has its
// home nearby, as a rule: these eight tell whether it is the same one, and then the others are the
// same once in 2^24 times.
struct FingerprintIndex : IndexBase {
  std::uint64_t* words;   // by slot
  std::uint32_t* lives;   // by segment: how often it was made free (kv_read_record())
  const Record* records;  // of the log

  // Slots are a multiple of these, so that the lowest bits of a home are those of a hash.
  static constexpr std::uint32_t kLeastSlots = 256;

  // Of a key's hash. `inverted`: the key as records have it.
  __device__ static std::uint64_t hash_of(std::uint64_t inverted) {
    return detail::kv_hash(~inverted);
  }
  __device__ static std::uint64_t word_for(std::uint64_t hash, std::uint32_t where) {
    return std::uint64_t{detail::kv_fingerprint(hash)} << 32 | where;
  }
  __device__ static bool is_free(std::uint64_t word) {
    return word == 0 || word == detail::kKvGoneWord;
  }
  // Of a key of that hash, perhaps, be it erased or not.
  __device__ static bool is_like(std::uint64_t word, std::uint64_t hash) {
    return !is_free(word) && detail::kv_fingerprint_in(word) == detail::kv_fingerprint(hash);
  }

  __host__ __device__ detail::KvView view() const {
    return {detail::KvLayout::fingerprints,
            reinterpret_cast<const KvPair*>(records),
            mask,
            nullptr,
            words,
            lives,
            shift};
  }
  __device__ std::uint64_t word_of(std::uint64_t slot) const {
    return detail::kv_load_word(&words[slot]);
  }
  __device__ std::uint32_t where_of(std::uint32_t slot) const {
    return static_cast<std::uint32_t>(words[slot]);
  }
  // Over the link.
  __device__ Record record_at(std::uint32_t where) const { return records[where & ~kErasedBit]; }
  __device__ Record record_of(std::uint32_t slot) const { return record_at(where_of(slot)); }

  // Passes by the slots of a search for a key of that hash until stops(slot, word) is true, which
  // is asked of those that may be the key's, or until one is empty. Returns the first that was
  // free; kNone: there was none.
  template <class Stops>
  __device__ std::uint32_t search(std::uint64_t hash, const Stops& stops) const {
    std::uint32_t free = kNone;
    auto slot = static_cast<std::uint32_t>(hash & mask);
    for (std::uint64_t passed = 0; passed <= mask; ++passed) {
      const std::uint64_t word = words[slot];
      if (is_free(word)) {
        if (free == kNone) free = slot;
        if (word == 0) break;
      } else if (is_like(word, hash) && stops(slot, word)) {
        break;
      }
      slot = static_cast<std::uint32_t>((slot + 1) & mask);
    }
    return free;
  }

  // As of the other form. REQUIRES: a batch of SETs makes no tombstones. So one at the place that
  // was found for a key is that key's own.
  __device__ Put put(std::uint32_t slot, bool present, const Record& record,
                     std::uint32_t position) const {
    const std::uint64_t word = word_for(hash_of(record.key), position);
    for (std::uint64_t passed = 0; passed <= mask; ++passed) {
      const std::uint64_t held = word_of(slot);
      const bool tombstone = !is_free(held) && (held & kErasedBit) != 0;
      if (passed == 0 && (present || tombstone)) {
        store(slot, word);
        forget(static_cast<std::uint32_t>(held));
        return {slot, false};
      }
      if (is_free(held) && take(slot, held, word) == held) return {slot, held == 0};
      slot = static_cast<std::uint32_t>((slot + 1) & mask);
    }
    return {};
  }
  __device__ void erase(std::uint32_t slot, std::uint64_t inverted, std::uint32_t position) const {
    forget(where_of(slot));
    store(slot, word_for(hash_of(inverted), position | kErasedBit));
  }
  // Makes a slot that has `held` have `word`. Returns what it had.
  __device__ std::uint64_t take(std::uint32_t slot, std::uint64_t held, std::uint64_t word) const {
    return atomicCAS(reinterpret_cast<unsigned long long*>(&words[slot]),
                     static_cast<unsigned long long>(held), static_cast<unsigned long long>(word));
  }

  __device__ void follow(std::uint32_t slot, std::uint32_t to) const {
    store(slot, words[slot] >> 32 << 32 | to);
  }
  __device__ void drop(std::uint32_t slot) const { store(slot, detail::kKvGoneWord); }
  __device__ bool is_gone(std::uint64_t slot) const { return word_of(slot) == detail::kKvGoneWord; }
  __device__ void make_empty(std::uint64_t slot) const { store(slot, 0); }
  __device__ bool is_passed(std::uint64_t slot) const {
    for (std::uint64_t passed = 1; passed <= mask; ++passed) {
      const std::uint64_t word = word_of((slot + passed) & mask);
      if (word == 0) return false;
      if (word != detail::kKvGoneWord && comes_from(slot + passed, word, passed)) return true;
    }
    return true;
  }
  __device__ void end_segment(std::uint32_t segment) const { atomicAdd(&lives[segment], 1u); }

  // By position: in the order of the log, over the link.
  std::uint64_t listed() const { return positions; }
  __device__ KvPair listed_at(std::uint64_t position) const {
    const auto where = static_cast<std::uint32_t>(position);
    const Held held = held_at(*this, where);
    if (held.slot == kNone || held.tombstone) return {0, 0};
    return {records[where].key, records[where].value};
  }

 private:
  __device__ void store(std::uint64_t slot, std::uint64_t word) const {
    *const_cast<volatile std::uint64_t*>(&words[slot]) = word;
  }
  // Whether the search for what is in slot `at` may begin `far` slots before it or earlier. No slot
  // between the two is empty, so that it is 256 further than the fingerprint says, or a multiple of
  // that, only if none of so many is. REQUIRES: none of the `far` slots before `at` is empty.
  __device__ bool comes_from(std::uint64_t at, std::uint64_t word, std::uint64_t far) const {
    const std::uint64_t low = detail::kv_fingerprint_in(word) & (kLeastSlots - 1);
    if (((at - low) & (kLeastSlots - 1)) >= far) return true;
    for (std::uint64_t back = far + 1; back <= kLeastSlots; ++back) {
      if (word_of((at - back) & mask) == 0) return false;
    }
    return true;
  }
};

// Reads the record of each slot that is like the key.
__device__ inline Place find_place(const FingerprintIndex& index, std::uint64_t inverted) {
  Place found;
  const auto is_key = [&](std::uint32_t slot, std::uint64_t word) {
    const Record record = index.record_at(static_cast<std::uint32_t>(word));
    if (record.key != inverted) return false;
    const bool erased = (word & kErasedBit) != 0;
    found = {slot, !erased, erased, record.value};
    return true;
  };
  const std::uint32_t free = index.search(index.hash_of(inverted), is_key);
  return found.slot != kNone ? found : Place{free};
}

__device__ inline bool find_value(const FingerprintIndex& index, std::uint64_t key,
                                  std::uint64_t* value) {
  return detail::kv_find_by_fingerprint<detail::KvLoads::plain>(index.view(), key, value);
}

}  // namespace holdfast::kv::log
