// The kernels of a map's batches, and what of them the host calls: a table of functions for each
// type of map. Included by hash_map.hpp alone.
#pragma once

namespace holdfast::detail {

// Operations in memory that kernels reach.
struct MapBatch {
  const void* keys;
  const std::byte* values;  // null: there are none (erase, lookups)
  std::byte* out;           // null: nothing is asked for
  // By operation; in device memory. Of lookups: those that are superseded find nothing; null: none
  // are.
  MapStatus* status;
  std::uint8_t* found;         // lookups: by operation
  const std::uint32_t* order;  // null: in their own
  // Operations whose key, and whose value, cannot be stored. If there are any nothing is done.
  const std::uint32_t* refuse;
  std::uint32_t count;
  bool alone;  // no kernel with a ref runs beside it
};

// What a survey of the table finds.
struct MapSurvey {
  static constexpr unsigned long long kNowhere = ~0ull;
  unsigned long long pairs;
  unsigned long long cleared;
  unsigned long long gone;
  unsigned long long loose;  // empty key and a word
  unsigned long long duplicates;
  unsigned long long damaged;       // slots
  unsigned long long first_damage;  // the lowest of them
};

// For the host; each is stream-ordered.
struct MapKernels {
  std::uint32_t bucket_bytes;
  // Bucket number `i`, of levels x hashes, that a key may be in. On the host.
  std::uint64_t (*bucket_of)(std::uint32_t top, std::uint64_t key, unsigned i);
  // The key's bucket of the top level, and its number, by operation.
  void (*place)(Stream&, const MapView&, const MapBatch&, std::uint32_t* bucket, std::uint32_t* op);
  void (*apply)(Stream&, const MapView&, const MapBatch&, MapOperation);
  // Adds to values, beside others; otherwise as apply.
  void (*accumulate)(Stream&, const MapView&, const MapBatch&, MapElement);
  void (*find)(Stream&, const MapView&, const MapBatch&);
  // Of lookups, in a map with a cache.
  void (*serve)(Stream&, const MapView&, const MapBatch&, const MapServed&);
  // Of lookups: the place of each value, or the map's capacity of them, and the operation's number.
  void (*locate)(Stream&, const MapView&, const MapBatch&, std::uint32_t* place, std::uint32_t* op);
  // Looks at all slots, notes places that words name as bits of `used`.
  void (*survey)(Stream&, const MapView&, std::uint32_t* used, MapSurvey*);
  // By slot: 1 if it holds a key that a preferred slot has, too, else 0.
  void (*find_duplicates)(Stream&, const MapView&, std::uint8_t* duplicate);
  // Empties the region's slots that hold nothing, or else (not null) those of duplicates.
  void (*mend)(Stream&, const MapView&, const std::uint8_t* duplicate);
  // Appends the pairs of slots [first, first + slots) at *pairs, and counts them there.
  void (*collect)(Stream&, const MapView&, std::uint64_t first, std::uint64_t slots, void* keys,
                  std::byte* values, unsigned long long* pairs);
  // Moves what slots [first, first + slots) of the level hold that a growing table empties.
  void (*migrate)(Stream&, const MapView&, std::uint64_t first, std::uint64_t slots);
};

#if HOLDFAST_DEVICE_CODE

inline constexpr unsigned kMapBlock = 256;

__device__ inline std::uint64_t map_thread() {
  return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

}  // namespace holdfast::detail

#include "holdfast/hash_map_cache.inl"

namespace holdfast::detail {

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

// A slot in the region.
template <class Key, class Config>
struct MapHome {
  __device__ MapHome(const MapSpot<Key>& spot, unsigned way)
      : bucket(spot.home),
        key(map_key_at<Key, Config>(spot.home, way)),
        word(map_word_at<Key, Config>(spot.home, way)) {}
  std::byte* bucket;
  Key* key;
  std::uint64_t* word;
};

// Both copies of it. What is durable when the host has waited, or the thread has persisted, is the
// region's alone.
template <class Key, class Config>
__device__ __forceinline__ void map_store_slot(const MapView& view, const MapSpot<Key>& spot,
                                               unsigned way, Key key, std::uint64_t word) {
  const MapHome<Key, Config> home(spot, way);
  map_store(home.word, word);
  map_store(home.key, key);
  view.marks.mark(home.bucket, MapShape<Key, Config>::kBucketBytes);
  if (spot.home == spot.bucket) return;
  map_store(spot.word, word);
  map_store(spot.key, key);
}

template <class Key, class Config>
class MapPutAlone {
 public:
  using Group = MapGroup<Config::kWidth>;
  __device__ MapPutAlone(const MapView& view, const Group& group, Key key, const void* value)
      : view_(view),
        group_(group),
        key_(key),
        wanted_(key ^ static_cast<Key>(view.empty_key)),
        value_(value),
        spot_(map_spot<Key, Config>(view, key, group.rank)) {}

