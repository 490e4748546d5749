// What a batch does that has the table to itself. Included by hash_map_kernels.inl alone.
#pragma once

namespace holdfast::detail {

template <class Key>
__device__ __forceinline__ MapKey<Key> map_key_of_op(const MapView& view, const MapBatch& batch,
                                                     std::uint64_t op) {
  if constexpr (std::is_integral_v<Key>) {
    return {static_cast<const Key*>(batch.keys)[op]};
  } else {
    return {batch.labels[op], static_cast<const std::byte*>(batch.keys) + op * view.key_words * 8};
  }
}

__device__ __forceinline__ MapIntent map_intent_of(MapOperation operation) {
  return operation == MapOperation::insert_or_assign ? MapIntent::put
         : operation == MapOperation::assign         ? MapIntent::assign
                                                     : MapIntent::keep;
}

// ---- A batch alone -----------------------------------------------------------------------------
// No other group has the same key, and nobody else looks. Others take slots for other keys. What is
// stored last is durable once the host has waited for the kernel, before which nothing is promised.

__device__ __forceinline__ void map_give_back(const MapView& view, std::uint64_t word,
                                              bool moved = false) {
  if (view.values == nullptr) return;
  map_cache_drop(view, map_place_of(word), moved);
  view.free[atomicAdd(view.tail, 1ull) % view.capacity] =
      static_cast<std::uint32_t>(map_place_of(word));
}

// Of the slot that thread `rank` looks at for a key; `old`: on the level that is emptied.
template <class Key, class Config>
__device__ __forceinline__ std::uint64_t map_slot_number(const MapView& view,
                                                         const MapKey<Key>& key, unsigned rank,
                                                         bool old = false) {
  using Shape = MapShape<Key, Config>;
  const unsigned which = rank / Config::kWays % Config::kHashes;
  const unsigned level = old ? Config::kLevels : rank / Config::kWays / Config::kHashes;
  const std::uint32_t top = Shape::top_bucket(view.buckets, key.label, which);
  return Shape::bucket_at(view.buckets, top, level) * Config::kWays + rank % Config::kWays;
}

// A slot in the region.
template <class Key, class Config>
struct MapHome {
  __device__ MapHome(const MapSpot<Key>& spot, unsigned way)
      : bucket(spot.home),
        label(map_label_at<Key, Config>(spot.home, way)),
        word(map_word_at<Key, Config>(spot.home, way)) {}
  std::byte* bucket;
  MapLabel<Key>* label;
  std::uint64_t* word;
};

// The words of a key of 16 bytes and more, in both copies of its bucket; by a group together.
template <class Key, class Config, unsigned Width, class WordAt>
__device__ __forceinline__ void map_store_key(const MapView& view, const MapGroup<Width>& group,
                                              std::byte* home, std::byte* bucket, unsigned way,
                                              WordAt&& word_at) {
  if constexpr (MapShape<Key, Config>::kIsLong) {
    std::uint64_t* const there = map_key_at<Key, Config>(view, home, way);
    std::uint64_t* const copy = map_key_at<Key, Config>(view, bucket, way);
    for (std::uint32_t i = group.rank; i < view.key_words; i += Width) {
      const std::uint64_t word = word_at(i);
      map_store(&there[i], word);
      if (copy != there) map_store(&copy[i], word);
    }
  }
}
// In the slot of one of the group's threads.
template <class Key, class Config, class WordAt>
__device__ __forceinline__ void map_store_key_of(const MapView& view,
                                                 const MapGroup<Config::kWidth>& group,
                                                 const MapSpot<Key>& spot, unsigned rank,
                                                 WordAt&& word_at) {
  if constexpr (MapShape<Key, Config>::kIsLong) {
    const auto its = [&](std::byte* bucket) {
      return reinterpret_cast<std::byte*>(
          group.from(reinterpret_cast<std::uintptr_t>(bucket), rank));
    };
    std::byte* const home = its(spot.home);
    map_store_key<Key, Config>(view, group, home, its(spot.bucket), rank % Config::kWays, word_at);
  }
}
struct MapNoWords {
  __device__ std::uint64_t operator()(std::uint32_t) const { return 0; }
};

// Both copies of it. What is durable when the host has waited, or the thread has persisted, is the
// region's alone.
template <class Key, class Config>
__device__ __forceinline__ void map_store_slot(const MapView& view, const MapSpot<Key>& spot,
                                               unsigned way, MapLabel<Key> label,
                                               std::uint64_t word) {
  const MapHome<Key, Config> home(spot, way);
  map_store(home.word, word);
  map_store(home.label, label);
  view.marks.mark(home.bucket, map_bucket_bytes<Key, Config>(view));
  if (spot.home == spot.bucket) return;
  map_store(spot.word, word);
  map_store(spot.label, label);
}

// An operation that sets a value: begin(), and if that leaves something to do, finish(), with the
// value durable at its place in between.
template <class Key, class Config>
class MapPutAlone {
 public:
  using Group = MapGroup<Config::kWidth>;
  using Label = MapLabel<Key>;
  __device__ MapPutAlone(const MapView& view, const Group& group, const MapKey<Key>& key,
                         const void* value)
      : view_(view), group_(group), key_(key), value_(value) {}

