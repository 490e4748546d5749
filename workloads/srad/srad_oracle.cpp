#include <algorithm>
#include <cmath>

#include "srad/srad.hpp"
#include "workload/in_parts.hpp"

namespace srad {
namespace {

struct Oracle {
  std::int64_t rows, columns;
  std::int64_t region_rows, region_columns;
  std::vector<double> image, coefficients, next;

  std::size_t index(std::int64_t row, std::int64_t column) const {
    row = std::clamp<std::int64_t>(row, 0, rows - 1);
    column = std::clamp<std::int64_t>(column, 0, columns - 1);
    return static_cast<std::size_t>(row * columns + column);
  }
  double at(std::int64_t row, std::int64_t column) const { return image[index(row, column)]; }
  double weight(std::int64_t row, std::int64_t column) const {
    return coefficients[index(row, column)];
  }

  double speckle() const {
    const auto pixels = static_cast<double>(region_rows * region_columns);
    double mean = 0, variance = 0;
    for (std::int64_t row = 0; row < region_rows; ++row) {
      for (std::int64_t column = 0; column < region_columns; ++column) mean += at(row, column);
    }
    mean /= pixels;
    for (std::int64_t row = 0; row < region_rows; ++row) {
      for (std::int64_t column = 0; column < region_columns; ++column) {
        variance += (at(row, column) - mean) * (at(row, column) - mean);
      }
    }
    return std::max(variance / pixels / (mean * mean), 1e-6);
  }

  // Calls body(row), each in one of several threads.
  template <class Body>
  void for_rows(const Body& body) const {
    const std::uint64_t least = 1 + (1u << 16) / static_cast<std::uint64_t>(columns);
    workload::in_parts(static_cast<std::uint64_t>(rows), least,
                       [&](std::uint64_t first, std::uint64_t end) {
                         for (std::uint64_t row = first; row < end; ++row) {
                           body(static_cast<std::int64_t>(row));
                         }
                       });
  }

  void find_coefficients() {
    const double q0 = speckle();
    for_rows([&](std::int64_t row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        const double here = at(row, column);
        const double around[] = {at(row - 1, column), at(row + 1, column), at(row, column - 1),
                                 at(row, column + 1)};
        double squares = 0, sum = 0;
        for (const double value : around) {
          squares += (value / here - 1) * (value / here - 1);
          sum += value / here - 1;
        }
        const double q = (squares / 2 - sum * sum / 16) / ((1 + sum / 4) * (1 + sum / 4));
        const double c = 1 / (1 + (q - q0) / (q0 * (1 + q0)));
        coefficients[index(row, column)] = std::clamp(c, 0.0, 1.0);
      }
    });
  }

  void diffuse(double lambda) {
    next.resize(image.size());
    for_rows([&](std::int64_t row) {
      for (std::int64_t column = 0; column < columns; ++column) {
        const double here = at(row, column);
        const double flow = weight(row, column) * (at(row - 1, column) - here) +
                            weight(row + 1, column) * (at(row + 1, column) - here) +
                            weight(row, column) * (at(row, column - 1) - here) +
                            weight(row, column + 1) * (at(row, column + 1) - here);
        next[index(row, column)] = here + lambda / 4 * flow;
      }
    });
    image.swap(next);
  }
};

}  // namespace

Diffused oracle(const Image& image, std::uint64_t iterations, double lambda, std::uint32_t region) {
  Oracle state{image.rows,
               image.columns,
               std::min(region, image.rows),
               std::min(region, image.columns),
               {},
               std::vector<double>(image.size()),
               {}};
  state.image.reserve(image.size());
  for (const std::uint16_t pixel : image.pixels) {
    state.image.push_back(std::exp(static_cast<double>(pixel) / image.most));
  }
  for (std::uint64_t i = 0; i < iterations; ++i) {
    state.find_coefficients();
    state.diffuse(lambda);
  }
  return {std::move(state.image), std::move(state.coefficients)};
}

}  // namespace srad