  __device__ MapStatus run(MapIntent intent, void* out) {
    for (;;) {
      const MapSeen<Key> seen = map_see<Key, Config, true>(view_, group_, spot_, key_);
      const MapLook<Key>& look = seen.look;
      if (look.holding != 0) {
        const unsigned holder = map_first_of(look.holding);
        if (intent == MapIntent::keep) {
          if (out != nullptr) {
            map_cache_take(view_, group_, group_.from(look.word, holder), out);
          }
          if (group_.rank == holder) map_cache_keep(view_, look.word);
          return give_up(MapStatus::kept);
        }
        if (!make()) return MapStatus::no_value;
        store(seen.spot, holder, false);
        if (view_.cache.entries != nullptr) {
          map_cache_move(view_, group_, group_.from(look.word, holder), word_, value_);
        }
        if (group_.rank == holder) map_give_back(view_, look.word, true);
        return MapStatus::assigned;
      }
      if (intent == MapIntent::assign) return MapStatus::absent;
      const unsigned chosen = map_choose<Key, Config, true>(look);
      if (chosen == Config::kWidth) return give_up(MapStatus::full);
      if (!make()) return MapStatus::no_value;
      bool claimed = false;
      if (group_.rank == chosen) {
        claimed = map_cas<Config::kScope>(spot_.key, Key{0}, wanted_) == Key{0};
      }
      if (group_.ballot(claimed) == 0) continue;
      store(spot_, chosen, true);
      if (group_.rank == chosen) map_cache_keep(view_, word_);
      if (out != nullptr) map_copy(group_, out, value_, view_.value_bytes);
      return MapStatus::inserted;
    }
  }

 private:
  __device__ bool make() {
    if (word_ == kMapNone) word_ = map_make_word<Config, true>(view_, group_, value_);
    return word_ != kMapNone;
  }
  __device__ MapStatus give_up(MapStatus status) {
    if (word_ != kMapNone && group_.rank == 0) map_give_back(view_, word_);
    return status;
  }

  // The word behind the value that it names. A new label may come before or behind it: a slot holds
  // a key only with both.
  __device__ void store(const MapSpot<Key>& spot, unsigned rank, bool label) {
    const MapHome<Key, Config> home(spot, group_.rank % Config::kWays);
    const bool copied = spot.home != spot.bucket;
    if (label && copied && group_.rank == rank) map_store(home.key, wanted_);
    if (view_.values != nullptr) map_persist(group_);
    if (group_.rank != rank) return;
    map_store(home.word, word_);
    view_.marks.mark(home.bucket, MapShape<Key, Config>::kBucketBytes);
    if (copied) map_store(spot.word, word_);
  }

