// Mode cpu: the same iterations with OpenMP.
#include <cstring>
#include <utility>

#include "hotspot/cell.hpp"
#include "hotspot/hotspot.hpp"

namespace hotspot {

void iterate_on_cpu(int threads, std::uint64_t side, std::uint64_t iterations, float* temperature,
                    float* other, const float* power) {
  const Rates factors = rates(side);
  float* from = temperature;
  float* to = other;
  for (std::uint64_t i = 0; i < iterations; ++i) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (std::uint64_t row = 0; row < side; ++row) {
      for (std::uint64_t column = 0; column < side; ++column) {
        to[row * side + column] = updated(factors, side, row, column, from, power);
      }
    }
    std::swap(from, to);
  }
  if (from != temperature) std::memcpy(temperature, from, side * side * sizeof(float));
}

}  // namespace hotspot
