// What hash_map_ref.hpp declares. Included by it alone. docs/map.md has the argument for the order
// of every store, fence and look in here.
#pragma once

#include <type_traits>

namespace holdfast {
namespace detail {

// ---- Words and keys ----------------------------------------------------------------------------

template <Scope S>
__device__ __forceinline__ void map_fence() {
  if constexpr (S == Scope::block) {
    __threadfence_block();
  } else if constexpr (S == Scope::device) {
    __threadfence();
  } else {
    __threadfence_system();
  }
}

template <Scope S, class T>
__device__ __forceinline__ T map_cas(T* place, T expected, T desired) {
  using Word = std::conditional_t<sizeof(T) == 4, unsigned, unsigned long long>;
  auto* const word = reinterpret_cast<Word*>(place);
  const auto before = static_cast<Word>(expected);
  const auto after = static_cast<Word>(desired);
  if constexpr (S == Scope::block) {
    return static_cast<T>(atomicCAS_block(word, before, after));
  } else if constexpr (S == Scope::device) {
    return static_cast<T>(atomicCAS(word, before, after));
  } else {
    return static_cast<T>(atomicCAS_system(word, before, after));
  }
}

template <class T>
__device__ __forceinline__ T map_load(const T* place) {
  return *const_cast<const volatile T*>(place);
}
template <class T>
__device__ __forceinline__ void map_store(T* place, T value) {
  *const_cast<volatile T*>(place) = value;
}

__device__ __forceinline__ bool map_is_value(std::uint64_t word) { return word > kMapGone; }
__device__ __forceinline__ std::uint64_t map_place_of(std::uint64_t word) {
  return static_cast<std::uint32_t>(word);
}

// ---- A key's slots -----------------------------------------------------------------------------

// The slot of a key that this thread of its group looks at.
template <class Key>
struct MapSpot {
  std::uint64_t offset;  // of its bucket, from the first one
  Key* key;              // in MapView::table
  std::uint64_t* word;
};

template <class Key, class Config>
__device__ __forceinline__ Key* map_key_at(std::byte* table, std::uint64_t offset, unsigned way) {
  return reinterpret_cast<Key*>(table + offset) + way;
}
template <class Key, class Config>
__device__ __forceinline__ std::uint64_t* map_word_at(std::byte* table, std::uint64_t offset,
                                                      unsigned way) {
  return reinterpret_cast<std::uint64_t*>(table + offset + MapShape<Key, Config>::kWordsAt) + way;
}

// Threads take buckets level by level, and those of a level by hash function.
template <class Key, class Config>
__device__ __forceinline__ MapSpot<Key> map_spot(const MapView& view, Key key, unsigned rank) {
  using Shape = MapShape<Key, Config>;
  const unsigned way = rank % Config::kWays;
  const unsigned which = rank / Config::kWays % Config::kHashes;
  const unsigned level = rank / Config::kWays / Config::kHashes;
  const std::uint32_t top = Shape::top_bucket(view.buckets, key, which);
  const std::uint64_t bucket = Shape::bucket_at(view.buckets, top, level);
  const std::uint64_t offset = bucket * Shape::kBucketBytes;
  return {offset, map_key_at<Key, Config>(view.table, offset, way),
          map_word_at<Key, Config>(view.table, offset, way)};
}

// What a group sees of a key's slots, as bits by rank.
template <class Key>
struct MapLook {
  std::uint64_t word;  // of this thread's slot, if that has the key
  unsigned holding;    // has the key and a value
  unsigned claimed;    // has the key, and none yet
  unsigned gone;       // has the key, and will have none
  unsigned taken;      // has any key
};

// Words are loaded behind keys, and of this key alone. Beside others the loads are in order, and
// what the group does next is behind them: nothing of docs/map.md's argument needs that but the
// reading of a value's place, and it leaves nothing to weak memory (docs/model.md).
template <class Key, class Config, bool Alone>
__device__ __forceinline__ MapLook<Key> map_look(const MapGroup<Config::kWidth>& group,
                                                 const MapSpot<Key>& spot, Key wanted) {
  const Key held = map_load(spot.key);
  const bool same = held == wanted;
  if constexpr (!Alone) map_fence<Config::kScope>();
  const std::uint64_t word = same ? map_load(spot.word) : kMapNone;
  if constexpr (!Alone) {
    map_fence<Config::kScope>();
    group.sync();
  }
  MapLook<Key> look;
  look.word = word;
  look.holding = group.ballot(same && map_is_value(word));
  look.claimed = group.ballot(same && word == kMapNone);
  look.gone = group.ballot(same && word == kMapGone);
  look.taken = group.ballot(held != 0);
  return look;
}

__device__ __forceinline__ unsigned map_first_of(unsigned ranks) {
  return static_cast<unsigned>(__ffs(static_cast<int>(ranks))) - 1;
}

// An empty slot of the bucket with the fewest keys: its rank; Width: there is none. A bucket of the
// top level is preferred until it has half a bucket more than one below, which others share, and of
// equals the first: tables are fuller then when a key does not fit.
//
// Beside others keys are counted up to the first empty slot, which is the one that is taken. So who
// sees a slot empty counts no more keys there than whoever takes it: two groups that insert one key
// cannot take two slots of it unless one sees the other's (docs/map.md, "Duplicates").
template <class Key, class Config, bool Alone>
__device__ __forceinline__ unsigned map_choose(const MapLook<Key>& look) {
  constexpr unsigned kWays = Config::kWays;
  constexpr unsigned kAll = kWays == 32 ? 0xffffffffu : (1u << kWays % 32) - 1;
  unsigned chosen = Config::kWidth;
  unsigned fewest = ~0u;
#pragma unroll
  for (unsigned first = 0; first < Config::kWidth; first += kWays) {
    const unsigned taken = look.taken >> first & kAll;
    if (taken == kAll) continue;
    const unsigned empty = map_first_of(~taken);
    const unsigned below = first >= kWays * Config::kHashes ? kWays / 2 : 0;
    const unsigned keys = (Alone ? static_cast<unsigned>(__popc(taken)) : empty) + below;
    if (keys >= fewest) continue;
    fewest = keys;
    chosen = first + empty;
  }
  return chosen;
}

// ---- Values ------------------------------------------------------------------------------------

// All threads of the group copy together. Multiples of 4.
template <unsigned Width>
__device__ __forceinline__ void map_copy(const MapGroup<Width>& group, void* to, const void* from,
                                         std::uint32_t bytes) {
  const auto bits = reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  if (((bits | bytes) & 15) == 0) {
    for (std::uint32_t i = group.rank; i < bytes / 16; i += Width) {
      static_cast<uint4*>(to)[i] = static_cast<const uint4*>(from)[i];
    }
  } else {
    for (std::uint32_t i = group.rank; i < bytes / 4; i += Width) {
      static_cast<std::uint32_t*>(to)[i] = static_cast<const std::uint32_t*>(from)[i];
    }
  }
}

__device__ __forceinline__ std::uint64_t map_small_value(const MapView& view, const void* value) {
  const auto* const halves = static_cast<const std::uint32_t*>(value);
  if (view.value_bytes == 4) return kMapTag | halves[0];
  return (halves[0] | std::uint64_t{halves[1]} << 32) ^ view.empty_value;
}

// `wanted`: the key as slots have it.
__device__ __forceinline__ bool map_can_store(const MapView& view, std::uint64_t wanted,
                                              const void* value) {
  if (wanted == 0) return false;
  return view.values != nullptr || map_is_value(map_small_value(view, value));
}

// The word for a value: makes one, and stores a large one to a place of its own. kMapNone: there is
// no place left. What is stored is not durable yet. Group-wide, as all below.
template <class Config, bool Alone>
__device__ __forceinline__ std::uint64_t map_make_word(const MapView& view,
                                                       const MapGroup<Config::kWidth>& group,
                                                       const void* value) {
  if (view.values == nullptr) return map_small_value(view, value);
  std::uint32_t place = ~0u;
  if (group.rank == 0) {
    const unsigned long long taken = atomicAdd(view.head, 1ull);
    if constexpr (!Alone) map_fence<Config::kScope>();
    if (taken < view.limit) {
      place = view.free[taken % view.capacity];
      view.marks.mark(view.values + std::uint64_t{place} * view.stride, view.value_bytes);
    }
  }
  place = group.from(place, 0);
  if (place == ~0u) return kMapNone;
  map_copy(group, view.values + std::uint64_t{place} * view.stride, value, view.value_bytes);
  return kMapTag | place;
}

// A value that was seen in a slot, whole: it is never changed where it is.
template <unsigned Width>
__device__ __forceinline__ void map_take_value(const MapView& view, const MapGroup<Width>& group,
                                               std::uint64_t word, void* out) {
  if (view.values != nullptr) {
    map_copy(group, out, view.values + map_place_of(word) * view.stride, view.value_bytes);
  } else if (group.rank == 0) {
    auto* const halves = static_cast<std::uint32_t*>(out);
    if (view.value_bytes == 4) {
      halves[0] = static_cast<std::uint32_t>(word);
    } else {
      halves[0] = static_cast<std::uint32_t>(word ^ view.empty_value);
      halves[1] = static_cast<std::uint32_t>((word ^ view.empty_value) >> 32);
    }
  }
}

// All that the group has stored is durable, and each of its threads knows.
template <unsigned Width>
__device__ __forceinline__ void map_persist(const MapGroup<Width>& group) {
  persist();
  group.sync();
}

// ---- Operations beside others ------------------------------------------------------------------

enum class MapIntent {
  keep,
  put,
  assign
};  // what is there stays; either; what is not stays absent

// An operation that sets a value, while others use the table.
template <class Key, class Config>
class MapPut {
 public:
  static constexpr Scope kScope = Config::kScope;
  using Group = MapGroup<Config::kWidth>;

