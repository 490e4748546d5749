// Implementation of KvStoreRef. Included by kv_store_ref.hpp alone.
#pragma once

namespace holdfast {
namespace detail {

inline constexpr unsigned kKvWays = 8;  // of a bucket, a line of 128 bytes

// The finalizer of MurmurHash3.
__device__ __forceinline__ std::uint64_t kv_hash(std::uint64_t key) {
  key ^= key >> 33;
  key *= 0xff51afd7ed558ccdull;
  key ^= key >> 33;
  key *= 0xc4ceb9fe1a85ec53ull;
  return key ^ key >> 33;
}

// plain: for what is ordered with all batches. strong: beside them, too.
enum class KvLoads { plain, strong };

// Pairs that lookups may read meanwhile are stored by this alone. The GPU moves both words at once,
// which nothing relies on: of a vector access each word counts by itself (PTX).
__device__ __forceinline__ void kv_store_pair(KvPair* place, const KvPair& pair) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};"
               :
               : "l"(place), "l"(pair.key), "l"(pair.value)
               : "memory");
#else
  *const_cast<volatile std::uint64_t*>(&place->key) = pair.key;
  *const_cast<volatile std::uint64_t*>(&place->value) = pair.value;
#endif
}

__device__ __forceinline__ std::uint64_t kv_load_word(const std::uint64_t* word) {
  return *const_cast<const volatile std::uint64_t*>(word);
}

template <KvLoads L>
__device__ __forceinline__ KvPair kv_load_pair(const KvPair* place) {
  if constexpr (L == KvLoads::plain) {
    return *place;
  } else {
#if defined(__CUDA_ARCH__)
    KvPair pair;
    asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
                 : "=l"(pair.key), "=l"(pair.value)
                 : "l"(place));
    return pair;
#else
    return {kv_load_word(&place->key), kv_load_word(&place->value)};
#endif
  }
}

__device__ __forceinline__ std::uint32_t kv_bucket_of(const KvView& view, std::uint64_t key) {
  return static_cast<std::uint32_t>(kv_hash(key) & view.mask);
}
__device__ __forceinline__ const KvPair* kv_ways_of(const KvView& view, std::uint32_t bucket) {
  return view.pairs + std::uint64_t{bucket} * kKvWays;
}

// On a GPU all loads come before the first look at one: each is a trip, and perhaps over the link.
// Elsewhere the value is loaded of the key alone, which leaves the checker fewer schedules to
// explore.
__device__ __forceinline__ bool kv_find_in_buckets(const KvView& view, std::uint64_t key,
                                                   std::uint64_t* value) {
  const std::uint64_t wanted = ~key;
  if (wanted == 0) return false;
  const KvPair* const ways = kv_ways_of(view, kv_bucket_of(view, key));
#if defined(__CUDA_ARCH__)
  KvPair pairs[kKvWays];
#pragma unroll
  for (unsigned way = 0; way < kKvWays; ++way) {
    pairs[way] = kv_load_pair<KvLoads::strong>(ways + way);
  }
  bool found = false;
#pragma unroll
  for (unsigned way = 0; way < kKvWays; ++way) {
    if (found || pairs[way].key != wanted) continue;
    *value = pairs[way].value;
    found = true;
  }
  return found;
#else
  for (unsigned way = 0; way < kKvWays; ++way) {
    if (kv_load_word(&ways[way].key) != wanted) continue;
    *value = kv_load_word(&ways[way].value);
    return true;
  }
  return false;
#endif
}

