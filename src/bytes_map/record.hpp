// A record on the medium, and the word of the index that names it. docs/format.md, "A bytes map".
#pragma once

#include <cstdint>

#include "holdfast/bytes_map.hpp"

#if HOLDFAST_DEVICE_CODE
#include "holdfast/kernel.hpp"
#define BYTES_MAP_BOTH_SIDES __host__ __device__
#else
#define BYTES_MAP_BOTH_SIDES
#endif

namespace holdfast::bytes_map {

// Records begin at, and take, whole grains: what a thread moves at once.
inline constexpr std::uint64_t kGrain = 16;

// The first grain. Behind it the key and then the value, each filled up with zeros.
struct RecordHead {
  std::uint32_t key_bytes;
  std::uint32_t value_bytes;
  std::uint64_t sum;
};
static_assert(sizeof(RecordHead) == kGrain);

BYTES_MAP_BOTH_SIDES constexpr std::uint64_t grains_for(std::uint64_t bytes) {
  return (bytes + kGrain - 1) / kGrain;
}
BYTES_MAP_BOTH_SIDES constexpr std::uint64_t grains_of(std::uint64_t key_bytes,
                                                       std::uint64_t value_bytes) {
  return 1 + grains_for(key_bytes) + grains_for(value_bytes);
}

// Where a record is, and how large: all that opening has to know of it, which reads no record.
struct Extent {
  std::uint64_t first = 0;  // grain
  std::uint64_t grains = 0;
  BYTES_MAP_BOTH_SIDES constexpr std::uint64_t end() const { return first + grains; }
};

// As the index has it: 36 bits of `first`, 21 of `grains`, and a tag, by which it is none of the
// words that a map cannot store (EmptyValue), and some damage is noticed.
inline constexpr unsigned kFirstBits = 36;
inline constexpr unsigned kGrainsBits = 21;
inline constexpr std::uint64_t kTag = 0x25;
static_assert(grains_of(kMostBytesOfKey, kMostBytesOfValue) < std::uint64_t{1} << kGrainsBits);

BYTES_MAP_BOTH_SIDES constexpr std::uint64_t word_of(const Extent& extent) {
  return extent.first | extent.grains << kFirstBits | kTag << (kFirstBits + kGrainsBits);
}
BYTES_MAP_BOTH_SIDES constexpr Extent extent_of(std::uint64_t word) {
  return {word & ((std::uint64_t{1} << kFirstBits) - 1),
          word >> kFirstBits & ((std::uint64_t{1} << kGrainsBits) - 1)};
}
// Whether it names an extent, of those that there are or not.
BYTES_MAP_BOTH_SIDES constexpr bool is_word(std::uint64_t word) {
  return word >> (kFirstBits + kGrainsBits) == kTag && extent_of(word).grains != 0;
}
BYTES_MAP_BOTH_SIDES constexpr bool is_head(const RecordHead& head, const Extent& extent) {
  return head.key_bytes <= kMostBytesOfKey && head.value_bytes <= kMostBytesOfValue &&
         grains_of(head.key_bytes, head.value_bytes) == extent.grains;
}

// ---- Sums --------------------------------------------------------------------------------------
// Of terms, one for each grain, so that threads sum them in any order.

inline constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ull;

// Of grain `i` behind the head.
BYTES_MAP_BOTH_SIDES constexpr std::uint64_t sum_term(std::uint64_t i, std::uint64_t low,
                                                      std::uint64_t high) {
  return MapHash::digest((2 * i + 1) * kStep, low) + MapHash::digest((2 * i + 2) * kStep, high);
}
BYTES_MAP_BOTH_SIDES constexpr std::uint64_t sum_of(std::uint64_t terms, std::uint32_t key_bytes,
                                                    std::uint32_t value_bytes,
                                                    std::uint64_t first) {
  const std::uint64_t lengths = std::uint64_t{value_bytes} << 32 | key_bytes;
  return MapHash::digest(MapHash::digest(terms, lengths), first);
}

// A key's digest of 128 bits, in two halves. A word is mixed before its place comes in: words that
// change places make another digest.
BYTES_MAP_BOTH_SIDES constexpr std::uint64_t digest_term(unsigned half, std::uint64_t i,
                                                         std::uint64_t low, std::uint64_t high) {
  const std::uint64_t seed = half == 0 ? 0x243f6a8885a308d3ull : 0x13198a2e03707344ull;
  return MapHash::digest(MapHash::digest(seed, low), 2 * i + 1) +
         MapHash::digest(MapHash::digest(seed, high), 2 * i + 2);
}
BYTES_MAP_BOTH_SIDES constexpr std::uint64_t digest_of(unsigned half, std::uint64_t terms,
                                                       std::uint64_t bytes, unsigned digest_bits) {
  const std::uint64_t all = MapHash::digest(terms, bytes + half * kStep);
  const unsigned bits =
      half == 0 ? (digest_bits < 64 ? digest_bits : 64) : (digest_bits < 64 ? 0 : digest_bits - 64);
  return bits == 64 ? all : all & ((std::uint64_t{1} << bits) - 1);
}

}  // namespace holdfast::bytes_map
