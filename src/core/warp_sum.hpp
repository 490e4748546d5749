// Sums over a warp.
#pragma once

#include "holdfast/kernel.hpp"

namespace holdfast::core {

inline constexpr unsigned kWarp = 32;

// In all of its threads, modulo 2^64. REQUIRES: all of them call.
__device__ inline unsigned long long warp_sum(unsigned long long mine) {
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    mine += __shfl_xor_sync(0xffffffffu, mine, distance);
  }
  return mine;
}

}  // namespace holdfast::core
