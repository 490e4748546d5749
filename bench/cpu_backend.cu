// Kernels of bench/cpu_backend.cpp.
#include "cpu_backend.hpp"

namespace holdfast::bench {

__global__ void store_once(unsigned* out) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x;
}

__global__ void barriers(unsigned count) {
  for (unsigned i = 0; i < count; ++i) __syncthreads();
}

__global__ void yields(unsigned count) {
  for (unsigned i = 0; i < count; ++i) __nanosleep(1);
}

__global__ void shuffles(unsigned count, unsigned* out) {
  unsigned value = threadIdx.x;
  for (unsigned i = 0; i < count; ++i) value += __shfl_xor_sync(~0u, value, 1);
  if (value == 1) *out = value;
}

__global__ void atomics(unsigned count, unsigned* out) {
  for (unsigned i = 0; i < count; ++i) atomicAdd(out, 1u);
}

__global__ void loads_and_stores(unsigned count, const unsigned* in, unsigned* out) {
  for (unsigned i = 0; i < count; ++i) {
    const unsigned at = (i * blockDim.x + threadIdx.x) % kWords;
    out[at] = in[at] + 1;
  }
}

}  // namespace holdfast::bench
