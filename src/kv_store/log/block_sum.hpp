// Sums over a block.
#pragma once

#include "core/warp_sum.hpp"

namespace holdfast::kv::log {

using core::kWarp;
using core::warp_sum;

// The sum over the threads of the warp up to each. REQUIRES: all of them call; blocks of one
// dimension.
__device__ inline unsigned long long warp_sum_up_to(unsigned long long mine) {
  for (unsigned distance = 1; distance < kWarp; distance *= 2) {
    const unsigned long long before = __shfl_up_sync(0xffffffffu, mine, distance);
    if (threadIdx.x % kWarp >= distance) mine += before;
  }
  return mine;
}

// The sum over the block, modulo 2^64, in thread 0; 0 in the others. By shuffles, and a word for
// each warp: an atomic of 64 bits on one word of shared memory goes round once for each of the
// threads, and to the checker its orders are as many schedules. REQUIRES: all threads of the block
// call; blocks of whole warps.
__device__ inline unsigned long long block_sum(unsigned long long mine) {
  __shared__ unsigned long long of_warps[kWarp];
  mine = warp_sum(mine);
  __syncthreads();  // an earlier call's words have been read
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = mine;
  __syncthreads();
  if (threadIdx.x >= kWarp) return 0;
  const unsigned long long sum =
      warp_sum(threadIdx.x < blockDim.x / kWarp ? of_warps[threadIdx.x] : 0);
  return threadIdx.x == 0 ? sum : 0;
}

}  // namespace holdfast::kv::log
