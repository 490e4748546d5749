// The device side of a hash map: operations that groups of threads make as kernels run. See
// hash_map.hpp for the host side, docs/map.md for why it is so.
//
// Source: GPHash (FAST '25), sections 3.1 to 3.2.3; names of cuCollections and HierarchicalKV.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "holdfast/config.hpp"
#include "holdfast/hash_map_cache.hpp"
#include "holdfast/map_status.hpp"
#include "holdfast/page_marks.hpp"
#include "holdfast/persist.hpp"

#if HOLDFAST_DEVICE_CODE
#include "holdfast/kernel.hpp"
#define HOLDFAST_BOTH_SIDES __host__ __device__
#else
#define HOLDFAST_BOTH_SIDES
#endif

#include "holdfast/hash_map_keys.inl"

namespace holdfast {

// The one key that cannot be stored: it marks an empty slot. Of keys of 16 bytes and more there is
// none, all can be stored.
template <class Key>
struct EmptyKey {
  Key value = static_cast<Key>(~Key{0});
  constexpr EmptyKey() = default;
  constexpr explicit EmptyKey(Key key) : value(key) {}
};
template <class Key>
requires detail::kMapHasLongKeys<Key>
struct EmptyKey<Key> {
  static constexpr std::uint64_t value = 0;
};

// Values of 8 bytes stand in their slots, beside two states that a slot has: these bits, and these
// bits with the lowest one flipped, cannot be stored. (As a double: signalling NaNs.) Values of
// other sizes are not bound to that.
struct EmptyValue {
  std::uint64_t bits = 0x7ff49b1e66d50c3aull;
  constexpr EmptyValue() = default;
  constexpr explicit EmptyValue(std::uint64_t value) : bits(value) {}
};

// The hash functions of a key: 32 bits from number `which`, the first two from one finalizer of
// MurmurHash3. Of keys of 16 bytes and more it is a label that is hashed, which digest() makes of
// all their words: of the words before, by one more. One of your own has the same members, digest()
// for such keys alone; a map remembers kId.
struct MapHash {
  static constexpr std::uint64_t kId = 0x32687368726d7566ull;
  HOLDFAST_BOTH_SIDES static constexpr std::uint32_t hash(std::uint64_t key, unsigned which) {
    key = mixed(key + (which >> 1) * kStep);
    return static_cast<std::uint32_t>((which & 1) == 0 ? key >> 32 : key);
  }
  HOLDFAST_BOTH_SIDES static constexpr std::uint64_t digest(std::uint64_t before,
                                                            std::uint64_t word) {
    return mixed((before ^ word) + kStep);
  }