  __device__ MapStatus run(MapIntent intent, void* out) {
    if (!begin(intent, out)) return status_;
    if (view_.values != nullptr) {
      map_copy(group_, place(), value_, view_.value_bytes);
      map_persist(group_);
    }
    finish(out);
    return status_;
  }

  // Finds, or claims, the key's slot, and a place for the value.
  __device__ bool begin(MapIntent intent, void* out) {
    const MapSpot<Key> spot = map_spot<Key, Config>(view_, key_, group_.rank);
    for (;;) {
      const MapSeen<Key> seen = map_see<Key, Config, true>(view_, group_, spot, key_);
      const MapLook<Key>& look = seen.look;
      spot_ = seen.spot;
      if (look.holding != 0) {
        slot_ = map_first_of(look.holding);
        before_ = group_.from(look.word, slot_);
        if (intent == MapIntent::keep) {
          if (out != nullptr) map_cache_take(view_, group_, before_, out);
          if (group_.rank == slot_) map_cache_keep(view_, before_);
          return give_up(MapStatus::kept);
        }
        return make(MapStatus::assigned);
      }
      if (intent == MapIntent::assign) return give_up(MapStatus::absent);
      slot_ = map_choose<Key, Config, true>(look);
      if (slot_ == Config::kWidth) return give_up(MapStatus::full);
      if (!make(MapStatus::inserted)) return false;
      bool claimed = false;
      if (group_.rank == slot_) {
        claimed =
            map_cas<Config::kScope>(spot.label, Label{0}, map_wanted(view_, key_)) == Label{0};
      }
      if (group_.ballot(claimed) != 0) return true;
    }
  }

  __device__ void finish(void* out) {
    store();
    if (status_ == MapStatus::inserted) {
      if (group_.rank == slot_) map_cache_keep(view_, word_);
      if (out != nullptr) map_copy(group_, out, value_, view_.value_bytes);
      return;
    }
    if (view_.cache.entries != nullptr) map_cache_move(view_, group_, before_, word_, value_);
    if (group_.rank == slot_) map_give_back(view_, before_, true);
  }

  __device__ MapStatus status() const { return status_; }
  __device__ std::byte* place() const { return map_value_at(view_, map_place_of(word_)); }

 private:
  __device__ bool make(MapStatus status) {
    status_ = status;
    if (word_ == kMapNone) word_ = map_new_word<Config, true>(view_, group_, value_);
    if (word_ == kMapNone) status_ = MapStatus::no_value;
    return word_ != kMapNone;
  }
  __device__ bool give_up(MapStatus status) {
    status_ = status;
    if (word_ != kMapNone && group_.rank == 0) map_give_back(view_, word_);
    return false;
  }

  // A new label, and the words of a longer key, may come before the word or behind it: a slot holds
  // a key only with all of them.
  __device__ void store() {
    const MapHome<Key, Config> home(spot_, group_.rank % Config::kWays);
    const bool copied = spot_.home != spot_.bucket;
    if (status_ == MapStatus::inserted) {
      if (copied && group_.rank == slot_) map_store(home.label, map_wanted(view_, key_));
      if constexpr (MapShape<Key, Config>::kIsLong) {
        map_store_key_of<Key, Config>(view_, group_, spot_, slot_,
                                      [&](std::uint32_t i) { return key_.stored_word(i); });
      }
    }
    if (group_.rank != slot_) return;
    map_store(home.word, word_);
    view_.marks.mark(home.bucket, map_bucket_bytes<Key, Config>(view_));
    if (copied) map_store(spot_.word, word_);
  }

