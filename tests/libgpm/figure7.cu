#include "libgpm/figure7.hpp"

#include "holdfast/kernel.hpp"

namespace figure7 {
namespace {

constexpr unsigned kBlock = 128;

__global__ void update(float* weights, const std::uint32_t* iterations) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < kWeights) weights[i] = trained(weights[i], i, *iterations);
}

__global__ void count(std::uint32_t* iterations) { ++*iterations; }

}  // namespace

void train(holdfast::Stream& stream, float* weights, std::uint32_t* iterations) {
  holdfast::launch(stream, holdfast::blocks_for(kWeights, kBlock), kBlock, update, weights,
                   iterations);
  holdfast::launch(stream, dim3(1), dim3(1), count, iterations);
}

}  // namespace figure7
