// Sums over a block.
#pragma once

#include "holdfast/kernel.hpp"

namespace holdfast::kv::log {

// The sum over the block, modulo 2^64, in thread 0; 0 in the others. By shuffles, and a word for
// each warp: an atomic of 64 bits on one word of shared memory goes round once for each of the
// threads, and to the checker its orders are as many schedules. REQUIRES: all threads of the block
// call; blocks of whole warps.
__device__ inline unsigned long long block_sum(unsigned long long mine) {
  constexpr unsigned kWarp = 32;
  __shared__ unsigned long long of_warps[kWarp];
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    mine += __shfl_xor_sync(0xffffffffu, mine, distance);
  }
  __syncthreads();  // an earlier call's words have been read
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return 0;
  for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) mine += of_warps[warp];
  return mine;
}

}  // namespace holdfast::kv::log