  const MapView& view_;
  const Group& group_;
  const Key key_;
  const Key wanted_;
  const void* const value_;
  const MapSpot<Key> spot_;
  std::uint64_t word_ = kMapNone;
};

// Nothing inserts meanwhile. The order of the two stores does not matter.
template <class Key, class Config>
__device__ __forceinline__ MapStatus map_erase_alone(const MapView& view,
                                                     const MapGroup<Config::kWidth>& group,
                                                     Key key) {
  const MapSeen<Key> seen =
      map_see<Key, Config, true>(view, group, map_spot<Key, Config>(view, key, group.rank), key);
  if (seen.look.holding == 0) return MapStatus::absent;
  if (group.rank != map_first_of(seen.look.holding)) return MapStatus::erased;
  map_store_slot<Key, Config>(view, seen.spot, group.rank % Config::kWays, Key{0}, kMapNone);
  map_give_back(view, seen.look.word);
  return MapStatus::erased;
}

// ---- Kernels of batches ------------------------------------------------------------------------

template <class Key, class Config>
__global__ void map_place_kernel(MapView view, MapBatch batch, std::uint32_t* bucket,
                                 std::uint32_t* op) {
  const std::uint64_t i = map_thread();
  if (i >= batch.count) return;
  bucket[i] =
      MapShape<Key, Config>::top_bucket(view.buckets, static_cast<const Key*>(batch.keys)[i], 0);
  op[i] = static_cast<std::uint32_t>(i);
}

template <class Key, class Config, bool Alone>
__device__ __forceinline__ MapStatus map_operation(const MapView& view,
                                                   const MapGroup<Config::kWidth>& group, Key key,
                                                   const void* value, void* out,
                                                   MapOperation operation) {
  if (operation == MapOperation::erase) {
    if constexpr (Alone) return map_erase_alone<Key, Config>(view, group, key);
    return map_erase<Key, Config>(view, group, key);
  }
  const MapIntent intent = operation == MapOperation::insert_or_assign ? MapIntent::put
                           : operation == MapOperation::assign         ? MapIntent::assign
                                                                       : MapIntent::keep;
  using Put = std::conditional_t<Alone, MapPutAlone<Key, Config>, MapPut<Key, Config>>;
  return Put(view, group, key, value).run(intent, out);
}

// A group for each operation. Those that are superseded say so already.
template <class Key, class Config, bool Alone>
__global__ void map_apply_kernel(MapView view, MapBatch batch, MapOperation operation) {
  const MapGroup<Config::kWidth> group;
  const std::uint64_t position = map_thread() / Config::kWidth;
  if (position >= batch.count) return;
  if (batch.refuse[0] != 0 || batch.refuse[1] != 0) return;
  const std::uint32_t op =
      batch.order != nullptr ? batch.order[position] : static_cast<std::uint32_t>(position);
  if (batch.status[op] == MapStatus::superseded) return;
  const Key key = static_cast<const Key*>(batch.keys)[op];
  const std::uint64_t at = std::uint64_t{op} * view.value_bytes;
  const MapStatus status = map_operation<Key, Config, Alone>(
      view, group, key, batch.values != nullptr ? batch.values + at : nullptr,
      batch.out != nullptr ? batch.out + at : nullptr, operation);
  group.sync();  // nobody's status is stored before all have looked
  if (group.rank == 0) batch.status[op] = status;
}

// What cannot be stored is for a batch as if there were no place for it.
template <class Key, class Config>
__global__ void map_accumulate_kernel(MapView view, MapBatch batch, MapElement element) {
  const MapGroup<Config::kWidth> group;
  const std::uint64_t position = map_thread() / Config::kWidth;
  if (position >= batch.count || batch.refuse[0] != 0) return;
  const std::uint32_t op =
      batch.order != nullptr ? batch.order[position] : static_cast<std::uint32_t>(position);
  if (batch.status[op] == MapStatus::superseded) return;
  const MapStatus status =
      map_accumulate<Key, Config>(view, group, static_cast<const Key*>(batch.keys)[op],
                                  batch.values + std::uint64_t{op} * view.value_bytes, element);
  group.sync();  // nobody's status is stored before all have looked
  if (group.rank == 0) {
    batch.status[op] = status == MapStatus::refused ? MapStatus::no_value : status;
  }
}

// The key that a lookup is for; the empty one: none.
template <class Key>
__device__ __forceinline__ Key map_key_to_find(const MapView& view, const MapBatch& batch,
                                               std::uint64_t op) {
  if (batch.status != nullptr && batch.status[op] == MapStatus::superseded) {
    return static_cast<Key>(view.empty_key);
  }
  return static_cast<const Key*>(batch.keys)[op];
}

template <class Key, class Config, bool Alone>
__global__ void map_find_kernel(MapView view, MapBatch batch) {
  const MapGroup<Config::kWidth> group;
  const std::uint64_t position = map_thread() / Config::kWidth;
  if (position >= batch.count) return;
  const std::uint32_t op =
      batch.order != nullptr ? batch.order[position] : static_cast<std::uint32_t>(position);
  const Key key = map_key_to_find<Key>(view, batch, op);
  std::byte* const out =
      batch.out != nullptr ? batch.out + std::uint64_t{op} * view.value_bytes : nullptr;
  const bool found = map_find<Key, Config, Alone>(view, group, key, out);
  if (group.rank == 0) batch.found[op] = found ? 1 : 0;
}

template <class Key, class Config, bool Alone>
__global__ void map_locate_kernel(MapView view, MapBatch batch, std::uint32_t* place,
                                  std::uint32_t* to_op) {
  const MapGroup<Config::kWidth> group;
  const std::uint64_t position = map_thread() / Config::kWidth;
  if (position >= batch.count) return;
  const std::uint32_t op =
      batch.order != nullptr ? batch.order[position] : static_cast<std::uint32_t>(position);
  const Key key = map_key_to_find<Key>(view, batch, op);
  const std::uint64_t word = map_find_word<Key, Config, Alone>(view, group, key);
  if (group.rank != 0) return;
  const bool found = map_is_value(word);
  batch.found[op] = found ? 1 : 0;
  place[position] = found ? static_cast<std::uint32_t>(map_place_of(word)) : view.capacity;
  to_op[position] = op;
}

// ---- Kernels over the table --------------------------------------------------------------------

// What a slot has, and whether it can be so. Those of the level that a growing table empties have
// the last numbers.
template <class Key, class Config>
struct MapSlot {
  using Shape = MapShape<Key, Config>;
  static constexpr unsigned kWays = Config::kWays;

