// The kernels of a map's batches, and what of them the host calls: a table of functions for each
// type of map. Included by hash_map.hpp alone.
#pragma once

namespace holdfast::detail {

// Operations in memory that kernels reach.
struct MapBatch {
  const void* keys;
  const std::uint64_t* labels;  // of keys of 16 bytes and more
  const std::byte* values;      // null: there are none (erase, lookups)
  std::byte* out;               // null: nothing is asked for
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

// Locks of slots, for make_room.
inline constexpr std::uint32_t kMapRoomBits = 1u << 20;

struct MapMixed;
struct MapScoring;
struct MapVictims;

// What a survey of the table finds.
struct MapSurvey {
  static constexpr unsigned long long kNowhere = ~0ull;
  unsigned long long pairs;
  unsigned long long cleared;
  unsigned long long gone;
  unsigned long long loose;  // a word without a key, or a part of one
  unsigned long long duplicates;
  unsigned long long damaged;       // slots
  unsigned long long first_damage;  // the lowest of them
};

// For the host; each is stream-ordered.
struct MapKernels {
  // On the host. Bucket number `i`, of levels x hashes, that a key may be in; the label of one of
  // 16 bytes and more.
  std::uint64_t (*bucket_of)(std::uint32_t top, std::uint64_t key, unsigned i);
  std::uint64_t (*label_of)(const std::uint64_t* key, std::uint32_t words);
  // The labels of a batch's keys, of 16 bytes and more.
  void (*label)(Stream&, const MapView&, const MapBatch&, std::uint64_t* labels);
  // The key's bucket of the top level, and its number, by operation.
  void (*place)(Stream&, const MapView&, const MapBatch&, std::uint32_t* bucket, std::uint32_t* op);
  void (*apply)(Stream&, const MapView&, const MapBatch&, MapOperation);
  // For operations that are `full`, in a batch alone: moves other keys, and takes the status of
  // those that can be applied again. `locks`: kMapRoomBits of zeros.
  void (*make_room)(Stream&, const MapView&, const MapBatch&, unsigned* locks);
  void (*apply_mixed)(Stream&, const MapView&, const MapBatch&, const MapMixed&);
  // As make_room, by key.
  void (*make_mixed_room)(Stream&, const MapView&, const MapBatch&, const MapMixed&,
                          unsigned* locks);
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
  // Scores of what a batch that is alone has found, or left with a value.
  void (*score)(Stream&, const MapView&, const MapBatch&, const MapScoring&);
  // Of lookups: the score of each key that is there.
  void (*scores_of)(Stream&, const MapView&, const MapBatch&, unsigned long long* scores);
  // For operations that are not done, in a batch alone: which pairs go, and the replacing of them.
  void (*choose_victims)(Stream&, const MapView&, const MapBatch&, const MapScoring&,
                         const MapVictims&);
  void (*replace_victims)(Stream&, const MapView&, const MapBatch&, const MapScoring&,
                          const MapVictims&);
};

#if HOLDFAST_DEVICE_CODE

template <class Key>
__device__ __forceinline__ MapKey<Key> map_no_key(const MapView& view) {
  MapKey<Key> none{};
  none.label = static_cast<MapLabel<Key>>(view.empty_key);
  return none;
}

inline constexpr unsigned kMapBlock = 256;

__device__ inline std::uint64_t map_thread() {
  return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

}  // namespace holdfast::detail

#include "holdfast/hash_map_cache.inl"
// Behind it.
#include "holdfast/hash_map_alone.inl"

namespace holdfast::detail {

// ---- Kernels of batches ------------------------------------------------------------------------

template <class Config>
__global__ void map_label_kernel(MapView view, MapBatch batch, std::uint64_t* labels) {
  const std::uint64_t i = map_thread();
  if (i >= batch.count) return;
  const auto* const key = static_cast<const std::uint64_t*>(batch.keys) + i * view.key_words;
  labels[i] = map_label_of<typename Config::HashFunctions>(view.key_words, MapWordsAt{key});
}

template <class Key, class Config>
__global__ void map_place_kernel(MapView view, MapBatch batch, std::uint32_t* bucket,
                                 std::uint32_t* op) {
  const std::uint64_t i = map_thread();
  if (i >= batch.count) return;
  bucket[i] =
      MapShape<Key, Config>::top_bucket(view.buckets, map_key_of_op<Key>(view, batch, i).label, 0);
  op[i] = static_cast<std::uint32_t>(i);
}

template <class Key, class Config, bool Alone>
__device__ __forceinline__ MapStatus map_operation(const MapView& view,
                                                   const MapGroup<Config::kWidth>& group,
                                                   const MapKey<Key>& key, const void* value,
                                                   void* out, MapOperation operation) {
  if (operation == MapOperation::erase) {
    if constexpr (Alone) return map_erase_alone<Key, Config>(view, group, key);
    return map_erase<Key, Config>(view, group, key);
  }
  using Put = std::conditional_t<Alone, MapPutAlone<Key, Config>, MapPut<Key, Config>>;
  return Put(view, group, key, value).run(map_intent_of(operation), out);
}

// A group for each operation that has no status yet: superseded ones, and done ones, have theirs.
__device__ __forceinline__ bool map_has_work(const MapBatch& batch, std::uint64_t position,
                                             std::uint32_t* op) {
  if (position >= batch.count || batch.refuse[0] != 0 || batch.refuse[1] != 0) return false;
  *op = batch.order != nullptr ? batch.order[position] : static_cast<std::uint32_t>(position);
  return batch.status[*op] == MapStatus{};
}

template <class Key, class Config, bool Alone>
__global__ void map_apply_kernel(MapView view, MapBatch batch, MapOperation operation) {
  const MapGroup<Config::kWidth> group;
  std::uint32_t op = 0;
  const bool works = map_has_work(batch, map_thread() / Config::kWidth, &op);
  const std::uint64_t at = std::uint64_t{op} * view.value_bytes;
  const void* const value = batch.values != nullptr ? batch.values + at : nullptr;
  void* const out = batch.out != nullptr ? batch.out + at : nullptr;
  MapStatus status{};
  if constexpr (Alone) {
    if (operation != MapOperation::erase && view.values != nullptr) {
      status = map_put_with_block<Key, Config>(view, group, batch, works, op, value, out,
                                               map_intent_of(operation));
      if (works && group.rank == 0) batch.status[op] = status;
      return;
    }
  }
  if (!works) return;
  status = map_operation<Key, Config, Alone>(view, group, map_key_of_op<Key>(view, batch, op),
                                             value, out, operation);
  group.sync();  // nobody's status is stored before all have looked
  if (group.rank == 0) batch.status[op] = status;
}

}  // namespace holdfast::detail

#include "holdfast/hash_map_mixed.inl"

namespace holdfast::detail {

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
      map_accumulate<Key, Config>(view, group, map_key_of_op<Key>(view, batch, op),
                                  batch.values + std::uint64_t{op} * view.value_bytes, element);
  group.sync();  // nobody's status is stored before all have looked
  if (group.rank == 0) {
    batch.status[op] = status == MapStatus::refused ? MapStatus::no_value : status;
  }
}

// The key that a lookup is for; the empty one: none.
template <class Key>
__device__ __forceinline__ MapKey<Key> map_key_to_find(const MapView& view, const MapBatch& batch,
                                                       std::uint64_t op) {
  if (batch.status != nullptr && batch.status[op] == MapStatus::superseded) {
    return map_no_key<Key>(view);
  }
  return map_key_of_op<Key>(view, batch, op);
}

template <class Key, class Config, bool Alone>
__global__ void map_find_kernel(MapView view, MapBatch batch) {
  const MapGroup<Config::kWidth> group;
  const std::uint64_t position = map_thread() / Config::kWidth;
  if (position >= batch.count) return;
  const std::uint32_t op =
      batch.order != nullptr ? batch.order[position] : static_cast<std::uint32_t>(position);
  const MapKey<Key> key = map_key_to_find<Key>(view, batch, op);
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
  const MapKey<Key> key = map_key_to_find<Key>(view, batch, op);
  const std::uint64_t word = map_find_word<Key, Config, Alone>(view, group, key);
  if (group.rank != 0) return;
  const bool found = map_is_value(word);
  batch.found[op] = found ? 1 : 0;
  place[position] = found ? static_cast<std::uint32_t>(map_place_of(word)) : view.capacity;
  to_op[position] = op;
}

// ---- Kernels over the table --------------------------------------------------------------------

}  // namespace holdfast::detail

#include "holdfast/hash_map_slot.inl"

namespace holdfast::detail {

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
      loose = !cleared && !gone && !slot.is_blank();
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
  if (duplicate == nullptr && (slot.holds() || slot.is_blank())) return;
  const MapHome<Key, Config> home(slot.spot, slot.way);
  map_store(home.word, kMapNone);
  map_store(home.label, MapLabel<Key>{0});
  map_store_key<Key, Config>(view, MapGroup<1>(), home.bucket, home.bucket, slot.way, MapNoWords());
  view.marks.mark(home.bucket, map_bucket_bytes<Key, Config>(view));
  if (view.scores != nullptr) view.scores[number] = 0;
}

// A key is durable in its new slot before it is cleared from its old one. Nobody else uses that
// slot: it is kept for this key. Each thread's moves are its own.
template <class Key, class Config>
__global__ void map_migrate_kernel(MapView view, std::uint64_t first, std::uint64_t slots) {
  const std::uint64_t i = map_thread();
  if (i >= slots) return;
  const MapSlot<Key, Config> slot(view, first + i);
  if (!slot.holds()) return;
  const MapGroup<1> alone;
  const MapSpot<Key> to = slot.new_spot();
  map_store_slot<Key, Config>(view, to, slot.way, slot.held, slot.word);
  map_store_key<Key, Config>(view, alone, to.home, to.bucket, slot.way,
                             [&](std::uint32_t i) { return map_load(&slot.key_words()[i]); });
  persist();
  map_store_slot<Key, Config>(view, slot.spot, slot.way, MapLabel<Key>{0}, kMapNone);
  map_store_key<Key, Config>(view, alone, slot.spot.home, slot.spot.bucket, slot.way, MapNoWords());
  if (view.scores == nullptr) return;
  view.scores[slot.new_number()] = view.scores[slot.number];
  view.scores[slot.number] = 0;
}

}  // namespace holdfast::detail