 private:
  static constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ull;
  HOLDFAST_BOTH_SIDES static constexpr std::uint64_t mixed(std::uint64_t bits) {
    bits = (bits ^ bits >> 33) * 0xff51afd7ed558ccdull;
    bits = (bits ^ bits >> 33) * 0xc4ceb9fe1a85ec53ull;
    return bits ^ bits >> 33;
  }
};

// The shape of a table, and who works on it. A key has Levels x Hashes buckets of
// Width / (Levels x Hashes) slots, which a group of Width threads looks at in one step. `S`: which
// threads use refs at once (device: those of one GPU).
template <unsigned Width = 32, unsigned Levels = 2, unsigned Hashes = 2, class Hash = MapHash,
          Scope S = Scope::device>
struct MapConfig {
  static_assert(Width == 4 || Width == 8 || Width == 16 || Width == 32,
                "a group has 4, 8, 16 or 32 threads");
  static_assert(Levels >= 1 && Hashes >= 1 && Width % (Levels * Hashes) == 0,
                "levels x hashes x ways is the group's width");
  static constexpr unsigned kWidth = Width;
  static constexpr unsigned kLevels = Levels;
  static constexpr unsigned kHashes = Hashes;
  static constexpr unsigned kWays = Width / (Levels * Hashes);
  static constexpr Scope kScope = S;
  using HashFunctions = Hash;
};

class BytesMapRef;

namespace detail {

// What values are arrays of, to those who add to them. Signed integers are added as unsigned ones.
enum class MapElement : std::uint32_t { u32, u64, f32, f64 };

template <class T>
HOLDFAST_BOTH_SIDES constexpr MapElement map_element_of() {
  static_assert((std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8)) ||
                    std::is_same_v<T, float> || std::is_same_v<T, double>,
                "accumulate() adds float, double, and integers of 4 or 8 bytes");
  if constexpr (std::is_floating_point_v<T>) {
    return sizeof(T) == 4 ? MapElement::f32 : MapElement::f64;
  } else {
    return sizeof(T) == 4 ? MapElement::u32 : MapElement::u64;
  }
}

inline constexpr unsigned kMapMostLevels = 16;

// Where in a table things are; its shape beside what the type of the map says.
struct MapView {
  // The first bucket of each level, the top one first, where keys and states are read and claimed;
  // behind them that of the level which a growing table empties, if it is `growing`.
  std::byte* level[kMapMostLevels + 1] = {};
  // The region's, where those are copies of them; null: they are not.
  std::byte* medium[kMapMostLevels + 1] = {};
  bool growing = false;
  std::byte* values = nullptr;         // the region's first ones; null: values are in slots
  std::byte* const* more = nullptr;    // where those begin that each growth has added
  std::uint32_t* free = nullptr;       // a ring of the places of values that are free
  unsigned long long* head = nullptr;  // of the ring: taken so far ...
  unsigned long long* tail = nullptr;  // ... and given back so far
  std::uint64_t limit = 0;             // takings end here: what comes free meanwhile has to wait
  std::uint64_t empty_key = 0;
  std::uint64_t empty_value = 0;
  PageMarks marks;
  std::uint32_t buckets = 0;    // of the top level: a multiple of hashes x 2^(levels - 1)
  std::uint32_t key_words = 0;  // of a key of 16 bytes and more, of 8 bytes each
  std::uint32_t value_bytes = 0;
  std::uint32_t stride = 0;        // bytes from value to value
  std::uint32_t capacity = 0;      // values that there are places for
  std::uint32_t first_places = 0;  // of these, those at `values`; each growth doubles them
  MapCacheView cache;              // of batches that are alone
  // By slot: the score of the pair there, 0 where none is; of batches that are alone. Null: there
  // are no scores.
  unsigned long long* scores = nullptr;
};

// A value's places begin at a multiple of so many bytes.
inline constexpr std::uint32_t kMapValueAlignment = 16;

// States of a slot that are no value. A slot of the empty key has the first one, but for what a
// crash left.
inline constexpr std::uint64_t kMapNone = 0;  // empty, or its key is being inserted
inline constexpr std::uint64_t kMapGone = 1;  // its key was erased
// Above a value of 4 bytes, and above the place of one of more than 8: more than a bit away from
// the states above.
inline constexpr std::uint64_t kMapTag = std::uint64_t{0xa55a96c3} << 32;

// The table's bytes and places, on either side. Slots are numbered from the top level's first,
// which is the order in which one of several slots of a key is preferred (GPHash, section 3.2.2).
// Where a key is hashed it is its label that is meant, if it has one.
template <class Key, class Config>
struct MapShape {
  static_assert(Config::kLevels <= kMapMostLevels, "a table has 16 levels at most");
  static constexpr bool kIsLong = std::is_same_v<Key, MapLongKey>;
  static constexpr std::uint32_t kWays = Config::kWays;
  static constexpr std::uint32_t kWordsAt = (kWays * sizeof(MapLabel<Key>) + 7) / 8 * 8;
  static constexpr std::uint32_t kKeysAt = kWordsAt + kWays * 8;  // of 16 bytes and more

  HOLDFAST_BOTH_SIDES static constexpr std::uint32_t bucket_bytes(std::uint32_t key_words) {
    return kIsLong ? kKeysAt + kWays * key_words * 8 : kKeysAt;
  }

  HOLDFAST_BOTH_SIDES static constexpr std::uint64_t first_of_level(std::uint32_t top,
                                                                    unsigned level) {
    std::uint64_t first = 0;
    for (unsigned above = 0; above < level; ++above) first += top >> above;
    return first;
  }
  HOLDFAST_BOTH_SIDES static constexpr std::uint64_t bucket_count(std::uint32_t top) {
    return first_of_level(top, Config::kLevels);
  }
  // Each hash function has a part of the level to itself, so that a key's buckets are all
  // different.
  HOLDFAST_BOTH_SIDES static constexpr std::uint32_t top_bucket(std::uint32_t top,
                                                                std::uint64_t key, unsigned which) {
    const std::uint32_t part = top / Config::kHashes;
    const std::uint64_t hash = Config::HashFunctions::hash(key, which);
    return which * part + static_cast<std::uint32_t>(hash * part >> 32);
  }
  // The bucket of a level for the bucket of the top level: a bucket below is shared by two above.
  HOLDFAST_BOTH_SIDES static constexpr std::uint64_t bucket_at(std::uint32_t top,
                                                               std::uint32_t top_bucket,
                                                               unsigned level) {
    return first_of_level(top, level) + (top_bucket >> level);
  }
};

}  // namespace detail

#if HOLDFAST_DEVICE_CODE

// Width neighbouring threads of a warp that make operations together. REQUIRES: blocks of whole
// groups; all threads of a group make a call together, with the same arguments.
template <unsigned Width>
struct MapGroup {
  unsigned rank;   // of this thread within its group
  unsigned first;  // the group's first lane of the warp
  unsigned mask;   // the group's lanes

