// Scores of pairs, and eviction by them. Included by hash_map_kernels.inl alone. docs/map.md,
// "Scores and eviction".
//
// Source: HierarchicalKV (NVIDIA Merlin), insert_and_evict: the pair of the least score among those
// where the new one can be goes, or the new one itself, if its own score is less.
//
// A pair's slot is cleared durably before any of the new pair is stored there: of what a crash cuts
// off one is there, the other, or none, and never a key with the other's value.
#pragma once

namespace holdfast::detail {

// Of a batch.
struct MapScoring {
  MapScores policy;
  unsigned long long now;           // lru: the batch's number
  const unsigned long long* given;  // by operation: scores, or of how many accesses; null: none
  unsigned* taken;  // a bit for each slot whose pair the batch has; null: it is not asked for
};

// What goes, of a batch.
struct MapVictims {
  unsigned* taken;      // a bit for each slot whose pair does not go, or goes already
  std::uint32_t* rank;  // by operation: of the thread whose slot is the victim's; kWidth: none
  std::uint32_t* row;   // by operation: of what goes for it, the victim or its own pair
  unsigned* count;      // of rows
  void* keys;           // by row, as all below
  unsigned long long* scores;
  std::byte* values;
};

#if HOLDFAST_DEVICE_CODE

inline constexpr unsigned long long kMapMostScoreOfPair = ~0ull;

// Of a new pair.
__device__ __forceinline__ unsigned long long map_first_score(const MapScoring& scoring,
                                                              std::uint64_t op) {
  if (scoring.policy == MapScores::lru) return scoring.now;
  if (scoring.given != nullptr) return scoring.given[op];
  return scoring.policy == MapScores::lfu ? 1 : 0;
}

// An access of the pair with this score. By one thread.
__device__ __forceinline__ void map_add_access(unsigned long long* score, const MapScoring& scoring,
                                               std::uint64_t op) {
  const unsigned long long mine = map_first_score(scoring, op);
  if (scoring.policy == MapScores::lfu) {
    const unsigned long long before = atomicAdd(score, mine);
    if (before + mine < before) atomicMax(score, kMapMostScoreOfPair);  // it has wrapped around
  } else if (scoring.policy == MapScores::lru || scoring.given != nullptr) {
    map_store(score, mine);
  }
}

inline constexpr std::uint64_t kMapNowhere = ~std::uint64_t{0};

// The number of the slot that holds the key.
template <class Key, class Config>
__device__ __forceinline__ std::uint64_t map_slot_of(const MapView& view,
                                                     const MapGroup<Config::kWidth>& group,
                                                     const MapKey<Key>& key) {
  const MapSpot<Key> spot = map_spot<Key, Config>(view, key, group.rank);
  const MapSeen<Key> seen = map_see<Key, Config, true>(view, group, spot, key);
  if (seen.look.holding == 0) return kMapNowhere;
  const bool old = group.ballot(seen.spot.bucket != spot.bucket) != 0;
  return map_slot_number<Key, Config>(view, key, map_first_of(seen.look.holding), old);
}

// Whether an operation was an access, if its key is there.
__device__ __forceinline__ bool map_is_access(const MapBatch& batch, std::uint64_t op) {
  if (batch.found != nullptr) return batch.found[op] != 0;
  const MapStatus status = batch.status[op];
  return status == MapStatus::inserted || status == MapStatus::assigned ||
         status == MapStatus::kept;
}

template <class Key, class Config>
__global__ void map_score_kernel(MapView view, MapBatch batch, MapScoring scoring) {
  const MapGroup<Config::kWidth> group;
  const std::uint64_t op = map_thread() / Config::kWidth;
  if (op >= batch.count) return;
  const bool is_access = map_is_access(batch, op);
  // Its own pair goes: that from before stays, if there is one.
  const bool stays = scoring.taken != nullptr && batch.status[op] == MapStatus::no_value;
  if (!is_access && !stays) return;
  const std::uint64_t slot =
      map_slot_of<Key, Config>(view, group, map_key_of_op<Key>(view, batch, op));
  if (slot == kMapNowhere || group.rank != 0) return;
  if (is_access) map_add_access(&view.scores[slot], scoring, op);
  if (scoring.taken != nullptr) atomicOr(&scoring.taken[slot / 32], 1u << slot % 32);
}

template <class Key, class Config>
__global__ void map_scores_of_kernel(MapView view, MapBatch batch, unsigned long long* scores) {
  const MapGroup<Config::kWidth> group;
  const std::uint64_t op = map_thread() / Config::kWidth;
  if (op >= batch.count) return;
  const std::uint64_t slot =
      map_slot_of<Key, Config>(view, group, map_key_of_op<Key>(view, batch, op));
  if (group.rank != 0) return;
  batch.found[op] = slot != kMapNowhere ? 1 : 0;
  scores[op] = slot != kMapNowhere ? view.scores[slot] : 0;
}

// ---- Eviction ----------------------------------------------------------------------------------

struct MapVictim {
  unsigned rank;  // of the thread whose slot it is; the group's width: there is none
  unsigned long long score;
};

// Takes, of the slots of a key, the one of the least score that nobody has taken: none if that is
// more than the key's own. Of equals the first. Each try that finds a slot taken is behind another
// one's that has it for good. REQUIRES: all slots of the key hold pairs.
template <class Key, class Config>
__device__ __forceinline__ MapVictim map_take_victim(const MapView& view,
                                                     const MapGroup<Config::kWidth>& group,
                                                     const MapKey<Key>& key, unsigned* taken,
                                                     unsigned long long own) {
  const std::uint64_t slot = map_slot_number<Key, Config>(view, key, group.rank);
  const unsigned bit = 1u << slot % 32;
  const unsigned long long mine = view.scores[slot];
  bool open = (map_load(&taken[slot / 32]) & bit) == 0;
  for (;;) {
    MapVictim least{Config::kWidth, own};
    for (unsigned left = group.ballot(open); left != 0; left &= left - 1) {
      const unsigned rank = map_first_of(left);
      const unsigned long long its = group.from(mine, rank);
      const bool less = least.rank == Config::kWidth ? its <= own : its < least.score;
      if (less) least = {rank, its};
    }
    if (least.rank == Config::kWidth) return least;
    if (group.rank == least.rank) open = false;
    const bool has = group.rank == least.rank && (atomicOr(&taken[slot / 32], bit) & bit) == 0;
    if (group.ballot(has) != 0) return least;
  }
}

// The key of a slot of the group's, to element `row` of an array.
template <class Key, class Config>
__device__ __forceinline__ void map_take_key(const MapView& view,
                                             const MapGroup<Config::kWidth>& group,
                                             const MapSpot<Key>& spot, unsigned rank, void* keys,
                                             std::uint64_t row) {
  const MapLabel<Key> held = group.from(map_load(spot.label), rank);
  if constexpr (MapShape<Key, Config>::kIsLong) {
    const auto mine = reinterpret_cast<std::uintptr_t>(
        map_key_at<Key, Config>(view, spot.bucket, group.rank % Config::kWays));
    const auto* const words = reinterpret_cast<const std::uint64_t*>(group.from(mine, rank));
    auto* const to = static_cast<std::uint64_t*>(keys) + row * view.key_words;
    for (std::uint32_t i = group.rank; i < view.key_words; i += Config::kWidth) {
      to[i] = map_word_of_key(held, map_load(&words[i]), i);
    }
  } else if (group.rank == 0) {
    static_cast<Key*>(keys)[row] = held ^ static_cast<Key>(view.empty_key);
  }
}

// That of an operation.
template <class Key, class Config>
__device__ __forceinline__ void map_take_own_key(const MapView& view,
                                                 const MapGroup<Config::kWidth>& group,
                                                 const MapKey<Key>& key, void* keys,
                                                 std::uint64_t row) {
  if constexpr (MapShape<Key, Config>::kIsLong) {
    auto* const to = static_cast<std::uint64_t*>(keys) + row * view.key_words;
    for (std::uint32_t i = group.rank; i < view.key_words; i += Config::kWidth) to[i] = key.word(i);
  } else if (group.rank == 0) {
    static_cast<Key*>(keys)[row] = key.label;
  }
}

__device__ __forceinline__ bool map_is_not_done(MapStatus status) {
  return status == MapStatus::full || status == MapStatus::no_value;
}

// Nothing of the map changes yet.
template <class Key, class Config>
__global__ void map_choose_victims_kernel(MapView view, MapBatch batch, MapScoring scoring,
                                          MapVictims victims) {
  const MapGroup<Config::kWidth> group;
  const std::uint64_t op = map_thread() / Config::kWidth;
  if (op >= batch.count || !map_is_not_done(batch.status[op])) return;
  const MapKey<Key> key = map_key_of_op<Key>(view, batch, op);
  MapVictim victim{Config::kWidth, map_first_score(scoring, op)};
  if (batch.status[op] == MapStatus::full) {
    victim = map_take_victim<Key, Config>(view, group, key, victims.taken, victim.score);
  }
  std::uint32_t row = 0;
  if (group.rank == 0) {
    row = atomicAdd(victims.count, 1u);
    victims.rank[op] = victim.rank;
    victims.row[op] = row;
    victims.scores[row] = victim.score;
  }
  row = group.from(row, 0);
  if (victim.rank == Config::kWidth) {
    map_take_own_key<Key, Config>(view, group, key, victims.keys, row);
  } else {
    map_take_key<Key, Config>(view, group, map_spot<Key, Config>(view, key, group.rank),
                              victim.rank, victims.keys, row);
  }
}

// A new pair in the place of the victim, whose slot is this group's alone.
template <class Key, class Config>
__device__ __forceinline__ void map_replace(const MapView& view,
                                            const MapGroup<Config::kWidth>& group,
                                            const MapKey<Key>& key, const void* value,
                                            std::uint64_t word, unsigned victim, void* out) {
  const MapSpot<Key> spot = map_spot<Key, Config>(view, key, group.rank);
  const unsigned way = group.rank % Config::kWays;
  const std::uint64_t before = group.from(map_load(spot.word), victim);
  map_take_value(view, group, before, out);
  if (view.values != nullptr) {
    map_copy(group, map_value_at(view, map_place_of(word)), value, view.value_bytes);
  }
  if (group.rank == victim) {
    map_store_slot<Key, Config>(view, spot, way, MapLabel<Key>{0}, kMapNone);
  }
  map_store_key_of<Key, Config>(view, group, spot, victim, MapNoWords());
  map_persist(group);
  if (group.rank == victim) {
    map_store_slot<Key, Config>(view, spot, way, map_wanted(view, key), word);
  }
  if constexpr (MapShape<Key, Config>::kIsLong) {
    map_store_key_of<Key, Config>(view, group, spot, victim,
                                  [&](std::uint32_t i) { return key.stored_word(i); });
  }
  if (group.rank != victim) return;
  map_give_back(view, before);
  map_cache_keep(view, word);
}

// Of an operation that finds no place for its value its own pair goes, and the victim stays.
template <class Key, class Config>
__global__ void map_replace_victims_kernel(MapView view, MapBatch batch, MapScoring scoring,
                                           MapVictims victims) {
  const MapGroup<Config::kWidth> group;
  const std::uint64_t op = map_thread() / Config::kWidth;
  if (op >= batch.count || !map_is_not_done(batch.status[op])) return;
  const MapKey<Key> key = map_key_of_op<Key>(view, batch, op);
  const void* const value = batch.values + op * view.value_bytes;
  const unsigned victim = victims.rank[op];
  const std::uint64_t row = victims.row[op];
  std::byte* const out = victims.values + row * view.value_bytes;
  std::uint64_t word = kMapNone;
  if (victim != Config::kWidth) word = map_new_word<Config, true>(view, group, value);
  const unsigned long long score = map_first_score(scoring, op);
  if (word != kMapNone) {
    map_replace<Key, Config>(view, group, key, value, word, victim, out);
    if (group.rank == victim) {
      view.scores[map_slot_number<Key, Config>(view, key, victim)] = score;
    }
  } else {
    map_copy(group, out, value, view.value_bytes);
    map_take_own_key<Key, Config>(view, group, key, victims.keys, row);
    if (group.rank == 0) victims.scores[row] = score;
  }
  group.sync();  // nobody's status is stored before all have looked
  if (group.rank != 0) return;
  if (word != kMapNone) {
    batch.status[op] = MapStatus::inserted;
  } else if (victim != Config::kWidth) {
    batch.status[op] = MapStatus::no_value;
  }
}

#endif  // HOLDFAST_DEVICE_CODE

}  // namespace holdfast::detail
