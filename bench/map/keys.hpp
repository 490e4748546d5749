// Keys of one or four words, for kernels and the host.
#pragma once

#include <cstdint>

#include "draws.hpp"

namespace maps {

template <unsigned Words>
struct Key {
  std::uint64_t word[Words];
  MAPS_BOTH_SIDES bool operator==(const Key& other) const {
    bool same = true;
    for (unsigned w = 0; w < Words; ++w) same &= word[w] == other.word[w];
    return same;
  }
  MAPS_BOTH_SIDES std::uint64_t hash() const {
    std::uint64_t sum = 0;
    for (unsigned w = 0; w < Words; ++w) {
      sum = scrambled(sum ^ (word[w] + (w + 1) * 0x9e3779b97f4a7c15ull));
    }
    return sum;
  }
};

}  // namespace maps