  __device__ MapPut(const MapView& view, const Group& group, Key key, const void* value)
      : view_(view),
        group_(group),
        wanted_(key ^ static_cast<Key>(view.empty_key)),
        value_(value),
        spot_(map_spot<Key, Config>(view, key, group.rank)) {}

  __device__ MapStatus run(MapIntent intent, void* out) {
    if (!map_can_store(view_, wanted_, value_)) return MapStatus::refused;
    for (;;) {
      const MapLook<Key> look = map_look<Key, Config, false>(group_, spot_, wanted_);
      if (look.holding != 0) {
        if (intent == MapIntent::keep) return keep(look, out);
        if (!make()) return MapStatus::no_value;
        if (replace(look)) return MapStatus::assigned;
        if (intent == MapIntent::assign) return MapStatus::absent;  // erased meanwhile
        continue;
      }
      if (intent == MapIntent::assign) return MapStatus::absent;
      unsigned slot = map_first_of(look.claimed);
      if (look.claimed == 0) slot = map_choose<Key, Config, false>(look);
      if (slot == Config::kWidth) return MapStatus::full;
      if (!make()) return MapStatus::no_value;
      if (!label(look, slot) || !publish(slot)) continue;
      if (out != nullptr) map_copy(group_, out, value_, view_.value_bytes);
      return MapStatus::inserted;
    }
  }