  __device__ MapSlot(const MapView& table, std::uint64_t slot)
      : MapSlot(table, slot, slot / kWays, static_cast<unsigned>(slot % kWays)) {}

  __device__ bool holds() const { return held != 0 && map_is_value(word); }
  __device__ Key key() const { return held ^ static_cast<Key>(view.empty_key); }
  __device__ unsigned levels() const { return Config::kLevels + (view.growing ? 1 : 0); }

  // Whether it is where its key can be, with a word that can be.
  __device__ bool is_sound() const {
    const bool tagged = view.values != nullptr || view.value_bytes == 4;
    if (tagged && word >> 32 != kMapTag >> 32) return false;
    if (view.values != nullptr && map_place_of(word) >= view.capacity) return false;
    for (unsigned which = 0; which < Config::kHashes; ++which) {
      const std::uint32_t top = Shape::top_bucket(view.buckets, key(), which);
      for (unsigned on = 0; on < levels(); ++on) {
        if (Shape::bucket_at(view.buckets, top, on) != bucket) continue;
        if (on < Config::kLevels) return true;
        const Key there = map_load(new_spot().key);
        return there == 0 || there == held;
      }
    }
    return false;
  }
  // Whether a slot of a lower number holds its key, too.
  __device__ bool is_duplicate() const {
    for (unsigned which = 0; which < Config::kHashes; ++which) {
      const std::uint32_t top = Shape::top_bucket(view.buckets, key(), which);
      for (unsigned on = 0; on < levels(); ++on) {
        const std::uint64_t other = Shape::bucket_at(view.buckets, top, on);
        for (unsigned i = 0; i < kWays && other * kWays + i < number; ++i) {
          const MapSlot slot_of_it(view, other * kWays + i);
          if (slot_of_it.held == held && slot_of_it.holds()) return true;
        }
      }
    }
    return false;
  }
  // Where its key moves, from the level that is emptied.
  __device__ MapSpot<Key> new_spot() const {
    const std::uint32_t part = (view.buckets >> Config::kLevels) / Config::kHashes;
    const auto which = static_cast<unsigned>(at / part);
    return map_spot_at<Key, Config>(view, 0, Shape::top_bucket(view.buckets, key(), which), way);
  }

  const MapView& view;
  std::uint64_t number;
  std::uint64_t bucket;  // of all
  std::uint64_t at;      // of its level
  unsigned way;
  MapSpot<Key> spot;
  Key held;
  std::uint64_t word;

