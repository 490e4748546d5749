// Kernels of bench/check_bench.cpp.
#include "check_bench.hpp"

namespace holdfast::bench {

__global__ void copy_words(unsigned count, const std::uint64_t* in, std::uint64_t* out) {
  for (unsigned i = 0; i < count; ++i) {
    const unsigned at = (i * blockDim.x + threadIdx.x) % kCheckWords;
    out[at] = in[at] + 1;
  }
}

__global__ void store_and_persist(unsigned count, std::uint64_t* out) {
  for (unsigned i = 0; i < count; ++i) {
    out[(i * blockDim.x + threadIdx.x) % kCheckWords] = i;
    persist();
  }
}

__global__ void count_together(unsigned count, std::uint32_t* word, std::uint64_t* out) {
  std::uint32_t found = 0;
  for (unsigned i = 0; i < count; ++i) found = atomicAdd(word, 1u);
  out[threadIdx.x] = found + 1;
}

}  // namespace holdfast::bench
