// The diffusion of mode cpu.
#include <algorithm>

#include "srad/diffusion.hpp"
#include "workload/backing.hpp"

namespace srad {
namespace {

using workload::Backing;
using u64 = std::uint64_t;

constexpr u64 kParallelPixels = 1u << 14;  // below, threads cost more than they bring

// One row's places in an image, and its neighbours' rows.
struct Rows {
  const float* here;
  const float* above;
  const float* below;
};

Rows rows_at(const Frame& frame, const float* image, u64 row) {
  const float* const here = image + row * frame.columns;
  return {here, row > 0 ? here - frame.columns : here,
          row + 1 < frame.rows ? here + frame.columns : here};
}

float speckle_of(const Frame& frame, const float* image) {
  double sum = 0, squares = 0;
  for (u64 row = 0; row < frame.region_rows; ++row) {
    for (u64 column = 0; column < frame.region_columns; ++column) {
      const double value = image[row * frame.columns + column];
      sum += value;
      squares += value * value;
    }
  }
  const double pixels = double(frame.region_rows) * frame.region_columns;
  const double mean = sum / pixels;
  const double variance = squares / pixels - mean * mean;
  return std::max(static_cast<float>(variance / (mean * mean)), kLeastSpeckle);
}

void row_coefficients(const Frame& frame, const Rows& rows, float speckle, float* out) {
  for (u64 i = 0; i < frame.columns; ++i) {
    const float here = rows.here[i];
    const float n = rows.above[i] - here;
    const float s = rows.below[i] - here;
    const float w = rows.here[i > 0 ? i - 1 : i] - here;
    const float e = rows.here[i + 1 < frame.columns ? i + 1 : i] - here;
    const float gradient = (n * n + s * s + w * w + e * e) / (here * here);
    const float laplacian = (n + s + w + e) / here;
    const float scale = 1 + laplacian / 4;
    const float variation = (gradient / 2 - laplacian * laplacian / 16) / (scale * scale);
    const float excess = (variation - speckle) / (speckle * (1 + speckle));
    out[i] = std::clamp(1 / (1 + excess), 0.0f, 1.0f);
  }
}

void diffuse_row(const Frame& frame, const Rows& rows, const Rows& weights, float* out) {
  for (u64 i = 0; i < frame.columns; ++i) {
    const float here = rows.here[i];
    const u64 left = i > 0 ? i - 1 : i;
    const u64 right = i + 1 < frame.columns ? i + 1 : i;
    const float flow = weights.here[i] * (rows.above[i] - here) +
                       weights.below[i] * (rows.below[i] - here) +
                       weights.here[i] * (rows.here[left] - here) +
                       weights.here[right] * (rows.here[right] - here);
    out[i] = here + frame.lambda / 4 * flow;
  }
}

}  // namespace

void iterate_on_cpu(const Frame& frame, const Durable& durable, std::uint64_t iteration,
                    unsigned threads) {
  const int count = static_cast<int>(threads);
  const float* const image = durable.images[iteration % 2];
  float* const next = durable.images[(iteration + 1) % 2];
  const float speckle = speckle_of(frame, image);
  const u64 row_bytes = frame.columns * sizeof(float);
#pragma omp parallel num_threads(count) if (frame.pixels() >= kParallelPixels)
  {
#pragma omp for schedule(static)
    for (u64 row = 0; row < frame.rows; ++row) {
      float* const out = durable.coefficients + row * frame.columns;
      row_coefficients(frame, rows_at(frame, image, row), speckle, out);
      Backing::flush(out, row_bytes);
    }
#pragma omp for schedule(static)
    for (u64 row = 0; row < frame.rows; ++row) {
      float* const out = next + row * frame.columns;
      diffuse_row(frame, rows_at(frame, image, row), rows_at(frame, durable.coefficients, row),
                  out);
      Backing::flush(out, row_bytes);
    }
  }
}

}  // namespace srad
