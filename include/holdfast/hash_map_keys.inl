// The keys that a hash map can have, and what stands for a key in a slot. Included by
// hash_map_ref.hpp alone. docs/map.md, "Keys of 16 to 128 bytes".
//
// Source: GPHash (FAST '25), section 3.1: keys in place, and fingerprints in front of longer ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace holdfast {

// A key of so many bytes, which may be any.
template <std::size_t N>
struct alignas(8) Bytes {
  std::byte bytes[N];
  HOLDFAST_BOTH_SIDES friend constexpr bool operator==(const Bytes& a, const Bytes& b) {
    bool same = true;
    for (std::size_t i = 0; i < N; ++i) same = same && a.bytes[i] == b.bytes[i];
    return same;
  }
};

namespace detail {

inline constexpr std::uint32_t kMapLeastLongKey = 16;
inline constexpr std::uint32_t kMapMostLongKey = 128;  // bytes

constexpr bool map_is_long_key(std::uint32_t bytes) {
  return bytes >= kMapLeastLongKey && bytes <= kMapMostLongKey && bytes % 8 == 0;
}

// Keys of 16 bytes and more are plain bytes: any type whose equal values have equal bytes.
template <class Key>
inline constexpr bool kMapHasLongKeys =
    std::is_class_v<Key>&& std::is_trivially_copyable_v<Key>&&
        std::has_unique_object_representations_v<Key>&& map_is_long_key(sizeof(Key)) &&
    alignof(Key) >= 8;

// What kernels take in place of a type of such keys: of how many bytes is known to the view alone.
struct MapLongKey {};
template <class Key>
using MapKernelKey = std::conditional_t<std::is_integral_v<Key>, Key, MapLongKey>;

// ---- Labels ------------------------------------------------------------------------------------
// A slot's label is its key, if that has 4 or 8 bytes. Of a longer one it is a fingerprint of 8
// bytes, and the key's own words of 8 bytes stand behind all labels and words of the bucket. The
// highest bit of each of them is in the label, and set in the slot: so a word of a key that is 0
// has not been stored yet. Two keys of one label differ in other bits.

inline constexpr std::uint64_t kMapWordIsSet = std::uint64_t{1} << 63;

struct MapWordsAt {
  const std::uint64_t* words;
  HOLDFAST_BOTH_SIDES constexpr std::uint64_t operator()(std::uint32_t i) const { return words[i]; }
};

// Of a key of so many words; word_at(i) is the i-th one. Never 0.
template <class Hash, class WordAt>
HOLDFAST_BOTH_SIDES constexpr std::uint64_t map_label_of(std::uint32_t words, WordAt&& word_at) {
  std::uint64_t digest = 0, tops = 0;
  for (std::uint32_t i = 0; i < words; ++i) {
    const std::uint64_t word = word_at(i);
    digest = Hash::digest(digest, word);
    tops |= (word >> 63) << i;
  }
  const std::uint64_t label = digest << words | tops;
  return label != 0 ? label : kMapWordIsSet;
}

// A word of a key, of how a slot of this label has it.
HOLDFAST_BOTH_SIDES constexpr std::uint64_t map_word_of_key(std::uint64_t label,
                                                            std::uint64_t stored, std::uint32_t i) {
  return (stored & ~kMapWordIsSet) | (label >> i & 1) << 63;
}

// A key as an operation has it.
template <class Key>
struct MapKey {
  using Label = Key;
  Label label;
};
template <>
struct MapKey<MapLongKey> {
  using Label = std::uint64_t;
  Label label;             // 0: none
  const std::byte* bytes;  // aligned to 8

  HOLDFAST_BOTH_SIDES std::uint64_t word(std::uint32_t i) const {
    std::uint64_t word;
    memcpy(&word, bytes + std::size_t{i} * 8, sizeof(word));
    return word;
  }
  HOLDFAST_BOTH_SIDES std::uint64_t stored_word(std::uint32_t i) const {
    return word(i) | kMapWordIsSet;
  }
};
template <class Key>
using MapLabel = typename MapKey<Key>::Label;

template <class Config, class Key>
HOLDFAST_BOTH_SIDES MapKey<MapKernelKey<Key>> map_key_of(const Key& key) {
  if constexpr (std::is_integral_v<Key>) {
    return {key};
  } else {
    MapKey<MapLongKey> result{0, reinterpret_cast<const std::byte*>(&key)};
    result.label = map_label_of<typename Config::HashFunctions>(
        sizeof(Key) / 8, [&](std::uint32_t i) { return result.word(i); });
    return result;
  }
}

}  // namespace detail
}  // namespace holdfast
