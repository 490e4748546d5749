// Room for keys whose slots are all taken: one of the keys there moves to another of its own slots.
// Included by hash_map_kernels.inl alone.
//
// A key is durable in its new slot before it is cleared from its old one, and that is durable
// before another key is stored there, which a later kernel does. What a crash leaves is a key in
// two slots that have one word, or a slot without a key: opening clears either.
#pragma once

namespace holdfast::detail {

// `locks` has a bit for each slot, by the last bits of its number: who has set it has the slot to
// itself until the kernel ends, or gives it back as it was. Two slots of one bit are as one that is
// taken.
template <class Key, class Config>
class MapRoom {
 public:
  using Group = MapGroup<Config::kWidth>;
  using Label = MapLabel<Key>;

  __device__ MapRoom(const MapView& view, const Group& group, unsigned* locks)
      : view_(view), group_(group), locks_(locks) {}

  // Empties one of the slots of `key`, which is in none of them; false: no key there has another
  // slot that is free. Each thread looks where the key of its slot could go. `unless_empty`: none
  // has to, where a slot is empty already.
  __device__ bool make(const MapKey<Key>& key, bool unless_empty = false) {
    const MapSpot<Key> spot = map_spot<Key, Config>(view_, key, group_.rank);
    const Label held = map_load(spot.label);
    map_fence<Config::kScope>();  // as where refs look: loads are in order beside others' stores
    if (unless_empty && group_.ballot(held == 0) != 0) return true;
    const unsigned mine = held != 0 ? free_slot_of(resident(held)) : Config::kWidth;
    for (unsigned left = group_.ballot(mine != Config::kWidth); left != 0; left &= left - 1) {
      const unsigned from = map_first_of(left);
      const Label of_it = group_.from(held, from);
      const MapKey<Key> its = resident(of_it);
      const unsigned to = group_.from(mine, from);
      if (!take(number(its, to), number(key, from))) continue;
      const bool taken = map_load(map_spot<Key, Config>(view_, its, to).label) != 0;
      map_fence<Config::kScope>();
      const std::uint64_t word = group_.from(map_load(spot.word), from);
      if (group_.ballot(taken) != 0 || !map_is_value(word)) continue;
      move(spot, from, map_spot<Key, Config>(view_, its, to), to % Config::kWays, of_it, word);
      if (view_.scores != nullptr && group_.rank == 0) {
        view_.scores[number(its, to)] = view_.scores[number(key, from)];
        view_.scores[number(key, from)] = 0;
      }
      return true;
    }
    return false;
  }

 private:
  // Of a slot with this label.
  __device__ MapKey<Key> resident(Label held) const {
    MapKey<Key> key{};
    key.label = held ^ static_cast<Label>(view_.empty_key);
    return key;
  }

  __device__ unsigned free_slot_of(const MapKey<Key>& key) const {
    MapLook<Key> look{};
    for (unsigned rank = 0; rank < Config::kWidth; ++rank) {
      const MapSpot<Key> spot = map_spot<Key, Config>(view_, key, rank);
      if (map_load(spot.label) != 0) look.taken |= 1u << rank;
      map_fence<Config::kScope>();
    }
    return map_choose<Key, Config, true>(look);
  }

  // From the slot of thread `from` to slot `to` of its bucket, by way.
  __device__ void move(const MapSpot<Key>& spot, unsigned from, const MapSpot<Key>& to,
                       unsigned way, Label held, std::uint64_t word) {
    constexpr unsigned kWays = Config::kWays;
    map_fence<Config::kScope>();
    group_.sync();  // nobody stores before all have looked
    if (group_.rank == 0) map_store_slot<Key, Config>(view_, to, way, held, word);
    if constexpr (MapShape<Key, Config>::kIsLong) {
      const auto mine = reinterpret_cast<std::uintptr_t>(
          map_key_at<Key, Config>(view_, spot.bucket, group_.rank % kWays));
      const auto* const words = reinterpret_cast<const std::uint64_t*>(group_.from(mine, from));
      map_store_key<Key, Config>(view_, group_, to.home, to.bucket, way,
                                 [&](std::uint32_t i) { return map_load(&words[i]); });
    }
    map_persist(group_);
    if (group_.rank == from) {
      map_store_slot<Key, Config>(view_, spot, from % kWays, Label{0}, kMapNone);
    }
    map_store_key_of<Key, Config>(view_, group_, spot, from, MapNoWords());
    map_persist(group_);
  }

  __device__ std::uint64_t number(const MapKey<Key>& key, unsigned rank) const {
    return map_slot_number<Key, Config>(view_, key, rank);
  }
  // Both or neither. Who had taken them before has given them back as they were.
  __device__ bool take(std::uint64_t to, std::uint64_t from) const {
    bool both = false;
    if (group_.rank == 0 && lock(to)) {
      both = lock(from);
      if (!both) atomicAnd(&locks_[to % kMapRoomBits / 32], ~(1u << to % 32));
    }
    map_fence<Config::kScope>();
    group_.sync();
    return group_.ballot(both) != 0;
  }
  __device__ bool lock(std::uint64_t slot) const {
    const unsigned bit = 1u << slot % 32;
    return (atomicOr(&locks_[slot % kMapRoomBits / 32], bit) & bit) == 0;
  }

  const MapView& view_;
  const Group& group_;
  unsigned* const locks_;
};

// For operations that found their slots taken: those that may try again have no status then.
template <class Key, class Config>
__global__ void map_make_room_kernel(MapView view, MapBatch batch, unsigned* locks) {
  const MapGroup<Config::kWidth> group;
  const std::uint64_t op = map_thread() / Config::kWidth;
  if (op >= batch.count || batch.status[op] != MapStatus::full) return;
  const bool made =
      MapRoom<Key, Config>(view, group, locks).make(map_key_of_op<Key>(view, batch, op));
  group.sync();  // nobody's status is stored before all have looked
  if (group.rank == 0 && made) batch.status[op] = MapStatus{};
}

// The same for a mixed batch. Of a key whose slots were all taken nothing was changed, and some of
// its operations are `full`: once for all of them, and the first one's status goes. The batch's
// erasures may have left room meanwhile.
template <class Key, class Config>
__global__ void map_make_mixed_room_kernel(MapView view, MapBatch batch, MapMixed mixed,
                                           unsigned* locks) {
  const MapGroup<Config::kWidth> group;
  const std::uint64_t position = map_thread() / Config::kWidth;
  if (position >= batch.count) return;
  const std::uint32_t op = mixed.ops[position];
  const std::uint32_t entry = mixed.entry[op];
  if (position != 0 && map_has_entry(batch, mixed, position - 1, entry)) return;
  bool full = false;
  for (std::uint64_t at = position + group.rank;; at += Config::kWidth) {
    const bool is_its = map_has_entry(batch, mixed, at, entry);
    const bool mine = is_its && batch.status[mixed.ops[at]] == MapStatus::full;
    full = group.ballot(mine) != 0;
    if (full || group.ballot(!is_its) != 0) break;
  }
  if (!full) return;
  const bool made =
      MapRoom<Key, Config>(view, group, locks).make(map_key_of_op<Key>(view, batch, op), true);
  group.sync();  // nobody's status is stored before all have looked
  if (group.rank == 0 && made) batch.status[op] = MapStatus{};
}

}  // namespace holdfast::detail