  const MapView& view_;
  const Group& group_;
  const MapKey<Key> key_;
  const void* const value_;
  MapSpot<Key> spot_;
  std::uint64_t word_ = kMapNone;
  std::uint64_t before_ = kMapNone;  // that of the slot, if it holds the key
  unsigned slot_ = 0;                // the rank of the thread whose slot it is
  MapStatus status_{};
};

// Nothing inserts meanwhile. The order of the stores does not matter.
template <class Key, class Config>
__device__ __forceinline__ MapStatus map_erase_alone(const MapView& view,
                                                     const MapGroup<Config::kWidth>& group,
                                                     const MapKey<Key>& key) {
  const MapSpot<Key> spot = map_spot<Key, Config>(view, key, group.rank);
  const MapSeen<Key> seen = map_see<Key, Config, true>(view, group, spot, key);
  if (seen.look.holding == 0) return MapStatus::absent;
  const unsigned holder = map_first_of(seen.look.holding);
  map_store_key_of<Key, Config>(view, group, seen.spot, holder, MapNoWords());
  if (group.rank != holder) return MapStatus::erased;
  map_store_slot<Key, Config>(view, seen.spot, group.rank % Config::kWays, MapLabel<Key>{0},
                              kMapNone);
  map_give_back(view, seen.look.word);
  if (view.scores != nullptr) {
    const bool old = seen.spot.bucket != spot.bucket;
    view.scores[map_slot_number<Key, Config>(view, key, holder, old)] = 0;
  }
  return MapStatus::erased;
}

// ---- The values of a block's operations --------------------------------------------------------
// A group that waits until its value is durable keeps its multiprocessor's fence to itself, and
// that serves one after the other: few threads store and persist the values of all groups of a
// block.

struct MapBlockValue {
  const void* from;
  std::byte* to;  // null: there is none
};

// Some warps copy, of which each persists what it has stored.
template <unsigned Groups>
__device__ __forceinline__ void map_persist_values(const MapView& view,
                                                   const MapBlockValue (&values)[Groups]) {
  constexpr unsigned kBytesOfThread = 32;  // as long as there are threads
  const unsigned groups = Groups * blockDim.x / kMapBlock;
  const unsigned wanted = groups * view.value_bytes / kBytesOfThread;
  const unsigned threads = wanted < 32 ? 32 : wanted < blockDim.x ? wanted / 32 * 32 : blockDim.x;
  if (threadIdx.x >= threads) return;
  const bool whole = view.value_bytes % 16 == 0;
  const unsigned pieces = view.value_bytes / (whole ? 16 : 4);
  for (unsigned i = threadIdx.x; i < groups * pieces; i += threads) {
    const MapBlockValue& value = values[i / pieces];
    if (value.to == nullptr) continue;
    const unsigned piece = i % pieces;
    if (!whole) {
      reinterpret_cast<std::uint32_t*>(value.to)[piece] =
          static_cast<const std::uint32_t*>(value.from)[piece];
    } else if (reinterpret_cast<std::uintptr_t>(value.from) % 16 == 0) {
      reinterpret_cast<uint4*>(value.to)[piece] = static_cast<const uint4*>(value.from)[piece];
    } else {
      const auto* const from =
          static_cast<const std::uint32_t*>(value.from) + std::size_t{piece} * 4;
      reinterpret_cast<uint4*>(value.to)[piece] = make_uint4(from[0], from[1], from[2], from[3]);
    }
  }
  persist();
}

// An operation of each group that `works`, of values in places. REQUIRES: all threads of the block
// are here.
template <class Key, class Config>
__device__ __forceinline__ MapStatus map_put_with_block(const MapView& view,
                                                        const MapGroup<Config::kWidth>& group,
                                                        const MapBatch& batch, bool works,
                                                        std::uint32_t op, const void* value,
                                                        void* out, MapIntent intent) {
  __shared__ MapBlockValue values[kMapBlock / Config::kWidth];
  MapKey<Key> key = map_no_key<Key>(view);
  if (works) key = map_key_of_op<Key>(view, batch, op);
  MapPutAlone<Key, Config> put(view, group, key, value);
  const bool waits = works && put.begin(intent, out);
  if (group.rank == 0) {
    values[threadIdx.x / Config::kWidth] = {value, waits ? put.place() : nullptr};
  }
  if (__syncthreads_count(waits) == 0) return put.status();
  map_persist_values(view, values);
  __syncthreads();
  if (waits) put.finish(out);
  return put.status();
}

}  // namespace holdfast::detail
