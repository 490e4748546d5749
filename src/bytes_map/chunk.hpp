// Where records are: chunks, one for each object that has records. Their grains are numbered one
// chunk behind the other, and between two chunks there is a number that is no grain's: so what is
// free at the end of one never touches what is free at the beginning of the next.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bytes_map/record.hpp"

namespace holdfast::bytes_map {

struct Chunk {
  std::byte* bytes = nullptr;
  std::uint64_t first = 0;  // the number of its first grain
  std::uint64_t grains = 0;

  BYTES_MAP_BOTH_SIDES constexpr std::uint64_t end() const { return first + grains; }
  BYTES_MAP_BOTH_SIDES constexpr bool holds(const Extent& extent) const {
    return extent.first >= first && extent.end() <= end();
  }
  BYTES_MAP_BOTH_SIDES constexpr std::byte* at(std::uint64_t grain) const {
    return bytes + (grain - first) * kGrain;
  }
};

// The last of `count` chunks that begins at or before a grain; null: none does. They are sorted.
BYTES_MAP_BOTH_SIDES constexpr const Chunk* chunk_at(const Chunk* chunks, std::uint64_t count,
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

  BYTES_MAP_BOTH_SIDES constexpr Chunk of(std::uint64_t grain) const {
    if (more_count == 0 || grain < first.end()) return first;
    const Chunk* const found = chunk_at(more, more_count, grain);
    return found != nullptr ? *found : first;
  }
  // Where the record is that an extent, which a chunk holds, has.
  BYTES_MAP_BOTH_SIDES constexpr std::byte* at(const Extent& extent) const {
    return of(extent.first).at(extent.first);
  }
};

}  // namespace holdfast::bytes_map
