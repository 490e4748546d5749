// Kernels about blocks: barriers, shared memory, indices, and blocks that wait for each other.
#pragma once

#include <cstdint>

#include "holdfast/kernel.hpp"

namespace holdfast::test {

struct Indices {
  uint3 thread, block;
  dim3 block_dim, grid_dim;
};
__global__ void record_indices(Indices* out);

// Threads from `keep` on leave before the first barrier.
__global__ void early_return(unsigned keep, unsigned* out);

// Each block fills its shared memory, lets other blocks in, and checks what is there.
__global__ void shared_stays(unsigned rounds, unsigned* wrong);
__global__ void dynamic_shared_stays(unsigned words, unsigned rounds, unsigned* wrong);

// The block `setter` sets the flag; all others wait for it.
__global__ void wait_for_block(unsigned setter, unsigned* flag, unsigned* seen);
__global__ void wait_by_acquire(unsigned setter, unsigned* flag, unsigned* data, unsigned* seen);

// Blocks pass a token round `rounds` times, in index order or against it.
__global__ void token_ring(unsigned rounds, bool backwards, unsigned* token);

// A ticket barrier over all blocks, as grid-wide kernels write it.
__global__ void grid_barrier(unsigned rounds, unsigned* arrived, unsigned* out);

}  // namespace holdfast::test
