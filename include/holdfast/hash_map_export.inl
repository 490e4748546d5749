// Kernels that take a program's own functions: export by a predicate, and initialisers. Included by
// hash_map_kernels.inl alone.
#pragma once

namespace holdfast::detail {

// Of a slot that holds a pair.
template <class Key, class Predicate>
__device__ bool map_value_suits(const MapView& view, const Key& key, std::uint64_t word,
                                const Predicate& predicate) {
  if (view.values != nullptr) {
    const void* const value = map_value_at(view, map_place_of(word));
    return predicate(key, value);
  }
  std::uint32_t halves[2] = {};
  alignas(8) std::byte value[8];  // of whichever type it is read as
  map_take_value(view, MapGroup<1>(), word, halves);
  memcpy(value, halves, sizeof(value));
  return predicate(key, static_cast<const void*>(value));
}

struct MapAny {
  template <class Key>
  __device__ bool operator()(Key, const void*) const {
    return true;
  }
};

// `predicate`: of the key, and of the value where it is, which no other thread touches.
template <class Key, class UsersKey, class Config, class Predicate>
__global__ void map_collect_kernel(MapView view, std::uint64_t first, std::uint64_t slots,
                                   void* keys, std::byte* values, unsigned long long* pairs,
                                   Predicate predicate) {
  const MapGroup<32> warp;
  const std::uint64_t i = map_thread();
  const MapSlot<Key, Config> slot(view, first + (i < slots ? i : 0));
  const std::uint64_t word = slot.word;
  unsigned long long to = 0;
  bool holds = i < slots && slot.holds();
  if constexpr (!std::is_same_v<Predicate, MapAny>) {
    UsersKey key;
    slot.take_key(&key, 0);
    holds = holds && map_value_suits(view, key, word, predicate);
  }
  const unsigned holding = warp.ballot(holds);
  if (warp.rank == 0 && holding != 0) {
    to = atomicAdd(pairs, static_cast<unsigned long long>(__popc(holding)));
  }
  to = warp.from(to, 0);
  if (holds) slot.take_key(keys, to + __popc(holding & ((1u << warp.rank) - 1)));
  if (values == nullptr) return;
  warp.in_turn(holds, [&](unsigned rank) {
    map_take_value(view, warp, warp.from(word, rank), values + to * view.value_bytes);
    ++to;
  });
}

// Makes a value for each operation.
template <class Key, class Init>
__global__ void map_init_kernel(const Key* keys, std::byte* values, std::uint32_t value_bytes,
                                std::uint32_t count, Init init) {
  const std::uint64_t op = map_thread();
  if (op < count) init(keys[op], static_cast<void*>(values + op * value_bytes));
}

}  // namespace holdfast::detail
