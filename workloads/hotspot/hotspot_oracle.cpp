// The heat equation of the chip once more, serially and in double precision.
#include <algorithm>
#include <cmath>

#include "holdfast/error.hpp"
#include "hotspot/hotspot.hpp"

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
      : rows_(rows), columns_(columns), now_(rows.size() * columns.size()), next_(now_.size()) {
    for (std::uint64_t i = 0; i < now_.size(); ++i) {
      const std::uint64_t row = rows.first + i / columns.size();
      const std::uint64_t column = columns.first + i % columns.size();
      now_[i] = grids.temperature[row * grids.side + column];
      power_.push_back(grids.power[row * grids.side + column]);
    }
  }

  void advance(const Chip& chip) {
    const std::uint64_t width = columns_.size(), height = rows_.size();
    for (std::uint64_t y = 0; y < height; ++y) {
      for (std::uint64_t x = 0; x < width; ++x) {
        const std::uint64_t i = y * width + x;
        double flow = power_[i] + chip.from_air(now_[i]);
        if (y > 0) flow += chip.sideways(now_[i - width], now_[i]);
        if (y + 1 < height) flow += chip.sideways(now_[i + width], now_[i]);
        if (x > 0) flow += chip.sideways(now_[i - 1], now_[i]);
        if (x + 1 < width) flow += chip.sideways(now_[i + 1], now_[i]);
        next_[i] = now_[i] + chip.gain() * flow;
      }
    }
    now_.swap(next_);
  }

  double at(std::uint64_t row, std::uint64_t column) const {
    return now_[(row - rows_.first) * columns_.size() + column - columns_.first];
  }

 private:
  Range rows_, columns_;
  std::vector<double> now_, next_, power_;
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
                                const std::vector<float>& temperature, std::uint64_t budget) {
  const std::uint64_t side = grids.side;
  if (side * side * iterations <= budget) {
    return compare_part(grids, iterations, temperature, {0, side}, {0, side});
  }
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