  __device__ MapGroup() {
    const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    rank = thread % Width;
    first = thread % 32 / Width * Width;
    mask = (Width == 32 ? 0xffffffffu : (1u << Width % 32) - 1) << first;
  }
  // The threads for which `holds`, as bits by rank.
  __device__ unsigned ballot(bool holds) const { return __ballot_sync(mask, holds) >> first; }
  template <class T>
  __device__ T from(T value, unsigned of) const {
    return __shfl_sync(mask, value, static_cast<int>(of), Width);
  }
  __device__ void sync() const { __syncwarp(mask); }
  // Calls body(rank) for each thread that is `active`, one after the other, in all of them: how
  // threads of a group that have an operation each make them together (GPHash, section 3.2.1).
  template <class Body>
  __device__ void in_turn(bool active, Body&& body) const {
    for (unsigned left = ballot(active); left != 0; left &= left - 1) {
      body(static_cast<unsigned>(__ffs(static_cast<int>(left))) - 1);
    }
  }
};

#endif  // HOLDFAST_DEVICE_CODE

// A map as kernels see it; HashMap::ref() gives it. Trivially copyable: pass it by value. REQUIRES:
// it is not used behind HashMap::quiesce(), nor when its map has ended.
//
// Contract. Operations of one key are linearisable, whoever makes them beside one another: each
// takes effect at one moment between its call and its return, in all of its words or none. (Of two
// keys nothing is said together: there are no transactions.) They are lock-free: one that has to
// begin again does so because another one has gone on. Nothing is lost to a crash once its
// operation has returned, and an operation that a crash cuts off is there whole or not at all. What
// an operation meets of others may not be durable yet: a value that was found, or a key that was
// kept or absent, is not promised to survive until the operation that made it so has returned.
//
// An erased key's slot, and the places of values that were replaced or erased, come free at the
// next HashMap::quiesce(), not before: readers may still look at them. Until then a key that is
// erased and inserted again and again takes one slot after another.
//
// `value` points to value_bytes() bytes, at an address that is a multiple of 4. The empty key, and
// a value that cannot be stored (EmptyValue), are `refused`; the empty key is never found. A key of
// 16 bytes and more is read where it is, which may be device memory or a thread's own.
template <class Key, class Config = MapConfig<>>
class HashMapRef {
 public:
  static constexpr unsigned kWidth = Config::kWidth;
  using KeyArgument = std::conditional_t<std::is_integral_v<Key>, Key, const Key&>;
  explicit HashMapRef(const detail::MapView& view) : view_(view) {}

#if HOLDFAST_DEVICE_CODE
  using Group = MapGroup<kWidth>;

  __device__ std::uint32_t value_bytes() const { return view_.value_bytes; }

  // inserted, kept, full or no_value.
  __device__ MapStatus insert(const Group& group, KeyArgument key, const void* value) const;
  // inserted, assigned, full or no_value.
  __device__ MapStatus insert_or_assign(const Group& group, KeyArgument key,
                                        const void* value) const;
  // assigned, absent or no_value.
  __device__ MapStatus assign(const Group& group, KeyArgument key, const void* value) const;
  // As insert(); `out` gets the value that the key has then, if it is inserted or kept.
  __device__ MapStatus find_or_insert(const Group& group, KeyArgument key, const void* value,
                                      void* out) const;
  // Adds to the value that is there, element by element: T is float, double, or an integer of 4 or
  // 8 bytes, which wraps around, and values are arrays of T. assigned, absent, no_value, or refused
  // (the empty key; of values of 8 bytes also a sum that cannot be stored, and nothing is done).
  // REQUIRES: `delta` is of value_bytes(), a multiple of sizeof(T), aligned to T.
  template <class T>
  __device__ MapStatus accumulate(const Group& group, KeyArgument key, const T* delta) const;
  // erased or absent.
  __device__ MapStatus erase(const Group& group, KeyArgument key) const;
  // Whether the key is there. If so, its value goes to `out`, whole; else that stays as it is.
  __device__ bool find(const Group& group, KeyArgument key, void* out) const;
  __device__ bool contains(const Group& group, KeyArgument key) const;
#endif

 private:
  friend class BytesMapRef;  // bytes_map_ref.hpp: its records hang on this map's words
  using Kernels = detail::MapKernelKey<Key>;
  detail::MapView view_;
};

}  // namespace holdfast

#if HOLDFAST_DEVICE_CODE
#include "holdfast/hash_map_ref.inl"
// Behind it.
#include "holdfast/hash_map_accumulate.inl"
#endif
#undef HOLDFAST_BOTH_SIDES