 private:
  __device__ MapStatus keep(const MapLook<Key>& look, void* out) {
    if (out != nullptr) {
      map_take_value(view_, group_, group_.from(look.word, map_first_of(look.holding)), out);
    }
    return MapStatus::kept;
  }

  __device__ bool make() {
    if (word_ == kMapNone) word_ = map_make_word<Config, false>(view_, group_, value_);
    return word_ != kMapNone;
  }

  __device__ void mark() const {
    view_.marks.mark(view_.table + spot_.offset, MapShape<Key, Config>::kBucketBytes);
  }

  // Whether the slot that holds the key has the new value. If not, the key was erased.
  __device__ bool replace(const MapLook<Key>& look) {
    if (view_.values != nullptr) map_persist(group_);
    const unsigned holder = map_first_of(look.holding);
    bool done = false;
    if (group_.rank == holder) {
      map_fence<kScope>();
      std::uint64_t before = look.word;
      while (!done && map_is_value(before)) {
        const std::uint64_t seen = map_cas<kScope>(spot_.word, before, word_);
        done = seen == before;
        before = seen;
      }
      mark();
      persist();
    }
    return group_.ballot(done) != 0;
  }

  // Takes the slot, or one that is taken for this key: stores the label again then, since whoever
  // has stored it may not have persisted it yet. So it is with an erasure that made way for this.
  // Returns whether the slot has the label; then that, and the value, are durable.
  __device__ bool label(const MapLook<Key>& look, unsigned slot) {
    bool done = false;
    if (group_.rank == slot) {
      const Key before = look.claimed == 0 ? Key{0} : wanted_;
      done = map_cas<kScope>(spot_.key, before, wanted_) == before;
      mark();
    }
    if ((look.gone >> group_.rank & 1) != 0) {
      map_cas<kScope>(spot_.word, kMapGone, kMapGone);
      mark();
    }
    map_persist(group_);
    return group_.ballot(done) != 0;
  }

