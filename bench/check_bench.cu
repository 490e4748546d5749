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

}  // namespace holdfast::bench
