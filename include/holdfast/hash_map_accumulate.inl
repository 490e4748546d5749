// Sums into values that are there, by kernels as they go. Included by hash_map_ref.hpp alone.
#pragma once

#include <cstring>

namespace holdfast {
namespace detail {

// to[i] = a[i] + b[i], integers modulo 2^32 or 2^64. Group-wide.
template <class T, unsigned Width>
__device__ __forceinline__ void map_add_as(const MapGroup<Width>& group, void* to, const void* a,
                                           const void* b, std::uint32_t bytes) {
  for (std::uint32_t i = group.rank; i < bytes / sizeof(T); i += Width) {
    static_cast<T*>(to)[i] = static_cast<const T*>(a)[i] + static_cast<const T*>(b)[i];
  }
}

// Calls body(T()) for elements of type T.
template <class Body>
__device__ __forceinline__ auto map_by_element(MapElement element, Body&& body) {
  switch (element) {
    case MapElement::u32:
      return body(std::uint32_t{});
    case MapElement::u64:
      return body(std::uint64_t{});
    case MapElement::f32:
      return body(float{});
    case MapElement::f64:
      break;
  }
  return body(double{});
}

// The word of a value in its slot and a delta: each thread makes it.
__device__ __forceinline__ std::uint64_t map_small_sum(const MapView& view, MapElement element,
                                                       std::uint64_t word, const void* delta) {
  return map_by_element(element, [&](auto zero) {
    using T = decltype(zero);
    std::uint32_t halves[2] = {};
    T sum[8 / sizeof(T)];
    map_take_value(view, MapGroup<1>(), word, halves);
    memcpy(sum, halves, sizeof(sum));
    for (std::uint32_t i = 0; i < view.value_bytes / sizeof(T); ++i) {
      sum[i] += static_cast<const T*>(delta)[i];
    }
    memcpy(halves, sum, sizeof(sum));
    return map_small_value(view, halves);
  });
}

template <unsigned Width>
__device__ __forceinline__ void map_add(const MapGroup<Width>& group, MapElement element, void* to,
                                        const void* a, const void* b, std::uint32_t bytes) {
  map_by_element(element, [&](auto zero) {
    map_add_as<decltype(zero)>(group, to, a, b, bytes);
    return 0;
  });
}

// The value that is seen, and the delta, go to a place of their own; then the word is changed if it
// is the one that was seen. If it is not, another operation of the key has gone on.
template <class Key, class Config>
__device__ __forceinline__ MapStatus map_accumulate(const MapView& view,
                                                    const MapGroup<Config::kWidth>& group,
                                                    const MapKey<Key>& key, const void* delta,
                                                    MapElement element) {
  if (map_wanted(view, key) == 0) return MapStatus::refused;
  const MapSpot<Key> spot = map_spot<Key, Config>(view, key, group.rank);
  std::uint32_t place = kMapNoPlace;
  for (;;) {
    const MapSeen<Key> seen = map_see<Key, Config, false>(view, group, spot, key);
    if (seen.look.holding == 0) return MapStatus::absent;
    const std::uint64_t before = group.from(seen.look.word, map_first_of(seen.look.holding));
    std::uint64_t after = kMapNone;
    if (view.values != nullptr) {
      if (place == kMapNoPlace) place = map_take_place<Config, false>(view, group);
      if (place == kMapNoPlace) return MapStatus::no_value;
      map_add(group, element, map_value_at(view, place), map_value_at(view, map_place_of(before)),
              delta, view.value_bytes);
      map_persist(group);
      after = kMapTag | place;
    } else {
      after = map_small_sum(view, element, before, delta);
      if (!map_is_value(after)) return MapStatus::refused;
    }
    if (map_exchange<Key, Config>(view, group, seen, before, after)) return MapStatus::assigned;
  }
}

}  // namespace detail

template <class Key, class Config>
template <class T>
__device__ MapStatus HashMapRef<Key, Config>::accumulate(const Group& group, KeyArgument key,
                                                         const T* delta) const {
  return detail::map_accumulate<Kernels, Config>(view_, group, detail::map_key_of<Config>(key),
                                                 delta, detail::map_element_of<T>());
}

}  // namespace holdfast