// Groups of eight threads, one for each way, look at the buckets of their eight keys in turn.
template <KvLoads L>
__device__ __forceinline__ bool kv_find_in_buckets_by_warp(const KvView& view, std::uint64_t key,
                                                           std::uint64_t* value) {
  const unsigned lane = ((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x) % 32;
  const unsigned way = lane % kKvWays;
  const unsigned first = lane / kKvWays * kKvWays;
  const unsigned group = 0xffu << first;
  const std::uint64_t my_key = ~key;
  const std::uint32_t my_bucket = kv_bucket_of(view, key);
  const unsigned asking = __ballot_sync(group, my_key != 0) >> first;

  KvPair pairs[kKvWays];
#pragma unroll
  for (unsigned member = 0; member < kKvWays; ++member) {
    const std::uint32_t bucket = __shfl_sync(group, my_bucket, member, kKvWays);
    if ((asking >> member & 1) == 0) continue;
    pairs[member] = kv_load_pair<L>(kv_ways_of(view, bucket) + way);
  }
  bool found = false;
#pragma unroll
  for (unsigned member = 0; member < kKvWays; ++member) {
    const std::uint64_t wanted = __shfl_sync(group, my_key, member, kKvWays);
    if (wanted == 0) continue;
    const unsigned same = __ballot_sync(group, pairs[member].key == wanted) >> first & 0xffu;
    const unsigned holder = same != 0 ? __ffs(same) - 1 : 0;
    const std::uint64_t held = __shfl_sync(group, pairs[member].value, holder, kKvWays);
    if (way != member || same == 0) continue;
    *value = held;
    found = true;
  }
  return found;
}

__device__ __forceinline__ std::uint64_t kv_slot_of(const KvView& view, std::uint64_t inverted) {
  return inverted == kKvGone ? view.mask + 1 : kv_hash(~inverted) & view.mask;
}

// Open addressing. Slots are never rearranged, and an erased key keeps its slot while its
// tombstone is needed, so that a search passes by whatever a batch changes.
template <KvLoads L>
__device__ __forceinline__ bool kv_find_in_index(const KvView& view, std::uint64_t key,
                                                 std::uint64_t* value) {
  const std::uint64_t wanted = ~key;
  if (wanted == 0) return false;
  std::uint64_t slot = kv_slot_of(view, wanted);
  for (std::uint64_t passed = 0; passed <= view.mask; ++passed) {
    const KvPair pair = kv_load_pair<L>(view.pairs + slot);
    if (pair.key == wanted) {
      if (pair.value == kKvErased) {
        const volatile std::uint32_t& record = view.where[slot];
        if ((record & kKvErasedBit) != 0) return false;
      }
      *value = pair.value;
      return true;
    }
    if (pair.key == 0 || wanted == kKvGone) return false;
    slot = (slot + 1) & view.mask;
  }
  return false;
}

// Of a key's hash: what its home does not tell, and of that the lowest eight bits.
__device__ __forceinline__ std::uint32_t kv_fingerprint(std::uint64_t hash) {
  return static_cast<std::uint32_t>(hash >> 40 << 8 | (hash & 0xff));
}
__device__ __forceinline__ std::uint32_t kv_fingerprint_in(std::uint64_t word) {
  return static_cast<std::uint32_t>(word >> 32);
}
__device__ __forceinline__ std::uint32_t kv_position_in(std::uint64_t word) {
  return static_cast<std::uint32_t>(word) & ~kKvErasedBit;
}
// Whether a slot may have a key of that fingerprint that is there. (Tombstones are passed by: if
// one is of the key, no other slot has it.)
__device__ __forceinline__ bool kv_may_hold(std::uint64_t word, std::uint32_t fingerprint) {
  return word != 0 && (word & kKvErasedBit) == 0 && kv_fingerprint_in(word) == fingerprint;
}

// What is loaded behind it is no older than what it has seen.
__device__ __forceinline__ std::uint64_t kv_load_acquire(const std::uint64_t* word) {
#if defined(__CUDA_ARCH__)
  std::uint64_t value;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
#else
  return kv_load_word(word);
#endif
}
__device__ __forceinline__ std::uint32_t kv_load_acquire(const std::uint32_t* word) {
#if defined(__CUDA_ARCH__)
  std::uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
#else
  return *const_cast<const volatile std::uint32_t*>(word);
#endif
}

// Reads the record that a slot has, which `*word` says. Returns false where the slot has changed,
// or the record may have been overwritten, with the word as it is now.
//
// Beside batches, positions are used again. A record is stored before a slot has its position, and
// stays as it is until its segment is free, which its life counts: before that, no slot has
// positions in it any more, and behind it, by a later kernel of the stream, others are stored. So
// if the slot has the position at a time behind one load of the life, and the same life is loaded
// behind the record, the record is the slot's at that time. Whatever was read otherwise is dropped.
template <KvLoads L>
__device__ __forceinline__ bool kv_read_record(const KvView& view, std::uint64_t slot,
                                               std::uint64_t* word, KvPair* record) {
  const std::uint32_t position = kv_position_in(*word);
  if constexpr (L == KvLoads::plain) {
    *record = view.pairs[position];
    return true;
  } else {
    const std::uint32_t* const life = view.lives + (position >> view.shift);
    const std::uint32_t before = kv_load_acquire(life);
    std::uint64_t now = kv_load_acquire(view.words + slot);
    if (now == *word) {
      *record = kv_load_pair<L>(view.pairs + position);
      __threadfence();
      if (*const_cast<const volatile std::uint32_t*>(life) == before) return true;
      now = kv_load_word(view.words + slot);
    }
    *word = now;
    return false;
  }
}

// As in an index; a key is compared where it is, in its record.
template <KvLoads L>
__device__ __forceinline__ bool kv_find_by_fingerprint(const KvView& view, std::uint64_t key,
                                                       std::uint64_t* value) {
  const std::uint64_t wanted = ~key;
  if (wanted == 0) return false;
  const std::uint64_t hash = kv_hash(key);
  const std::uint32_t fingerprint = kv_fingerprint(hash);
  std::uint64_t slot = hash & view.mask;
  for (std::uint64_t passed = 0; passed <= view.mask; ++passed) {
    std::uint64_t word = L == KvLoads::plain ? view.words[slot] : kv_load_word(view.words + slot);
    while (kv_may_hold(word, fingerprint)) {
      KvPair record{};
      if (!kv_read_record<L>(view, slot, &word, &record)) continue;
      if (record.key != wanted) break;
      *value = record.value;
      return true;
    }
    if (word == 0) return false;
    slot = (slot + 1) & view.mask;
  }
  return false;
}

}  // namespace detail

__device__ inline bool KvStoreRef::find(std::uint64_t key, std::uint64_t* value) const {
  switch (view_.layout) {
    case detail::KvLayout::none:
      break;
    case detail::KvLayout::buckets:
      return detail::kv_find_in_buckets(view_, key, value);
    case detail::KvLayout::index:
      return detail::kv_find_in_index<detail::KvLoads::strong>(view_, key, value);
    case detail::KvLayout::fingerprints:
      return detail::kv_find_by_fingerprint<detail::KvLoads::strong>(view_, key, value);
  }
  return false;
}

__device__ inline bool KvStoreRef::find_by_warp(std::uint64_t key, std::uint64_t* value) const {
  switch (view_.layout) {
    case detail::KvLayout::none:
      break;
    case detail::KvLayout::buckets:
      return detail::kv_find_in_buckets_by_warp<detail::KvLoads::strong>(view_, key, value);
    case detail::KvLayout::index:
      return detail::kv_find_in_index<detail::KvLoads::strong>(view_, key, value);
    case detail::KvLayout::fingerprints:
      return detail::kv_find_by_fingerprint<detail::KvLoads::strong>(view_, key, value);
  }
  return false;
}

}  // namespace holdfast
