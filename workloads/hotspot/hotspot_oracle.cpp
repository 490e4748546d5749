// The heat equation of the chip once more, in double precision.
#include <algorithm>
#include <cmath>

#include "holdfast/error.hpp"
#include "hotspot/hotspot.hpp"
#include "workload/in_parts.hpp"

namespace hotspot {
namespace {

// Rows and columns [first, end).
struct Range {
  std::uint64_t first, end;
  std::uint64_t size() const { return end - first; }
};

// With `margin` more on both sides, as far as the grid goes.
Range widened(Range range, std::uint64_t margin, std::uint64_t side) {
  return {range.first - std::min(range.first, margin), std::min(range.end + margin, side)};
}

// Flows of heat into a cell, from the physics: conductances of a slab of silicon.
class Chip {
 public:
  explicit Chip(std::uint64_t side) {
    const double thickness = 0.0005,
                 edge = 0.016 / static_cast<double>(std::min(side, kFinestSide));
    const double conductivity = 100.0, heat = 1.75e6;
    const double fit = 0.5;  // of the lumped model to a finer one
    const double capacity = fit * heat * thickness * edge * edge;
    // The largest power density may change the temperature by 0.001 K in a time step.
    const double seconds = 0.001 / (3.0e6 / (fit * thickness * heat));
    gain_ = seconds / capacity;
    sideways_ = 2.0 * conductivity * thickness;
    upwards_ = conductivity * edge * edge / thickness;
  }
  double sideways(double from, double to) const { return sideways_ * (from - to); }
  double from_air(double to) const { return upwards_ * (80.0 - to); }
  double gain() const { return gain_; }

 private:
  double gain_, sideways_, upwards_;
};

// A part of the grid. Cells at an inner border go wrong from there inwards, by one cell an
// iteration.
class Part {
 public:
  Part(const Grids& grids, Range rows, Range columns)
      : grids_(grids),
        rows_(rows),
        columns_(columns),
        now_(rows.size() * columns.size()),
        next_(now_.size()) {
    for_rows([&](std::uint64_t y) {
      for (std::uint64_t x = 0; x < columns_.size(); ++x) {
        now_[y * columns_.size() + x] = grids_.temperature[in_grid(y) + x];
      }
    });
  }

  void advance(const Chip& chip) {
    const std::uint64_t width = columns_.size(), height = rows_.size();
    for_rows([&](std::uint64_t y) {
      const double* const row = now_.data() + y * width;
      // Beyond the border it is as warm as at the border.
      const double* const above = y > 0 ? row - width : row;
      const double* const below = y + 1 < height ? row + width : row;
      const float* const power = grids_.power.data() + in_grid(y);
      double* const next = next_.data() + y * width;
      const auto update = [&](std::uint64_t x, double left, double right) {
        const double here = row[x];
        const double flow = power[x] + chip.from_air(here) + chip.sideways(above[x], here) +
                            chip.sideways(below[x], here) + chip.sideways(left, here) +
                            chip.sideways(right, here);
        next[x] = here + chip.gain() * flow;
      };
      for (std::uint64_t x = 1; x + 1 < width; ++x) update(x, row[x - 1], row[x + 1]);
      update(0, row[0], row[std::min<std::uint64_t>(1, width - 1)]);
      if (width > 1) update(width - 1, row[width - 2], row[width - 1]);
    });
    now_.swap(next_);
  }

  double at(std::uint64_t row, std::uint64_t column) const {
    return now_[(row - rows_.first) * columns_.size() + column - columns_.first];
  }

 private:
  // Where row y of the part begins in the grid.
  std::uint64_t in_grid(std::uint64_t y) const {
    return (rows_.first + y) * grids_.side + columns_.first;
  }
  template <class Body>
  void for_rows(const Body& body) const {
    const std::uint64_t least = 1 + (1u << 16) / columns_.size();
    workload::in_parts(rows_.size(), least, [&](std::uint64_t first, std::uint64_t end) {
      for (std::uint64_t y = first; y < end; ++y) body(y);
    });
  }

  const Grids& grids_;
  Range rows_, columns_;
  std::vector<double> now_, next_;
};

std::string compare_part(const Grids& grids, std::uint64_t iterations,
                         const std::vector<float>& temperature, Range rows, Range columns) {
  const Chip chip(grids.side);
  Part part(grids, widened(rows, iterations, grids.side), widened(columns, iterations, grids.side));
  for (std::uint64_t i = 0; i < iterations; ++i) part.advance(chip);
  for (std::uint64_t row = rows.first; row < rows.end; ++row) {
    for (std::uint64_t column = columns.first; column < columns.end; ++column) {
      const double is = temperature[row * grids.side + column];
      const double should = part.at(row, column);
      if (std::abs(is - should) <= tolerance(iterations)) continue;  // false for NaN
      return holdfast::detail::concat("after ", iterations, " iterations cell (", row, ", ", column,
                                      ") has ", is, " K, and should have ", should);
    }
  }
  return {};
}

}  // namespace

// A float below 512 K is a multiple of 2^-15 K; an update adds few roundings of at most half of
// that to a step that is far smaller, and averages those of its neighbours.
double tolerance(std::uint64_t iterations) {
  return 1e-4 + 0x1p-15 * static_cast<double>(iterations);
}

std::string compare_with_oracle(const Grids& grids, std::uint64_t iterations,
                                const std::vector<float>& temperature, bool in_windows) {
  const std::uint64_t side = grids.side;
  if (!in_windows) return compare_part(grids, iterations, temperature, {0, side}, {0, side});
  const std::uint64_t size = std::min<std::uint64_t>(side, 64);
  const Range low{0, size}, high{side - size, side};
  const Range middle{side / 2 - size / 2, side / 2 - size / 2 + size};
  for (const auto& [rows, columns] :
       {std::pair{low, low}, {low, high}, {high, low}, {high, high}, {middle, middle}}) {
    std::string wrong = compare_part(grids, iterations, temperature, rows, columns);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace hotspot
