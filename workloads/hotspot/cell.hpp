// The update of one cell, for kernels and mode cpu.
#pragma once

#include <cstdint>

#include "checkpointing/host_device.hpp"
#include "hotspot/hotspot.hpp"

namespace hotspot {

inline constexpr float kAmbient = 80.0f;

// Temperature of cell (row, column) after one more iteration. Beyond an edge it is as warm as at
// the edge.
CHECKPOINTING_HOST_DEVICE inline float updated(const Rates& rates, std::uint64_t side,
                                               std::uint64_t row, std::uint64_t column,
                                               const float* temperature, const float* power) {
  const std::uint64_t i = row * side + column;
  const float here = temperature[i];
  const float above = row > 0 ? temperature[i - side] : here;
  const float below = row + 1 < side ? temperature[i + side] : here;
  const float left = column > 0 ? temperature[i - 1] : here;
  const float right = column + 1 < side ? temperature[i + 1] : here;
  return here + rates.per_watt * (power[i] + (above + below - 2.0f * here) * rates.vertical +
                                  (left + right - 2.0f * here) * rates.horizontal +
                                  (kAmbient - here) * rates.ambient);
}

}  // namespace hotspot
