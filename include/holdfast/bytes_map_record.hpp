// A record on the medium, the word of the index that names it, and where records are. Included by
// bytes_map_ref.hpp. docs/format.md, "A bytes map".
#pragma once

#include <cstddef>
#include <cstdint>

#include "holdfast/hash_map_ref.hpp"

#if HOLDFAST_DEVICE_CODE
#define HOLDFAST_BOTH_SIDES __host__ __device__
#else
#define HOLDFAST_BOTH_SIDES
#endif

namespace holdfast {

inline constexpr std::uint64_t kMostBytesOfKey = std::uint64_t{64} << 10;
inline constexpr std::uint64_t kMostBytesOfValue = std::uint64_t{16} << 20;

}  // namespace holdfast

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

HOLDFAST_BOTH_SIDES constexpr std::uint64_t grains_for(std::uint64_t bytes) {
  return (bytes + kGrain - 1) / kGrain;
}
HOLDFAST_BOTH_SIDES constexpr std::uint64_t grains_of(std::uint64_t key_bytes,
                                                      std::uint64_t value_bytes) {
  return 1 + grains_for(key_bytes) + grains_for(value_bytes);
}

// Where a record is, and how large: all that opening has to know of it, which reads no record.
struct Extent {
  std::uint64_t first = 0;  // grain
  std::uint64_t grains = 0;
  HOLDFAST_BOTH_SIDES constexpr std::uint64_t end() const { return first + grains; }
};

// As the index has it: 36 bits of `first`, 21 of `grains`, and a tag, by which it is none of the
// words that a map cannot store (EmptyValue), and some damage is noticed.
inline constexpr unsigned kFirstBits = 36;
inline constexpr unsigned kGrainsBits = 21;
inline constexpr std::uint64_t kTag = 0x25;
static_assert(grains_of(kMostBytesOfKey, kMostBytesOfValue) < std::uint64_t{1} << kGrainsBits);

HOLDFAST_BOTH_SIDES constexpr std::uint64_t word_of(const Extent& extent) {
  return extent.first | extent.grains << kFirstBits | kTag << (kFirstBits + kGrainsBits);
}
HOLDFAST_BOTH_SIDES constexpr Extent extent_of(std::uint64_t word) {
  return {word & ((std::uint64_t{1} << kFirstBits) - 1),
          word >> kFirstBits & ((std::uint64_t{1} << kGrainsBits) - 1)};
}
// Whether it names an extent, of those that there are or not.
HOLDFAST_BOTH_SIDES constexpr bool is_word(std::uint64_t word) {
  return word >> (kFirstBits + kGrainsBits) == kTag && extent_of(word).grains != 0;
}
HOLDFAST_BOTH_SIDES constexpr bool is_head(const RecordHead& head, const Extent& extent) {
  return head.key_bytes <= kMostBytesOfKey && head.value_bytes <= kMostBytesOfValue &&
         grains_of(head.key_bytes, head.value_bytes) == extent.grains;
}

// What became of a lookup.
enum class Seen : std::uint8_t {
  absent = 0,
  same = 1,     // as its key is
  other = 2,    // a record of another key
  damaged = 3,  // the word, or the record's lengths or key
};

// ---- Sums --------------------------------------------------------------------------------------
// Of terms, one for each grain, so that threads sum them in any order.

inline constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15ull;

// Of grain `i` behind the head.
HOLDFAST_BOTH_SIDES constexpr std::uint64_t sum_term(std::uint64_t i, std::uint64_t low,
                                                     std::uint64_t high) {
  return MapHash::digest((2 * i + 1) * kStep, low) + MapHash::digest((2 * i + 2) * kStep, high);
}
HOLDFAST_BOTH_SIDES constexpr std::uint64_t sum_of(std::uint64_t terms, std::uint32_t key_bytes,
                                                   std::uint32_t value_bytes, std::uint64_t first) {
  const std::uint64_t lengths = std::uint64_t{value_bytes} << 32 | key_bytes;
  return MapHash::digest(MapHash::digest(terms, lengths), first);
}

// A key's digest of 128 bits, in two halves. A word is mixed before its place comes in: words that
// change places make another digest.
HOLDFAST_BOTH_SIDES constexpr std::uint64_t digest_term(unsigned half, std::uint64_t i,
                                                        std::uint64_t low, std::uint64_t high) {
  const std::uint64_t seed = half == 0 ? 0x243f6a8885a308d3ull : 0x13198a2e03707344ull;
  return MapHash::digest(MapHash::digest(seed, low), 2 * i + 1) +
         MapHash::digest(MapHash::digest(seed, high), 2 * i + 2);
}
HOLDFAST_BOTH_SIDES constexpr std::uint64_t digest_of(unsigned half, std::uint64_t terms,
                                                      std::uint64_t bytes, unsigned digest_bits) {
  const std::uint64_t all = MapHash::digest(terms, bytes + half * kStep);
  const unsigned bits =
      half == 0 ? (digest_bits < 64 ? digest_bits : 64) : (digest_bits < 64 ? 0 : digest_bits - 64);
  return bits == 64 ? all : all & ((std::uint64_t{1} << bits) - 1);
}

// ---- Chunks ------------------------------------------------------------------------------------
// Where records are: chunks, one for each object that has records. Their grains are numbered one
// chunk behind the other, and between two chunks there is a number that is no grain's: so what is
// free at the end of one never touches what is free at the beginning of the next.

struct Chunk {
  std::byte* bytes = nullptr;
  std::uint64_t first = 0;  // the number of its first grain
  std::uint64_t grains = 0;

  HOLDFAST_BOTH_SIDES constexpr std::uint64_t end() const { return first + grains; }
  HOLDFAST_BOTH_SIDES constexpr bool holds(const Extent& extent) const {
    return extent.first >= first && extent.end() <= end();
  }
  HOLDFAST_BOTH_SIDES constexpr std::byte* at(std::uint64_t grain) const {
    return bytes + (grain - first) * kGrain;
  }
};

// The last of `count` chunks that begins at or before a grain; null: none does. They are sorted.
HOLDFAST_BOTH_SIDES constexpr const Chunk* chunk_at(const Chunk* chunks, std::uint64_t count,
                                                    std::uint64_t grain) {
  std::uint64_t low = 0, high = count;
  while (low < high) {
    const std::uint64_t middle = (low + high) / 2;
    if (chunks[middle].first <= grain) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low == 0 ? nullptr : chunks + low - 1;
}

// As kernels have them. A map that has not grown reads no list.
struct Chunks {
  Chunk first;
  const Chunk* more;  // in device memory
  std::uint64_t more_count;

  HOLDFAST_BOTH_SIDES constexpr Chunk of(std::uint64_t grain) const {
    if (more_count == 0 || grain < first.end()) return first;
    const Chunk* const found = chunk_at(more, more_count, grain);
    return found != nullptr ? *found : first;
  }
  // Where the record is that an extent, which a chunk holds, has.
  HOLDFAST_BOTH_SIDES constexpr std::byte* at(const Extent& extent) const {
    return of(extent.first).at(extent.first);
  }
};

}  // namespace holdfast::bytes_map
#undef HOLDFAST_BOTH_SIDES