  // False: another group has published in the slot, for the same key.
  __device__ bool publish(unsigned slot) {
    bool done = false;
    if (group_.rank == slot) {
      map_fence<kScope>();
      done = map_cas<kScope>(spot_.word, kMapNone, word_) == kMapNone;
      mark();
      persist();
    }
    return group_.ballot(done) != 0;
  }

  const MapView& view_;
  const Group& group_;
  const Key wanted_;  // as slots have it
  const void* const value_;
  const MapSpot<Key> spot_;
  std::uint64_t word_ = kMapNone;  // of the new value, once it is made
};

template <class Key, class Config>
__device__ __forceinline__ MapStatus map_erase(const MapView& view,
                                               const MapGroup<Config::kWidth>& group, Key key) {
  const Key wanted = key ^ static_cast<Key>(view.empty_key);
  if (wanted == 0) return MapStatus::absent;
  const MapSpot<Key> spot = map_spot<Key, Config>(view, key, group.rank);
  const MapLook<Key> look = map_look<Key, Config, false>(group, spot, wanted);
  if (look.holding == 0) return MapStatus::absent;
  bool done = false;
  if (group.rank == map_first_of(look.holding)) {
    std::uint64_t before = look.word;
    while (!done && map_is_value(before)) {
      const std::uint64_t seen = map_cas<Config::kScope>(spot.word, before, kMapGone);
      done = seen == before;
      before = seen;
    }
    view.marks.mark(spot.word, sizeof(*spot.word));
    persist();
  }
  return group.ballot(done) != 0 ? MapStatus::erased : MapStatus::absent;
}

// The word of a key's value; kMapNone: it is not there.
template <class Key, class Config, bool Alone>
__device__ __forceinline__ std::uint64_t map_find_word(const MapView& view,
                                                       const MapGroup<Config::kWidth>& group,
                                                       Key key) {
  const Key wanted = key ^ static_cast<Key>(view.empty_key);
  if (wanted == 0) return kMapNone;
  const MapSpot<Key> spot = map_spot<Key, Config>(view, key, group.rank);
  const MapLook<Key> look = map_look<Key, Config, Alone>(group, spot, wanted);
  if (look.holding == 0) return kMapNone;
  return group.from(look.word, map_first_of(look.holding));
}

// `out` may be null.
template <class Key, class Config, bool Alone>
__device__ __forceinline__ bool map_find(const MapView& view, const MapGroup<Config::kWidth>& group,
                                         Key key, void* out) {
  const std::uint64_t word = map_find_word<Key, Config, Alone>(view, group, key);
  if (!map_is_value(word)) return false;
  if (out != nullptr) map_take_value(view, group, word, out);
  return true;
}

}  // namespace detail

template <class Key, class Config>
__device__ MapStatus HashMapRef<Key, Config>::insert(const Group& group, Key key,
                                                     const void* value) const {
  return detail::MapPut<Key, Config>(view_, group, key, value)
      .run(detail::MapIntent::keep, nullptr);
}
template <class Key, class Config>
__device__ MapStatus HashMapRef<Key, Config>::insert_or_assign(const Group& group, Key key,
                                                               const void* value) const {
  return detail::MapPut<Key, Config>(view_, group, key, value).run(detail::MapIntent::put, nullptr);
}
template <class Key, class Config>
__device__ MapStatus HashMapRef<Key, Config>::assign(const Group& group, Key key,
                                                     const void* value) const {
  return detail::MapPut<Key, Config>(view_, group, key, value)
      .run(detail::MapIntent::assign, nullptr);
}
template <class Key, class Config>
__device__ MapStatus HashMapRef<Key, Config>::find_or_insert(const Group& group, Key key,
                                                             const void* value, void* out) const {
  return detail::MapPut<Key, Config>(view_, group, key, value).run(detail::MapIntent::keep, out);
}
template <class Key, class Config>
__device__ MapStatus HashMapRef<Key, Config>::erase(const Group& group, Key key) const {
  return detail::map_erase<Key, Config>(view_, group, key);
}
template <class Key, class Config>
__device__ bool HashMapRef<Key, Config>::find(const Group& group, Key key, void* out) const {
  return detail::map_find<Key, Config, false>(view_, group, key, out);
}
template <class Key, class Config>
__device__ bool HashMapRef<Key, Config>::contains(const Group& group, Key key) const {
  return detail::map_find<Key, Config, false>(view_, group, key, nullptr);
}

}  // namespace holdfast