 private:
  __device__ MapSlot(const MapView& table, std::uint64_t slot, std::uint64_t bucket_of_all,
                     unsigned way_of_it)
      : view(table), number(slot), bucket(bucket_of_all), at(bucket_of_all), way(way_of_it) {
    unsigned level = 0;
    for (; level < Config::kLevels && at >= view.buckets >> level; ++level) {
      at -= view.buckets >> level;
    }
    spot = map_spot_at<Key, Config>(view, level, at, way);
    held = map_load(spot.key);
    word = map_load(spot.word);
  }
};

// Counts by barriers: atomics of single threads would be as many orders for the checker to explore.
__device__ inline void map_count(bool mine, unsigned long long* to) {
  const int all = __syncthreads_count(mine);
  if (threadIdx.x == 0 && all != 0) atomicAdd(to, static_cast<unsigned long long>(all));
}

template <class Key, class Config>
__global__ void map_survey_kernel(MapView view, std::uint64_t slots, std::uint32_t* used,
                                  MapSurvey* survey) {
  const std::uint64_t number = map_thread();
  bool cleared = false, gone = false, loose = false, pair = false, duplicate = false, bad = false;
  if (number < slots) {
    const MapSlot<Key, Config> slot(view, number);
    if (!slot.holds()) {
      cleared = slot.held != 0 && slot.word == kMapNone;
      gone = slot.held != 0 && slot.word == kMapGone;
      loose = slot.held == 0 && slot.word != kMapNone;
    } else if (!slot.is_sound()) {
      bad = true;
    } else if (slot.is_duplicate()) {
      duplicate = true;
    } else {
      pair = true;
      if (view.values != nullptr) {
        const std::uint64_t place = map_place_of(slot.word);
        const unsigned bit = 1u << (place % 32);
        bad = (atomicOr(&used[place / 32], bit) & bit) != 0;
      }
    }
    if (bad) atomicMin(&survey->first_damage, static_cast<unsigned long long>(number));
  }
  map_count(pair, &survey->pairs);
  map_count(cleared, &survey->cleared);
  map_count(gone, &survey->gone);
  map_count(loose, &survey->loose);
  map_count(duplicate, &survey->duplicates);
  map_count(bad, &survey->damaged);
}

// Apart from what empties them: of several that yield to one another one has to stay.
template <class Key, class Config>
__global__ void map_duplicates_kernel(MapView view, std::uint64_t slots, std::uint8_t* duplicate) {
  const std::uint64_t number = map_thread();
  if (number >= slots) return;
  const MapSlot<Key, Config> slot(view, number);
  duplicate[number] = slot.holds() && slot.is_duplicate() ? 1 : 0;
}

template <class Key, class Config>
__global__ void map_mend_kernel(MapView view, std::uint64_t slots, const std::uint8_t* duplicate) {
  const std::uint64_t number = map_thread();
  if (number >= slots) return;
  if (duplicate != nullptr && duplicate[number] == 0) return;
  const MapSlot<Key, Config> slot(view, number);
  if (duplicate == nullptr && (slot.holds() || (slot.held == 0 && slot.word == kMapNone))) return;
  const MapHome<Key, Config> home(slot.spot, slot.way);
  map_store(home.word, kMapNone);
  map_store(home.key, Key{0});
  view.marks.mark(home.bucket, MapShape<Key, Config>::kBucketBytes);
}

// A key is durable in its new slot before it is cleared from its old one. Nobody else uses that
// slot: it is kept for this key. Each thread's moves are its own.
template <class Key, class Config>
__global__ void map_migrate_kernel(MapView view, std::uint64_t first, std::uint64_t slots) {
  const std::uint64_t i = map_thread();
  if (i >= slots) return;
  const MapSlot<Key, Config> slot(view, first + i);
  if (!slot.holds()) return;
  map_store_slot<Key, Config>(view, slot.new_spot(), slot.way, slot.held, slot.word);
  persist();
  map_store_slot<Key, Config>(view, slot.spot, slot.way, Key{0}, kMapNone);
}

}  // namespace holdfast::detail

#include "holdfast/hash_map_export.inl"

namespace holdfast::detail {

// ---- For the host ------------------------------------------------------------------------------

template <class Key, class Config>
struct MapLaunch {
  using Shape = MapShape<Key, Config>;
  static std::uint64_t bucket_of(std::uint32_t top, std::uint64_t key, unsigned i) {
    return Shape::bucket_at(top, Shape::top_bucket(top, key, i % Config::kHashes),
                            i / Config::kHashes);
  }
  static std::uint64_t slots_of(const MapView& view) {
    const std::uint64_t buckets =
        Shape::first_of_level(view.buckets, Config::kLevels + (view.growing ? 1 : 0));
    return buckets * Config::kWays;
  }
  static dim3 grid_of(std::uint64_t threads) { return dim3(blocks_for(threads, kMapBlock)); }

