#include "cpu/events.hpp"

namespace holdfast::test {

__global__ void load_add_store(const unsigned* in, unsigned* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  out[i] = in[i] + 1;
}

__global__ void all_operations(unsigned* words, std::uint64_t* flag) {
  words[0] = 7;
  ofence();
  words[1] = 8;
  persist();
  dfence();
  __threadfence_block();
  __threadfence();
  __threadfence_system();
  atomicAdd_block(words + 2, 5u);
  atomicCAS(words + 2, 1u, 9u);
  atomicExch_system(words + 2, 6u);
  prel<Scope::device>(flag, std::uint64_t{77});
  words[3] = static_cast<unsigned>(pacq<Scope::block>(flag));
  volatile unsigned* const v = words + 4;
  *v = 3;
  words[5] = *v;
}

__global__ void through_shared(unsigned* out) {
  __shared__ unsigned words[2];
  words[threadIdx.x] = threadIdx.x + 10;
  __syncthreads();
  out[threadIdx.x] = words[1 - threadIdx.x];
}

__global__ void local_only(unsigned* out) {
  volatile unsigned local[8];
  for (unsigned i = 0; i < 8; ++i) local[i] = i;
  unsigned sum = 0;
  for (unsigned i = 0; i < 8; ++i) sum += local[i];
  *out = sum + threadIdx.x + blockIdx.x + blockDim.x + gridDim.x + static_cast<unsigned>(warpSize);
}

__global__ void with_barriers(unsigned* out) {
  if (threadIdx.x == 2) return;
  __syncthreads();
  __syncwarp();
  if (__ballot_sync(0x3, 1) == 3) __syncthreads();
  *out = 1;
}

__global__ void by_value(ByValue arguments, unsigned* out) {
  unsigned sum = 0;
  for (const unsigned word : arguments.words) sum += word;
  *out = sum;
}

namespace {
__device__ Pair swapped(Pair p) { return {p.b, p.a}; }
}  // namespace

__global__ void struct_calls(const Pair* in, Pair* out, uint4* vectors) {
  *out = swapped(*in);
  *vectors = make_uint4(1, 2, 3, 4);
}

__global__ void uses_shared_helper(const unsigned* words, unsigned count, unsigned* out) {
  *out = shared_helper(words, count);
}

}  // namespace holdfast::test
