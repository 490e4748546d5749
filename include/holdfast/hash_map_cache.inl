// What kernels of batches do with a map's cache. Included by hash_map_kernels.inl alone.
//
// All of it is in the order of the map's stream: no entry changes while another kernel of a batch
// looks. A load reads entries and the medium beside batches, and writes rows that no entry names.
#pragma once

namespace holdfast::detail {

// Of an entry that has a row.
__device__ __forceinline__ std::byte* map_row_at(const MapView& view, std::uint32_t entry_row) {
  return view.cache.rows + std::uint64_t{entry_row - 1} * view.stride;
}

// An access of a place's value. `is_put`: it was set. By one thread.
__device__ __forceinline__ void map_cache_touch(const MapView& view, std::uint64_t place,
                                                bool is_put) {
  MapCacheEntry& entry = view.cache.entries[place];
  switch (view.cache.record) {
    case MapCacheRecord::counts:
      if (map_load(&entry.score) < kMapMostScore) atomicAdd(&entry.score, 1u);
      break;
    case MapCacheRecord::batches:
      // The first of a batch stores: stores of all to what is used most would go one by one.
      if (map_load(&entry.score) != view.cache.now) map_store(&entry.score, view.cache.now);
      break;
    case MapCacheRecord::names:
      if (is_put) map_store(&entry.score, 1u);
      break;
    case MapCacheRecord::nothing:
      break;
  }
}

// Of an operation that leaves the key with the value of this word. By one thread.
__device__ __forceinline__ void map_cache_keep(const MapView& view, std::uint64_t word) {
  if (view.cache.entries != nullptr) map_cache_touch(view, map_place_of(word), true);
}

// A key's value was replaced on the medium: what is known of the old one's place is so of the new
// one's, and the row has the new value. REQUIRES: a cache; map_cache_drop() of the old place
// follows. Group-wide.
template <unsigned Width>
__device__ __forceinline__ void map_cache_move(const MapView& view, const MapGroup<Width>& group,
                                               std::uint64_t before, std::uint64_t after,
                                               const void* value) {
  std::uint32_t row = 0;
  if (group.rank == 0) {
    MapCacheEntry entry = view.cache.entries[map_place_of(before)];
    const auto named = static_cast<std::uint32_t>(map_place_of(after)) + 1;
    if ((entry.row & kMapRowLoading) != 0) {
      entry.row |= kMapRowStale;
      view.cache.plan[(entry.row & kMapMostRows) - 1] = named;
    } else if (entry.row != 0) {
      row = entry.row;
      view.cache.place_of_row[row - 1] = named;
    }
    view.cache.entries[named - 1] = entry;
    map_cache_touch(view, named - 1, true);
  }
  row = group.from(row, 0);
  if (row == 0) return;
  map_copy(group, map_row_at(view, row), value, view.value_bytes);
}

// The value that a word names, from its row if it has one.
template <unsigned Width>
__device__ __forceinline__ void map_cache_take(const MapView& view, const MapGroup<Width>& group,
                                               std::uint64_t word, void* out) {
  std::uint32_t row = 0;
  if (view.cache.entries != nullptr) row = view.cache.entries[map_place_of(word)].row;
  if (row == 0 || (row & kMapRowLoading) != 0) return map_take_value(view, group, word, out);
  map_copy(group, out, map_row_at(view, row), view.value_bytes);
}

// No word names the place any more. `moved`: map_cache_move() has its row. By one thread.
__device__ __forceinline__ void map_cache_drop(const MapView& view, std::uint64_t place,
                                               bool moved) {
  if (view.cache.entries == nullptr) return;
  MapCacheEntry& entry = view.cache.entries[place];
  const std::uint32_t row = entry.row;
  // A row that is being loaded sees at its end that the entry is another.
  if (!moved && row != 0 && (row & kMapRowLoading) == 0) view.cache.place_of_row[row - 1] = 0;
  entry = MapCacheEntry{};
}

// Looks a key up for each thread. A group looks for the keys of its threads, several at once: a
// lookup is a chain of dependent loads, and so many chains as there are warps are too few.
// REQUIRES: the whole group is here, and alone. kMapNone: it is not there, or the key is none.
template <class Key, class Config>
__device__ __forceinline__ std::uint64_t map_find_words(const MapView& view,
                                                        const MapGroup<Config::kWidth>& group,
                                                        const MapKey<Key>& key) {
  using Shape = MapShape<Key, Config>;
  constexpr unsigned kWidth = Config::kWidth;
  constexpr unsigned kWays = Config::kWays;
  constexpr unsigned kAtOnce = kWidth < 8 ? kWidth : 8;
  const MapLabel<Key> wanted = map_wanted(view, key);
  std::uint32_t tops[Config::kHashes];
#pragma unroll
  for (unsigned which = 0; which < Config::kHashes; ++which) {
    tops[which] = Shape::top_bucket(view.buckets, key.label, which);
  }
  // This thread's slot of a key of the group's, or of its own.
  const auto spot_of = [&](auto&& top_of, unsigned rank) {
    std::uint32_t top = 0;
#pragma unroll
    for (unsigned which = 0; which < Config::kHashes; ++which) {
      const std::uint32_t of_it = top_of(tops[which]);
      if (rank / kWays % Config::kHashes == which) top = of_it;
    }
    const unsigned level = rank / kWays / Config::kHashes;
    return map_spot_at<Key, Config>(view, level, top >> level, rank % kWays);
  };
  const auto own = [](std::uint32_t top) { return top; };
  unsigned alike = 0;  // slots of its own key with that label, as bits by rank
  for (unsigned first = 0; first < kWidth; first += kAtOnce) {
    MapLabel<Key> held[kAtOnce];
#pragma unroll
    for (unsigned i = 0; i < kAtOnce; ++i) {
      held[i] =
          *spot_of([&](std::uint32_t top) { return group.from(top, first + i); }, group.rank).label;
    }
#pragma unroll
    for (unsigned i = 0; i < kAtOnce; ++i) {
      const unsigned ranks = group.ballot(held[i] == group.from(wanted, first + i));
      if (group.rank == first + i) alike = ranks;
    }
  }
  if (wanted == 0) alike = 0;
  unsigned found_at = alike != 0 ? map_first_of(alike) : kWidth;
  if constexpr (Shape::kIsLong) {
    found_at = kWidth;
    for (; alike != 0 && found_at == kWidth; alike &= alike - 1) {
      const unsigned rank = map_first_of(alike);
      std::byte* const bucket = spot_of(own, rank).bucket;
      const std::uint64_t* const words = map_key_at<Key, Config>(view, bucket, rank % kWays);
      bool same = true;
      for (std::uint32_t i = 0; i < view.key_words; ++i) same &= words[i] == key.stored_word(i);
      if (same) found_at = rank;
    }
  }
  const bool found = found_at != kWidth;
  std::uint64_t word = kMapNone;
  if (found) word = *spot_of(own, found_at).word;
  if (view.growing) {  // it may be on the level that is emptied
    group.in_turn(wanted != 0 && !found, [&](unsigned rank) {
      const std::uint64_t there =
          map_find_word<Key, Config, true>(view, group, map_key_from(group, key, rank));
      if (group.rank == rank) word = there;
    });
  }
  return word;
}

template <class Key>
__device__ __forceinline__ MapKey<Key> map_key_to_find(const MapView& view, const MapBatch& batch,
                                                       std::uint64_t op);
template <class Key>
__device__ __forceinline__ MapKey<Key> map_no_key(const MapView& view);

// A thread for each lookup: which row of the cache has its value, or else which place.
template <class Key, class Config>
__global__ void map_serve_kernel(MapView view, MapBatch batch, MapServed served) {
  const MapGroup<Config::kWidth> group;
  const MapGroup<32> warp;
  const std::uint64_t op = map_thread();
  const MapKey<Key> key =
      op < batch.count ? map_key_to_find<Key>(view, batch, op) : map_no_key<Key>(view);
  const std::uint64_t word = map_find_words<Key, Config>(view, group, key);
  const bool found = map_is_value(word);
  const std::uint64_t place = map_place_of(word);
  std::uint32_t row = 0;
  if (found) {
    row = view.cache.entries[place].row;
    if ((row & kMapRowLoading) != 0) row = 0;
    map_cache_touch(view, place, false);
  }
  if (op < batch.count) {
    batch.found[op] = found ? 1 : 0;
    served.row[op] = row;
  }
  const unsigned hits = warp.ballot(row != 0);
  const unsigned misses = warp.ballot(found && row == 0);
  if (warp.rank == 0 && hits != 0) {
    atomicAdd(view.cache.hits, static_cast<unsigned long long>(__popc(hits)));
  }
  if (misses == 0) return;
  std::uint32_t at = 0;
  if (warp.rank == 0) at = atomicAdd(served.misses, static_cast<unsigned>(__popc(misses)));
  at = warp.from(at, 0);
  if (!found || row != 0) return;
  at += static_cast<std::uint32_t>(__popc(misses & ((1u << warp.rank) - 1)));
  served.place[at] = static_cast<std::uint32_t>(place);
  served.op[at] = static_cast<std::uint32_t>(op);
}

}  // namespace holdfast::detail