#include "holdfast/hash_map_export.inl"
#include "holdfast/hash_map_room.inl"
#include "holdfast/hash_map_scores.inl"

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
  static std::uint64_t label_of(const std::uint64_t* key, std::uint32_t words) {
    return map_label_of<typename Config::HashFunctions>(words, MapWordsAt{key});
  }
  static void label(Stream& stream, const MapView& view, const MapBatch& batch,
                    std::uint64_t* labels) {
    launch(stream, grid_of(batch.count), dim3(kMapBlock), map_label_kernel<Config>, view, batch,
           labels);
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
  static void make_room(Stream& stream, const MapView& view, const MapBatch& batch,
                        unsigned* locks) {
    launch(stream, groups(batch.count), map_make_room_kernel<Key, Config>, view, batch, locks);
  }
  static void apply_mixed(Stream& stream, const MapView& view, const MapBatch& batch,
                          const MapMixed& mixed) {
    const auto kernel =
        batch.alone ? map_mixed_kernel<Key, Config, true> : map_mixed_kernel<Key, Config, false>;
    launch(stream, groups(batch.count), kernel, view, batch, mixed);
  }
  static void make_mixed_room(Stream& stream, const MapView& view, const MapBatch& batch,
                              const MapMixed& mixed, unsigned* locks) {
    launch(stream, groups(batch.count), map_make_mixed_room_kernel<Key, Config>, view, batch, mixed,
           locks);
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
    collect_if<Key>(stream, view, first, slots, keys, values, pairs, MapAny());
  }
  // `predicate` takes keys as the map's user has them.
  template <class UsersKey, class Predicate>
  static void collect_if(Stream& stream, const MapView& view, std::uint64_t first,
                         std::uint64_t slots, void* keys, std::byte* values,
                         unsigned long long* pairs, const Predicate& predicate) {
    launch(stream, grid_of(slots), dim3(kMapBlock),
           map_collect_kernel<Key, UsersKey, Config, Predicate>, view, first, slots, keys, values,
           pairs, predicate);
  }
  static void migrate(Stream& stream, const MapView& view, std::uint64_t first,
                      std::uint64_t slots) {
    const unsigned block = block_for(slots);
    const std::uint64_t from = Shape::bucket_count(view.buckets) * Config::kWays + first;
    launch(stream, dim3(blocks_for(slots, block)), dim3(block), map_migrate_kernel<Key, Config>,
           view, from, slots);
  }
  static void score(Stream& stream, const MapView& view, const MapBatch& batch,
                    const MapScoring& scoring) {
    launch(stream, groups(batch.count), map_score_kernel<Key, Config>, view, batch, scoring);
  }
  static void scores_of(Stream& stream, const MapView& view, const MapBatch& batch,
                        unsigned long long* scores) {
    launch(stream, groups(batch.count), map_scores_of_kernel<Key, Config>, view, batch, scores);
  }
  static void choose_victims(Stream& stream, const MapView& view, const MapBatch& batch,
                             const MapScoring& scoring, const MapVictims& victims) {
    launch(stream, groups(batch.count), map_choose_victims_kernel<Key, Config>, view, batch,
           scoring, victims);
  }
  static void replace_victims(Stream& stream, const MapView& view, const MapBatch& batch,
                              const MapScoring& scoring, const MapVictims& victims) {
    launch(stream, groups(batch.count), map_replace_victims_kernel<Key, Config>, view, batch,
           scoring, victims);
  }
};

template <class Key, class Config>
const MapKernels& map_kernels() {
  using Launch = MapLaunch<Key, Config>;
  static constexpr MapKernels kKernels = [] {
    MapKernels all{Launch::bucket_of,
                   nullptr,
                   nullptr,
                   Launch::place,
                   Launch::apply,
                   Launch::make_room,
                   Launch::apply_mixed,
                   Launch::make_mixed_room,
                   Launch::accumulate,
                   Launch::find,
                   Launch::serve,
                   Launch::locate,
                   Launch::survey,
                   Launch::find_duplicates,
                   Launch::mend,
                   Launch::collect,
                   Launch::migrate,
                   Launch::score,
                   Launch::scores_of,
                   Launch::choose_victims,
                   Launch::replace_victims};
    if constexpr (Launch::Shape::kIsLong) {
      all.label_of = Launch::label_of;
      all.label = Launch::label;
    }
    return all;
  }();
  return kKernels;
}

#endif  // HOLDFAST_DEVICE_CODE

}  // namespace holdfast::detail
