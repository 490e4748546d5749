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

// A slot that a thread looks at.
template <class Key>
struct MapSpot {
  std::byte* bucket;     // in MapView::level
  std::byte* home;       // the same bucket in the region
  MapLabel<Key>* label;  // in `bucket`
  std::uint64_t* word;
};

template <class Key, class Config>
__device__ __forceinline__ MapLabel<Key>* map_label_at(std::byte* bucket, unsigned way) {
  return reinterpret_cast<MapLabel<Key>*>(bucket) + way;
}
template <class Key, class Config>
__device__ __forceinline__ std::uint64_t* map_word_at(std::byte* bucket, unsigned way) {
  return reinterpret_cast<std::uint64_t*>(bucket + MapShape<Key, Config>::kWordsAt) + way;
}

// Of 16 bytes and more: its first word.
template <class Key, class Config>
__device__ __forceinline__ std::uint64_t* map_key_at(const MapView& view, std::byte* bucket,
                                                     unsigned way) {
  return reinterpret_cast<std::uint64_t*>(bucket + MapShape<Key, Config>::kKeysAt) +
         std::size_t{way} * view.key_words;
}
template <class Key, class Config>
__device__ __forceinline__ std::uint32_t map_bucket_bytes(const MapView& view) {
  return MapShape<Key, Config>::bucket_bytes(view.key_words);
}

// A slot of bucket number `number` of a level, which may be the one that a growing table empties.
template <class Key, class Config>
__device__ __forceinline__ MapSpot<Key> map_spot_at(const MapView& view, unsigned level,
                                                    std::uint64_t number, unsigned way) {
  // Selected, not indexed: a thread's own index would have the arrays copied to local memory.
  std::byte* first = view.level[0];
  std::byte* home = view.medium[0];
#pragma unroll
  for (unsigned i = 1; i <= Config::kLevels; ++i) {
    if (level != i) continue;
    first = view.level[i];
    home = view.medium[i];
  }
  const std::uint64_t offset = number * map_bucket_bytes<Key, Config>(view);
  std::byte* const bucket = first + offset;
  return {bucket, home != nullptr ? home + offset : bucket, map_label_at<Key, Config>(bucket, way),
          map_word_at<Key, Config>(bucket, way)};
}

// Threads take buckets level by level, and those of a level by hash function.
template <class Key, class Config>
__device__ __forceinline__ MapSpot<Key> map_spot(const MapView& view, const MapKey<Key>& key,
                                                 unsigned rank) {
  using Shape = MapShape<Key, Config>;
  const unsigned way = rank % Config::kWays;
  const unsigned which = rank / Config::kWays % Config::kHashes;
  const unsigned level = rank / Config::kWays / Config::kHashes;
  const std::uint32_t top = Shape::top_bucket(view.buckets, key.label, which);
  return map_spot_at<Key, Config>(view, level, top >> level, way);
}

__device__ __forceinline__ unsigned map_first_of(unsigned ranks) {
  return static_cast<unsigned>(__ffs(static_cast<int>(ranks))) - 1;
}

// Of slots that have a key's label, as bits by rank. In the others another key is, or will be.
struct MapCompared {
  unsigned equal;  // all words are the key's
  unsigned open;   // so are those that are stored, and some are not
};

// The words of longer keys, in slots `alike`: of one after the other, by all threads.
template <class Key, class Config, bool Alone>
__device__ __forceinline__ MapCompared map_compare(const MapView& view,
                                                   const MapGroup<Config::kWidth>& group,
                                                   const MapSpot<Key>& spot, const MapKey<Key>& key,
                                                   unsigned alike) {
  MapCompared result{};
  const auto mine = reinterpret_cast<std::uintptr_t>(
      map_key_at<Key, Config>(view, spot.bucket, group.rank % Config::kWays));
  for (unsigned left = alike; left != 0; left &= left - 1) {
    const unsigned rank = map_first_of(left);
    const auto* const words = reinterpret_cast<const std::uint64_t*>(group.from(mine, rank));
    bool differs = false, missing = false;
    for (std::uint32_t i = group.rank; i < view.key_words; i += Config::kWidth) {
      const std::uint64_t stored = map_load(words + i);
      if constexpr (!Alone) map_fence<Config::kScope>();
      missing = missing || stored == 0;
      differs = differs || (stored != 0 && stored != key.stored_word(i));
    }
    const bool open = group.ballot(missing) != 0;
    if (group.ballot(differs) != 0) continue;
    (open ? result.open : result.equal) |= 1u << rank;
  }
  return result;
}

