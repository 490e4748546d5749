#include "check/race_test.hpp"

namespace holdfast::test {

__global__ void neighbour(unsigned* out, bool synchronize) {
  __shared__ unsigned words[64];
  words[threadIdx.x] = threadIdx.x;
  if (synchronize) __syncthreads();
  out[blockIdx.x * 64 + threadIdx.x] = words[(threadIdx.x + 1) % 64];
}

__global__ void warp_neighbour(unsigned* out, bool synchronize) {
  __shared__ unsigned words[32];
  words[threadIdx.x] = threadIdx.x;
  if (synchronize) __syncwarp();
  out[threadIdx.x] = words[31 - threadIdx.x];
}

__global__ void warp_halves(unsigned* out) {
  __shared__ unsigned words[32];
  const unsigned half = threadIdx.x < 16 ? 0x0000ffff : 0xffff0000;
  words[threadIdx.x] = threadIdx.x;
  __syncwarp(half);
  out[threadIdx.x] = words[threadIdx.x ^ 15];
  if (threadIdx.x == 0) out[32] = words[16];
}

__global__ void dynamic_neighbour(unsigned* out) {
  auto* const words = dynamic_shared<unsigned>();
  words[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[blockIdx.x * 32 + threadIdx.x] = words[31 - threadIdx.x];
}

__global__ void count_block(unsigned* count) { atomicAdd_block(count, 1u); }
__global__ void count_device(unsigned* count) { atomicAdd(count, 1u); }

__global__ void pass_release_block(unsigned* data, unsigned* flag, unsigned* out) {
  if (threadIdx.x != 0) return;
  if (blockIdx.x == 0) {
    *data = 7;
    prel<Scope::block>(flag, 1u);
  } else if (blockIdx.x == gridDim.x - 1) {
    while (pacq<Scope::block>(flag) == 0) {
    }
    *out = *data;
  }
}

__global__ void pass_release_device(unsigned* data, unsigned* flag, unsigned* out) {
  if (blockIdx.x == 0) {
    *data = 7;
    prel<Scope::device>(flag, 1u);
  } else {
    while (pacq<Scope::device>(flag) == 0) {
    }
    *out = *data;
  }
}

__global__ void pass_release_narrow_acquire(unsigned* data, unsigned* flag, unsigned* out) {
  if (blockIdx.x == 0) {
    *data = 7;
    prel<Scope::system>(flag, 1u);
  } else {
    while (pacq<Scope::block>(flag) == 0) {
    }
    *out = *data;
  }
}

namespace {
__device__ void fence(Fence which) {
  if (which == Fence::block) __threadfence_block();
  if (which == Fence::device) __threadfence();
  if (which == Fence::persist) persist();
  if (which == Fence::order) ofence();
}
}  // namespace

__global__ void pass_volatile(unsigned* data, volatile unsigned* flag, unsigned* out, Fence before,
                              Fence after) {
  if (blockIdx.x == 0) {
    *data = 7;
    fence(before);
    *flag = 1;
  } else {
    while (*flag == 0) {
    }
    fence(after);
    *out = *data;
  }
}

// Waits for two flags, and then reads them weakly: that is after what the strong reads have seen.
__global__ void pass_volatile_twice(unsigned* data, volatile unsigned* flags, unsigned* out) {
  if (blockIdx.x == 0) {
    *data = 7;
    __threadfence();
    flags[0] = 1;
    flags[1] = 2;
  } else {
    while (flags[0] == 0 || flags[1] == 0) {
    }
    __threadfence();
    const auto* const weak = const_cast<const unsigned*>(flags);
    *out = weak[0] + *data;
    out[1] = weak[0] + weak[1];
  }
}

// The blocks between only count the flag up: what block 0 released stays.
__global__ void pass_through_updates(unsigned* data, unsigned* flag, unsigned* out) {
  if (blockIdx.x == 0) {
    *data = 7;
    __threadfence();
    atomicAdd(flag, 1u);
  } else if (blockIdx.x < gridDim.x - 1) {
    while (atomicCAS(flag, blockIdx.x, blockIdx.x + 1) != blockIdx.x) {
    }
  } else {
    while (atomicAdd(flag, 0u) != gridDim.x - 1) {
    }
    __threadfence();
    *out = *data;
  }
}

// Block 1 stores another value over what block 0 released, which block 2 looks at after that.
__global__ void pass_overwritten(unsigned* data, unsigned* flag, unsigned* out, bool by_releaser) {
  volatile unsigned* const done = out + 1;
  const unsigned writer = by_releaser ? 0 : 1;
  if (blockIdx.x == 0) {
    *data = 7;
    prel<Scope::device>(flag, 1u);
  }
  if (blockIdx.x == writer) {
    while (atomicAdd(flag, 0u) != 1) {
    }
    *static_cast<volatile unsigned*>(flag) = 2;
    *done = 1;
  } else if (blockIdx.x == 2) {
    while (*done == 0) {
    }
    if (pacq<Scope::device>(flag) == 2) *out = *data;
  }
}

// The release is seen by a volatile read, and something else by the acquire.
__global__ void pass_polled(unsigned* data, unsigned* flag, unsigned* out) {
  volatile unsigned* const polled = flag;
  if (blockIdx.x == 0) {
    *data = 7;
    prel<Scope::device>(flag, 1u);
  } else if (blockIdx.x == 1) {
    while (*polled != 2) {
    }
    *polled = 3;
  } else {
    while (*polled != 1) {
    }
    *polled = 2;
    while (*polled != 3) {
    }
    pacq<Scope::device>(flag);
    *out = *data;
  }
}

__global__ void last_block(const unsigned* in, unsigned* sums, unsigned* count, unsigned* total,
                           bool fence_before, bool fence_after) {
  __shared__ unsigned is_last;
  unsigned sum = in[blockIdx.x * blockDim.x + threadIdx.x];
  for (unsigned step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffff, sum, step);
  if (threadIdx.x == 0) {
    sums[blockIdx.x] = sum;
    if (fence_before) __threadfence();
    is_last = atomicAdd(count, 1u) == gridDim.x - 1;
    if (fence_after) __threadfence();
  }
  __syncthreads();
  if (is_last == 0 || threadIdx.x != 1) return;
  unsigned all = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) all += sums[i];
  *total = all;
  *count = 0;
}

__global__ void reduce(const unsigned* in, unsigned* out) {
  __shared__ unsigned sums[128];
  sums[threadIdx.x] = in[blockIdx.x * 128 + threadIdx.x];
  __syncthreads();
  for (unsigned step = 64; step > 0; step /= 2) {
    if (threadIdx.x < step) sums[threadIdx.x] += sums[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(out, sums[0]);
}

__global__ void adjacent_bytes(unsigned char* bytes) {
  bytes[blockIdx.x * blockDim.x + threadIdx.x] += 1;
}

__global__ void overlapping_words(unsigned char* bytes) {
  if (threadIdx.x == 0) *reinterpret_cast<unsigned*>(bytes) = 1;
  if (threadIdx.x == 1) bytes[3] = 1;
}

__global__ void add_one_each(unsigned* words) { words[blockIdx.x * blockDim.x + threadIdx.x] += 1; }

__global__ void all_read(const unsigned* word, unsigned* out) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = *word;
}

__global__ void spin_lock(unsigned* lock, unsigned* sum, bool fence) {
  while (atomicCAS(lock, 0u, 1u) != 0) {
  }
  if (fence) __threadfence();
  *sum += 1;
  if (fence) __threadfence();
  atomicExch(lock, 0u);
}

__global__ void same_value(unsigned* word) { *word = 1; }

__global__ void mixed_sizes(unsigned long long* word, Mixed kind) {
  auto* const half = reinterpret_cast<volatile unsigned*>(word) + 1;
  if (blockIdx.x == 0) {
    prel<Scope::device>(word, 1ull);
  } else if (kind == Mixed::store_half) {
    *half = 2;
  } else if (kind == Mixed::read_half) {
    while (*half == 5) {
    }
  } else if (kind == Mixed::add_half) {
    atomicAdd(reinterpret_cast<unsigned*>(word), 1u);
  } else {
    *const_cast<volatile unsigned long long*>(word) = 2;
  }
}

__global__ void swaps(unsigned* word) {
  atomicCAS(word, 0u, 0u);
  atomicCAS(word, 1u, 2u);
  atomicAdd(word, 0u);
  atomicMax(word, 0u);
}

__global__ void equal_update(unsigned* word, unsigned* out, unsigned expected) {
  if (blockIdx.x == 0) {
    atomicCAS(word, expected, expected);
  } else {
    *out = *word;
  }
}

void store_on_host(unsigned* word, unsigned value) { *word = value; }
unsigned load_on_host(const unsigned* word) { return *word; }

}  // namespace holdfast::test
