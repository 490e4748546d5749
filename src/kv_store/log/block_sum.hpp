// Sums over the threads of a block.
#pragma once

#include "holdfast/kernel.hpp"

namespace holdfast::kv::log {

// The sum over the block, in thread 0; modulo 2^64. Without atomics, whose orders are as many
// schedules to the checker. REQUIRES: all threads of the block call, a power of two of them, kMost
// at most.
template <unsigned kMost>
__device__ unsigned long long block_sum(unsigned long long value) {
  __shared__ unsigned long long sums[kMost];
  __syncthreads();  // the sum of an earlier call has been read
  sums[threadIdx.x] = value;
  for (unsigned distance = blockDim.x / 2; distance > 0; distance /= 2) {
    __syncthreads();
    if (threadIdx.x < distance) sums[threadIdx.x] += sums[threadIdx.x + distance];
  }
  return threadIdx.x == 0 ? sums[0] : 0;
}

}  // namespace holdfast::kv::log
