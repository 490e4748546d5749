#include "cpu/blocks.hpp"

namespace holdfast::test {

__global__ void record_indices(Indices* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  Indices& my = out[block * blockDim.x * blockDim.y * blockDim.z + thread];
  __syncthreads();  // indices must be right after a switch, too
  my.thread = threadIdx;
  my.block = blockIdx;
  my.block_dim = blockDim;
  my.grid_dim = gridDim;
}

__global__ void early_return(unsigned keep, unsigned* out) {
  if (threadIdx.x >= keep) return;
  for (unsigned round = 0; round < 5; ++round) {
    out[threadIdx.x] += 1;
    __syncthreads();
    // All that stayed have counted this round.
    for (unsigned i = 0; i < keep; ++i) {
      if (out[i] != round + 1) __trap();
    }
    __syncthreads();
    if (threadIdx.x == keep - 1) {  // one more leaves in each round
      out[threadIdx.x] = 5;
      return;
    }
    __syncthreads();
    keep -= 1;
  }
}

__global__ void shared_stays(unsigned rounds, unsigned* wrong) {
  __shared__ unsigned words[64];
  words[threadIdx.x] = blockIdx.x * 1000 + threadIdx.x;
  for (unsigned round = 0; round < rounds; ++round) {
    __nanosleep(10);
    if (words[threadIdx.x] != blockIdx.x * 1000 + threadIdx.x) atomicAdd(wrong, 1u);
    __syncthreads();
    const unsigned next = (threadIdx.x + 1) % blockDim.x;
    if (words[next] != blockIdx.x * 1000 + next) atomicAdd(wrong, 1u);
    __syncthreads();
  }
}

__global__ void dynamic_shared_stays(unsigned words_count, unsigned rounds, unsigned* wrong) {
  auto* words = dynamic_shared<unsigned>();
  for (unsigned i = threadIdx.x; i < words_count; i += blockDim.x) words[i] = blockIdx.x + i;
  for (unsigned round = 0; round < rounds; ++round) {
    __nanosleep(10);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < words_count; i += blockDim.x) {
      if (words[i] != blockIdx.x + i) atomicAdd(wrong, 1u);
    }
  }
}

__global__ void wait_for_block(unsigned setter, unsigned* flag, unsigned* seen) {
  if (blockIdx.x == setter) {
    __syncthreads();
    if (threadIdx.x == 0) atomicExch(flag, 1u);
  } else {
    while (atomicAdd(flag, 0u) == 0) {
    }
    atomicAdd(seen, 1u);
  }
}

__global__ void wait_by_acquire(unsigned setter, unsigned* flag, unsigned* data, unsigned* seen) {
  if (blockIdx.x == setter) {
    data[threadIdx.x] = threadIdx.x + 1;
    __syncthreads();
    if (threadIdx.x == 0) prel<Scope::device>(flag, 1u);
  } else {
    while (pacq<Scope::device>(flag) == 0) {
    }
    if (data[threadIdx.x] == threadIdx.x + 1) atomicAdd(seen, 1u);
  }
}

__global__ void token_ring(unsigned rounds, bool backwards, unsigned* token) {
  const unsigned me = backwards ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  for (unsigned round = 0; round < rounds; ++round) {
    if (threadIdx.x == 0) {
      while (atomicAdd(token, 0u) != round * gridDim.x + me) {
      }
      atomicAdd(token, 1u);
    }
    __syncthreads();
  }
}

__global__ void grid_barrier(unsigned rounds, unsigned* arrived, unsigned* out) {
  for (unsigned round = 0; round < rounds; ++round) {
    out[blockIdx.x * blockDim.x + threadIdx.x] = round + 1;
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      atomicAdd(arrived, 1u);
      while (atomicAdd(arrived, 0u) < (round + 1) * gridDim.x) __nanosleep(20);
    }
    __syncthreads();
    const unsigned other = (blockIdx.x + 1) % gridDim.x;
    if (out[other * blockDim.x + threadIdx.x] < round + 1) __trap();
  }
}

}  // namespace holdfast::test