// What a group sees of a key's slots, as bits by rank.
template <class Key>
struct MapLook {
  MapLabel<Key> held;  // by this thread's slot
  std::uint64_t word;  // of that slot, if it has the label
  unsigned holding;    // has the key and a value
  unsigned claimed;    // has the key, and no value yet; of a longer one: or may have it yet
  unsigned gone;       // has the key, and will have none
  unsigned taken;      // has any key
  unsigned alike;      // of 16 bytes and more: has the label
};

// A key as slots have it, or its label.
template <class Key>
__device__ __forceinline__ MapLabel<Key> map_wanted(const MapView& view, const MapKey<Key>& key) {
  return key.label ^ static_cast<MapLabel<Key>>(view.empty_key);
}

// The key of one of a group's threads.
template <class Key, unsigned Width>
__device__ __forceinline__ MapKey<Key> map_key_from(const MapGroup<Width>& group,
                                                    const MapKey<Key>& key, unsigned rank) {
  MapKey<Key> its = key;
  its.label = group.from(key.label, rank);
  if constexpr (!std::is_integral_v<Key>) {
    its.bytes = reinterpret_cast<const std::byte*>(
        group.from(reinterpret_cast<std::uintptr_t>(key.bytes), rank));
  }
  return its;
}

// Words are loaded behind keys, and of this key alone; the words of longer keys behind those, where
// the label is theirs. Beside others the loads are in order, and what the group does next is behind
// them: nothing of docs/map.md's argument needs that but the reading of a value's place, and it
// leaves nothing to weak memory (docs/model.md).
template <class Key, class Config, bool Alone>
__device__ __forceinline__ MapLook<Key> map_look(const MapView& view,
                                                 const MapGroup<Config::kWidth>& group,
                                                 const MapSpot<Key>& spot, const MapKey<Key>& key,
                                                 bool looks = true) {
  using Label = MapLabel<Key>;
  const Label held = looks ? map_load(spot.label) : Label{0};
  const bool same = held == map_wanted(view, key);
  if constexpr (!Alone) map_fence<Config::kScope>();
  const std::uint64_t word = same ? map_load(spot.word) : kMapNone;
  if constexpr (!Alone) {
    map_fence<Config::kScope>();
    group.sync();
  }
  MapLook<Key> look;
  look.held = held;
  look.word = word;
  look.taken = group.ballot(held != 0);
  look.alike = 0;
  if constexpr (MapShape<Key, Config>::kIsLong) {
    look.alike = group.ballot(same);
    const MapCompared is = map_compare<Key, Config, Alone>(view, group, spot, key, look.alike);
    look.holding = is.equal & group.ballot(map_is_value(word));
    look.claimed = (is.equal | is.open) & group.ballot(word == kMapNone);
    look.gone = is.equal & group.ballot(word == kMapGone);
    return look;
  }
  look.holding = group.ballot(same && map_is_value(word));
  look.claimed = group.ballot(same && word == kMapNone);
  look.gone = group.ballot(same && word == kMapGone);
  return look;
}

// What a group sees of a key on all levels.
template <class Key>
struct MapSeen {
  MapSpot<Key> spot;  // this thread's, where `look` was
  MapLook<Key> look;
  MapSpot<Key> old;  // this thread's on the level that a growing table empties
  bool gone_there;   // its slot there has the key, which was erased
};

