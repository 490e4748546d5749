#include "core/standby_kernels.hpp"

#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

__global__ void keep_counting_kernel(std::uint64_t* counters, std::uint64_t rounds) {
  volatile std::uint64_t* const mine = &counters[blockIdx.x * blockDim.x + threadIdx.x];
  for (std::uint64_t i = 0; i < rounds; ++i) {
    *mine = *mine + 1;
    persist();
  }
}

}  // namespace

void keep_counting(Stream& stream, std::uint64_t* counters, std::uint64_t rounds) {
  launch(stream, dim3(kCounters / 256), dim3(256), keep_counting_kernel, counters, rounds);
}

}  // namespace holdfast::test