  static void place(Stream& stream, const MapView& view, const MapBatch& batch,
                    std::uint32_t* bucket, std::uint32_t* op) {
    launch(stream, grid_of(batch.count), dim3(kMapBlock), map_place_kernel<Key, Config>, view,
           batch, bucket, op);
  }
  // A block of no more threads than there are operations for.
  static LaunchShape groups(std::uint32_t count) {
    const std::uint64_t threads = std::uint64_t{count} * Config::kWidth;
    if (threads >= kMapBlock) return {grid_of(threads), dim3(kMapBlock)};
    return {dim3(1), dim3(static_cast<unsigned>((threads + 31) / 32 * 32))};
  }
  static void apply(Stream& stream, const MapView& view, const MapBatch& batch,
                    MapOperation operation) {
    const auto kernel =
        batch.alone ? map_apply_kernel<Key, Config, true> : map_apply_kernel<Key, Config, false>;
    launch(stream, groups(batch.count), kernel, view, batch, operation);
  }
  static void accumulate(Stream& stream, const MapView& view, const MapBatch& batch,
                         MapElement element) {
    launch(stream, groups(batch.count), map_accumulate_kernel<Key, Config>, view, batch, element);
  }
  static void find(Stream& stream, const MapView& view, const MapBatch& batch) {
    const auto kernel =
        batch.alone ? map_find_kernel<Key, Config, true> : map_find_kernel<Key, Config, false>;
    launch(stream, groups(batch.count), kernel, view, batch);
  }
  static void serve(Stream& stream, const MapView& view, const MapBatch& batch,
                    const MapServed& served) {
    const unsigned block = block_for(batch.count);
    launch(stream, dim3(blocks_for(batch.count, block)), dim3(block), map_serve_kernel<Key, Config>,
           view, batch, served);
  }
  static void locate(Stream& stream, const MapView& view, const MapBatch& batch,
                     std::uint32_t* place, std::uint32_t* op) {
    const auto kernel =
        batch.alone ? map_locate_kernel<Key, Config, true> : map_locate_kernel<Key, Config, false>;
    launch(stream, groups(batch.count), kernel, view, batch, place, op);
  }
  static unsigned block_for(std::uint64_t slots) {
    return slots >= kMapBlock ? kMapBlock : static_cast<unsigned>((slots + 31) / 32 * 32);
  }
  static void survey(Stream& stream, const MapView& view, std::uint32_t* used, MapSurvey* survey) {
    const std::uint64_t slots = slots_of(view);
    const unsigned block = block_for(slots);
    launch(stream, dim3(blocks_for(slots, block)), dim3(block), map_survey_kernel<Key, Config>,
           view, slots, used, survey);
  }
  static void find_duplicates(Stream& stream, const MapView& view, std::uint8_t* duplicate) {
    const std::uint64_t slots = slots_of(view);
    const unsigned block = block_for(slots);
    launch(stream, dim3(blocks_for(slots, block)), dim3(block), map_duplicates_kernel<Key, Config>,
           view, slots, duplicate);
  }
  static void mend(Stream& stream, const MapView& view, const std::uint8_t* duplicate) {
    const std::uint64_t slots = slots_of(view);
    const unsigned block = block_for(slots);
    launch(stream, dim3(blocks_for(slots, block)), dim3(block), map_mend_kernel<Key, Config>, view,
           slots, duplicate);
  }
  static void collect(Stream& stream, const MapView& view, std::uint64_t first, std::uint64_t slots,
                      void* keys, std::byte* values, unsigned long long* pairs) {
    collect_if(stream, view, first, slots, keys, values, pairs, MapAny());
  }
  template <class Predicate>
  static void collect_if(Stream& stream, const MapView& view, std::uint64_t first,
                         std::uint64_t slots, void* keys, std::byte* values,
                         unsigned long long* pairs, const Predicate& predicate) {
    launch(stream, grid_of(slots), dim3(kMapBlock), map_collect_kernel<Key, Config, Predicate>,
           view, first, slots, static_cast<Key*>(keys), values, pairs, predicate);
  }
  static void migrate(Stream& stream, const MapView& view, std::uint64_t first,
                      std::uint64_t slots) {
    const unsigned block = block_for(slots);
    const std::uint64_t from = Shape::bucket_count(view.buckets) * Config::kWays + first;
    launch(stream, dim3(blocks_for(slots, block)), dim3(block), map_migrate_kernel<Key, Config>,
           view, from, slots);
  }
};

template <class Key, class Config>
const MapKernels& map_kernels() {
  using Launch = MapLaunch<Key, Config>;
  static constexpr MapKernels kKernels{Launch::Shape::kBucketBytes,
                                       Launch::bucket_of,
                                       Launch::place,
                                       Launch::apply,
                                       Launch::accumulate,
                                       Launch::find,
                                       Launch::serve,
                                       Launch::locate,
                                       Launch::survey,
                                       Launch::find_duplicates,
                                       Launch::mend,
                                       Launch::collect,
                                       Launch::migrate};
  return kKernels;
}

#endif  // HOLDFAST_DEVICE_CODE

}  // namespace holdfast::detail