// On the levels that stay; and if the key is not there, and the table grows, on the one that is
// emptied. No new key goes there; those that are there stay until the host moves them, alone, each
// to a slot of the top level that is kept for it: of the bucket above its own, the same way. Such
// slots count as taken. Which they are is settled while others look: the keys of slots on the old
// level do not change then.
template <class Key, class Config, bool Alone>
__device__ __forceinline__ MapSeen<Key> map_see(const MapView& view,
                                                const MapGroup<Config::kWidth>& group,
                                                const MapSpot<Key>& spot, const MapKey<Key>& key) {
  using Shape = MapShape<Key, Config>;
  const auto empty_key = static_cast<MapLabel<Key>>(view.empty_key);
  MapSeen<Key> seen{spot, map_look<Key, Config, Alone>(view, group, spot, key), spot, false};
  if (!view.growing || seen.look.holding != 0) return seen;
  const bool looks = group.rank < Config::kHashes * Config::kWays;
  const unsigned way = group.rank % Config::kWays;
  const unsigned which = group.rank / Config::kWays % Config::kHashes;
  const std::uint32_t top = Shape::top_bucket(view.buckets, key.label, which);
  seen.old = map_spot_at<Key, Config>(view, Config::kLevels, top >> Config::kLevels, way);
  const MapLook<Key> look = map_look<Key, Config, Alone>(view, group, seen.old, key, looks);
  if (look.holding != 0) {
    seen.spot = seen.old;
    seen.look = look;
    return seen;
  }
  seen.gone_there = (look.gone >> group.rank & 1) != 0;
  seen.look.taken |= group.ballot(
      look.held != 0 && Shape::top_bucket(view.buckets, look.held ^ empty_key, which) == top);
  return seen;
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

__device__ __forceinline__ std::byte* map_value_at(const MapView& view, std::uint64_t place) {
  if (place < view.first_places) return view.values + place * view.stride;
  std::uint64_t first = view.first_places;
  unsigned growth = 0;
  for (; place >= 2 * first; first *= 2) ++growth;
  return view.more[growth] + (place - first) * view.stride;
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

inline constexpr std::uint32_t kMapNoPlace = ~0u;

// A free place for a value, or none. Group-wide, as all below.
template <class Config, bool Alone>
__device__ __forceinline__ std::uint32_t map_take_place(const MapView& view,
                                                        const MapGroup<Config::kWidth>& group) {
  std::uint32_t place = kMapNoPlace;
  if (group.rank == 0) {
    const unsigned long long taken = atomicAdd(view.head, 1ull);
    if constexpr (!Alone) map_fence<Config::kScope>();
    if (taken < view.limit) {
      place = view.free[taken % view.capacity];
      view.marks.mark(map_value_at(view, place), view.value_bytes);
    }
  }
  return group.from(place, 0);
}

// The word for a value, which a large one gets with a place that it is not stored to yet. kMapNone:
// there is no place left.
template <class Config, bool Alone>
__device__ __forceinline__ std::uint64_t map_new_word(const MapView& view,
                                                      const MapGroup<Config::kWidth>& group,
                                                      const void* value) {
  if (view.values == nullptr) return map_small_value(view, value);
  const std::uint32_t place = map_take_place<Config, Alone>(view, group);
  return place == kMapNoPlace ? kMapNone : kMapTag | place;
}

// The same, and the value is stored, though not durable yet.
template <class Config, bool Alone>
__device__ __forceinline__ std::uint64_t map_make_word(const MapView& view,
                                                       const MapGroup<Config::kWidth>& group,
                                                       const void* value) {
  const std::uint64_t word = map_new_word<Config, Alone>(view, group, value);
  if (view.values != nullptr && word != kMapNone) {
    map_copy(group, map_value_at(view, map_place_of(word)), value, view.value_bytes);
  }
  return word;
}

// A value that was seen in a slot, whole: it is never changed where it is.
template <unsigned Width>
__device__ __forceinline__ void map_take_value(const MapView& view, const MapGroup<Width>& group,
                                               std::uint64_t word, void* out) {
  if (view.values != nullptr) {
    map_copy(group, out, map_value_at(view, map_place_of(word)), view.value_bytes);
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
  using Label = MapLabel<Key>;

  __device__ MapPut(const MapView& view, const Group& group, const MapKey<Key>& key,
                    const void* value)
      : view_(view),
        group_(group),
        key_(key),
        wanted_(map_wanted(view, key)),
        value_(value),
        spot_(map_spot<Key, Config>(view, key, group.rank)) {}

  __device__ MapStatus run(MapIntent intent, void* out) {
    if (!map_can_store(view_, wanted_, value_)) return MapStatus::refused;
    for (;;) {
      MapSeen<Key> seen = map_see<Key, Config, false>(view_, group_, spot_, key_);
      const MapLook<Key>& look = seen.look;
      if (look.holding != 0) {
        if (intent == MapIntent::keep) return keep(look, out);
        if (!make()) return MapStatus::no_value;
        if (replace(seen)) return MapStatus::assigned;
        if (intent == MapIntent::assign) return MapStatus::absent;  // erased meanwhile
        continue;
      }
      if (intent == MapIntent::assign) return MapStatus::absent;
      unsigned slot = map_first_of(look.claimed);
      if (look.claimed == 0) slot = map_choose<Key, Config, false>(look);
      if (slot == Config::kWidth) return MapStatus::full;
      if (!make()) return MapStatus::no_value;
      if (!label(seen, slot) || !publish(slot)) continue;
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

  __device__ void mark(const MapSpot<Key>& spot) const {
    view_.marks.mark(spot.home, map_bucket_bytes<Key, Config>(view_));
  }

  // Whether the slot that holds the key has the new value. If not, the key was erased.
  __device__ bool replace(const MapSeen<Key>& seen) {
    if (view_.values != nullptr) map_persist(group_);
    const unsigned holder = map_first_of(seen.look.holding);
    bool done = false;
    if (group_.rank == holder) {
      map_fence<kScope>();
      std::uint64_t before = seen.look.word;
      while (!done && map_is_value(before)) {
        const std::uint64_t found = map_cas<kScope>(seen.spot.word, before, word_);
        done = found == before;
        before = found;
      }
      mark(seen.spot);
      persist();
    }
    return group_.ballot(done) != 0;
  }

  // Takes the slot, or one that is taken for this key: stores the label again then, since whoever
  // has stored it may not have persisted it yet. So it is with an erasure that made way for this.
  // Returns whether the slot has the label, and the key; then that, and the value, are durable.
  __device__ bool label(MapSeen<Key>& seen, unsigned slot) {
    bool done = false;
    const bool claims = seen.look.claimed == 0;
    if (group_.rank == slot) {
      const Label before = claims ? Label{0} : wanted_;
      done = map_cas<kScope>(spot_.label, before, wanted_) == before;
      mark(spot_);
    }
    if constexpr (MapShape<Key, Config>::kIsLong) {
      map_fence<kScope>();
      if (group_.ballot(done) == 0 || !settle(slot)) return false;
      if ((!claims || seen.look.alike != 0) && !stands_alone(seen, slot)) return false;
    }
    if ((seen.look.gone >> group_.rank & 1) != 0) store_gone(spot_);
    if (seen.gone_there) store_gone(seen.old);
    map_persist(group_);
    return group_.ballot(done) != 0;
  }
  // Makes the key that of a slot with its label, word by word, beside whoever else does so: where
  // words differ the first one counts. Returns whether it has become this key's: then nobody
  // changes it. Stores again what others have stored.
  __device__ bool settle(unsigned slot) {
    bool done = false;
    if (group_.rank == slot) {
      std::uint64_t* const words =
          map_key_at<Key, Config>(view_, spot_.bucket, group_.rank % Config::kWays);
      done = true;
      for (std::uint32_t i = 0; done && i < view_.key_words; ++i) {
        const std::uint64_t mine = key_.stored_word(i);
        const std::uint64_t before = map_cas<kScope>(&words[i], std::uint64_t{0}, mine);
        done = before == 0 || (before == mine && map_cas<kScope>(&words[i], mine, mine) == mine);
        map_fence<kScope>();
      }
      mark(spot_);
    }
    return group_.ballot(done) != 0;
  }
  // Of slots that keys with one label have claimed, two may become this key's. Looks again; where
  // there is another slot that is this key's, or may be, one of the two is given up, and false is
  // returned. So it is if the key is there by now.
  __device__ bool stands_alone(MapSeen<Key>& seen, unsigned slot) {
    seen = map_see<Key, Config, false>(view_, group_, spot_, key_);
    const unsigned claimed = seen.look.claimed;
    if (seen.look.holding == 0 && claimed == 1u << slot) return true;
    const unsigned others = claimed & (claimed - 1);
    if (seen.look.holding != 0 || others == 0) return false;
    const unsigned other = map_first_of(others);
    if (settle(other) && group_.rank == other) {
      map_cas<kScope>(spot_.word, kMapNone, kMapGone);
      map_fence<kScope>();
      mark(spot_);
    }
    group_.sync();
    return false;
  }
  __device__ void store_gone(const MapSpot<Key>& spot) const {
    map_cas<kScope>(spot.word, kMapGone, kMapGone);
    mark(spot);
  }

  // False: another group has published in the slot, for the same key.
  __device__ bool publish(unsigned slot) {
    bool done = false;
    if (group_.rank == slot) {
      map_fence<kScope>();
      done = map_cas<kScope>(spot_.word, kMapNone, word_) == kMapNone;
      mark(spot_);
      persist();
    }
    return group_.ballot(done) != 0;
  }

  const MapView& view_;
  const Group& group_;
  const MapKey<Key> key_;
  const Label wanted_;  // as slots have it
  const void* const value_;
  const MapSpot<Key> spot_;
  std::uint64_t word_ = kMapNone;  // of the new value, once it is made
};

template <class Key, class Config>
__device__ __forceinline__ MapStatus map_erase(const MapView& view,
                                               const MapGroup<Config::kWidth>& group,
                                               const MapKey<Key>& key) {
  if (map_wanted(view, key) == 0) return MapStatus::absent;
  const MapSeen<Key> seen =
      map_see<Key, Config, false>(view, group, map_spot<Key, Config>(view, key, group.rank), key);
  if (seen.look.holding == 0) return MapStatus::absent;
  bool done = false;
  if (group.rank == map_first_of(seen.look.holding)) {
    std::uint64_t before = seen.look.word;
    while (!done && map_is_value(before)) {
      const std::uint64_t found = map_cas<Config::kScope>(seen.spot.word, before, kMapGone);
      done = found == before;
      before = found;
    }
    view.marks.mark(seen.spot.word, sizeof(*seen.spot.word));
    persist();
  }
  return group.ballot(done) != 0 ? MapStatus::erased : MapStatus::absent;
}

// Changes the word of the slot that was seen to hold a key, if it is still `before`; what is behind
// `after` is durable, and the change is when this returns. If not, another operation of the key has
// gone on.
template <class Key, class Config>
__device__ __forceinline__ bool map_exchange(const MapView& view,
                                             const MapGroup<Config::kWidth>& group,
                                             const MapSeen<Key>& seen, std::uint64_t before,
                                             std::uint64_t after) {
  bool done = false;
  if (group.rank == map_first_of(seen.look.holding)) {
    map_fence<Config::kScope>();
    done = map_cas<Config::kScope>(seen.spot.word, before, after) == before;
    view.marks.mark(seen.spot.home, map_bucket_bytes<Key, Config>(view));
    persist();
  }
  return group.ballot(done) != 0;
}

// The word of a key's value; kMapNone: it is not there.
template <class Key, class Config, bool Alone>
__device__ __forceinline__ std::uint64_t map_find_word(const MapView& view,
                                                       const MapGroup<Config::kWidth>& group,
                                                       const MapKey<Key>& key) {
  if (map_wanted(view, key) == 0) return kMapNone;
  const MapSeen<Key> seen =
      map_see<Key, Config, Alone>(view, group, map_spot<Key, Config>(view, key, group.rank), key);
  if (seen.look.holding == 0) return kMapNone;
  return group.from(seen.look.word, map_first_of(seen.look.holding));
}

// `out` may be null.
template <class Key, class Config, bool Alone>
__device__ __forceinline__ bool map_find(const MapView& view, const MapGroup<Config::kWidth>& group,
                                         const MapKey<Key>& key, void* out) {
  const std::uint64_t word = map_find_word<Key, Config, Alone>(view, group, key);
  if (!map_is_value(word)) return false;
  if (out != nullptr) map_take_value(view, group, word, out);
  return true;
}

}  // namespace detail

template <class Key, class Config>
__device__ MapStatus HashMapRef<Key, Config>::insert(const Group& group, KeyArgument key,
                                                     const void* value) const {
  return detail::MapPut<Kernels, Config>(view_, group, detail::map_key_of<Config>(key), value)
      .run(detail::MapIntent::keep, nullptr);
}
template <class Key, class Config>
__device__ MapStatus HashMapRef<Key, Config>::insert_or_assign(const Group& group, KeyArgument key,
                                                               const void* value) const {
  return detail::MapPut<Kernels, Config>(view_, group, detail::map_key_of<Config>(key), value)
      .run(detail::MapIntent::put, nullptr);
}
template <class Key, class Config>
__device__ MapStatus HashMapRef<Key, Config>::assign(const Group& group, KeyArgument key,
                                                     const void* value) const {
  return detail::MapPut<Kernels, Config>(view_, group, detail::map_key_of<Config>(key), value)
      .run(detail::MapIntent::assign, nullptr);
}
template <class Key, class Config>
__device__ MapStatus HashMapRef<Key, Config>::find_or_insert(const Group& group, KeyArgument key,
                                                             const void* value, void* out) const {
  return detail::MapPut<Kernels, Config>(view_, group, detail::map_key_of<Config>(key), value)
      .run(detail::MapIntent::keep, out);
}
template <class Key, class Config>
__device__ MapStatus HashMapRef<Key, Config>::erase(const Group& group, KeyArgument key) const {
  return detail::map_erase<Kernels, Config>(view_, group, detail::map_key_of<Config>(key));
}
template <class Key, class Config>
__device__ bool HashMapRef<Key, Config>::find(const Group& group, KeyArgument key,
                                              void* out) const {
  return detail::map_find<Kernels, Config, false>(view_, group, detail::map_key_of<Config>(key),
                                                  out);
}
template <class Key, class Config>
__device__ bool HashMapRef<Key, Config>::contains(const Group& group, KeyArgument key) const {
  return detail::map_find<Kernels, Config, false>(view_, group, detail::map_key_of<Config>(key),
                                                  nullptr);
}

}  // namespace holdfast
