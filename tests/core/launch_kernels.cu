#include "core/launch_kernels.hpp"

#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

constexpr unsigned kBlock = 64;

__global__ void add_one(std::uint32_t* words, std::uint64_t count) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) words[i] += 1;
}

}  // namespace

void add_one_to_each(Stream& stream, std::uint32_t* words, std::uint64_t count) {
  launch(stream, blocks_for(count, kBlock), kBlock, add_one, words, count);
}

}  // namespace holdfast::test
