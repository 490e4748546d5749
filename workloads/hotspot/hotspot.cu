#include "hotspot/hotspot.hpp"

#include <utility>

#include "holdfast/kernel.hpp"
#include "hotspot/cell.hpp"

namespace hotspot {
namespace {

constexpr unsigned kColumns = 64;
constexpr unsigned kRows = 4;

__global__ void update(Rates rates, std::uint64_t side, const float* temperature,
                       const float* power, float* result) {
  const std::uint64_t column = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::uint64_t row = std::uint64_t{blockIdx.y} * blockDim.y + threadIdx.y;
  if (row >= side || column >= side) return;
  result[row * side + column] = updated(rates, side, row, column, temperature, power);
}

}  // namespace

void iterate(holdfast::Stream& stream, std::uint64_t side, std::uint64_t iterations,
             float* temperature, float* other, const float* power) {
  const dim3 block(kColumns, kRows);
  const dim3 grid(holdfast::blocks_for(side, kColumns), holdfast::blocks_for(side, kRows));
  float* from = temperature;
  float* to = other;
  for (std::uint64_t i = 0; i < iterations; ++i) {
    holdfast::launch(stream, grid, block, update, rates(side), side, from, power, to);
    std::swap(from, to);
  }
  if (from != temperature) {
    holdfast::copy_async(stream, temperature, from, side * side * sizeof(float));
  }
}

}  // namespace hotspot
