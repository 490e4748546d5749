#include <algorithm>

#include "holdfast/kernel.hpp"
#include "srad/diffusion.hpp"

namespace srad {
namespace {

using holdfast::persist;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

constexpr u32 kSumThreads = 256;

// Device memory, where the kernels work.
struct Working {
  const float* image;
  float* next;
  float* coefficients;
  const u32* found;
};

__device__ u64 pixels_of(const Frame& frame) { return u64{frame.rows} * frame.columns; }

struct Differences {
  float centre, north, south, west, east;
};

// To the four neighbours; beyond the border the image goes on as it is at the border.
__device__ Differences differences(const Frame& frame, const float* image, u64 i) {
  const u64 columns = frame.columns;
  const u64 row = i / columns;
  const u64 column = i - row * columns;
  const float centre = image[i];
  return {centre, (row > 0 ? image[i - columns] : centre) - centre,
          (row + 1 < frame.rows ? image[i + columns] : centre) - centre,
          (column > 0 ? image[i - 1] : centre) - centre,
          (column + 1 < columns ? image[i + 1] : centre) - centre};
}

// Adds up over the block, in an order that depends on its size alone. Thread 0 has the result.
__device__ void add_over_block(double& sum, double& squares) {
  __shared__ double sums[kSumThreads];
  __shared__ double squared[kSumThreads];
  sums[threadIdx.x] = sum;
  squared[threadIdx.x] = squares;
  __syncthreads();
  for (u32 half = kSumThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      sums[threadIdx.x] += sums[threadIdx.x + half];
      squared[threadIdx.x] += squared[threadIdx.x + half];
    }
    __syncthreads();
  }
  sum = sums[0];
  squares = squared[0];
}

// The speckle's coefficient of variation, squared: the variance over the squared mean, of the
// region in the corner. One block.
__global__ void find_speckle(Frame frame, const float* image, float* speckle) {
  double sum = 0;
  double squares = 0;
  const u32 pixels = frame.region_rows * frame.region_columns;
  for (u32 i = threadIdx.x; i < pixels; i += kSumThreads) {
    const u32 row = i / frame.region_columns;
    const double value = image[u64{row} * frame.columns + i % frame.region_columns];
    sum += value;
    squares += value * value;
  }
  add_over_block(sum, squares);
  if (threadIdx.x != 0) return;
  const double mean = sum / pixels;
  const double variance = squares / pixels - mean * mean;
  *speckle = fmaxf(static_cast<float>(variance / (mean * mean)), kLeastSpeckle);
}

// 1 where the image varies as speckle does, towards 0 at edges.
__device__ float coefficient_at(const Frame& frame, const float* image, u64 i, float speckle) {
  const Differences d = differences(frame, image, i);
  const float gradient =
      (d.north * d.north + d.south * d.south + d.west * d.west + d.east * d.east) /
      (d.centre * d.centre);
  const float laplacian = (d.north + d.south + d.west + d.east) / d.centre;
  const float scale = 1.0f + 0.25f * laplacian;
  const float variation = (0.5f * gradient - 0.0625f * laplacian * laplacian) / (scale * scale);
  const float value = 1.0f / (1.0f + (variation - speckle) / (speckle * (1.0f + speckle)));
  return value < 0.0f ? 0.0f : value > 1.0f ? 1.0f : value;
}

// The block's tile is stored. Its stamp comes behind all of it.
__device__ void stamp_tile(u32* stamp, u32 phase) {
  persist();
  __syncthreads();
  if (threadIdx.x != 0) return;
  *stamp = phase;
  persist();
}

__global__ void find_coefficients(Frame frame, Durable durable, Working work, const float* speckle,
                                  u32 phase, bool persists) {
  const bool is_there = persists && work.found[blockIdx.x] >= phase;
  const u64 i = u64{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < pixels_of(frame)) {
    float value;
    if (is_there) {
      value = durable.coefficients[i];
    } else {
      value = coefficient_at(frame, work.image, i, *speckle);
      durable.coefficients[i] = value;
    }
    work.coefficients[i] = value;
  }
  if (persists && !is_there) stamp_tile(durable.stamps + blockIdx.x, phase);
}

__device__ float diffused(const Frame& frame, const Working& work, u64 i) {
  const Differences d = differences(frame, work.image, i);
  const u64 row = i / frame.columns;
  const bool last_column = i - row * frame.columns + 1 == frame.columns;
  const float here = work.coefficients[i];
  const float south = row + 1 < frame.rows ? work.coefficients[i + frame.columns] : here;
  const float east = last_column ? here : work.coefficients[i + 1];
  const float divergence = here * d.north + south * d.south + here * d.west + east * d.east;
  return d.centre + 0.25f * frame.lambda * divergence;
}

__global__ void diffuse(Frame frame, Durable durable, float* durable_next, Working work, u32 phase,
                        bool persists) {
  const bool is_there = persists && work.found[blockIdx.x] >= phase;
  const u64 i = u64{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < pixels_of(frame)) {
    float value;
    if (is_there) {
      value = durable_next[i];
    } else {
      value = diffused(frame, work, i);
      durable_next[i] = value;
    }
    work.next[i] = value;
  }
  if (persists && !is_there) stamp_tile(durable.stamps + blockIdx.x, phase);
}

}  // namespace

Diffusion::Diffusion(holdfast::Stream& stream, const Frame& frame, const Durable& durable,
                     bool persists, bool in_place)
    : stream_(stream),
      frame_(frame),
      durable_(durable),
      persists_(persists),
      images_{durable.images[0], durable.images[1]},
      coefficients_(durable.coefficients),
      found_(frame.tiles()),
      speckle_(1) {
  if (in_place) return;
  for (auto& buffer : buffers_) buffer = holdfast::DeviceBuffer<float>(frame.pixels());
  images_[0] = buffers_[0].data();
  images_[1] = buffers_[1].data();
  coefficients_ = buffers_[2].data();
}

std::uint64_t Diffusion::iterations_done() {
  std::vector<u32> stamps(frame_.tiles());
  holdfast::copy_async(stream_, found_.data(), durable_.stamps, found_.bytes());
  holdfast::copy_async(stream_, stamps.data(), found_.data(), found_.bytes());
  stream_.synchronize();
  const auto [least, most] = std::minmax_element(stamps.begin(), stamps.end());
  if (*most > *least + 1) {
    throw holdfast::Error(holdfast::Errc::damaged,
                          "the diffusion on the medium: one tile is ahead of another by more than "
                          "an iteration's half; it is damaged: remove the region");
  }
  const u64 done = *least / 2;
  tiles_ahead_ = 0;
  for (const u32 stamp : stamps) tiles_ahead_ += stamp - 2 * done;
  return done;
}

void Diffusion::load(std::uint64_t iteration, const std::vector<float>& input) {
  const u64 bytes = frame_.pixels() * sizeof(float);
  float* const image = images_[iteration % 2];
  const float* const stored = durable_.images[iteration % 2];
  if (iteration == 0) {
    holdfast::copy_async(stream_, image, input.data(), bytes);
  } else if (image != stored) {
    holdfast::copy_async(stream_, image, stored, bytes);
  }
  stream_.synchronize();
}

void Diffusion::iterate(std::uint64_t iteration) {
  const Working work{images_[iteration % 2], images_[(iteration + 1) % 2], coefficients_,
                     found_.data()};
  const dim3 tiles(static_cast<u32>(frame_.tiles()));
  const dim3 threads(frame_.tile);
  const auto phase = static_cast<u32>(2 * iteration);
  holdfast::launch(stream_, dim3(1), dim3(kSumThreads), find_speckle, frame_, work.image,
                   speckle_.data());
  holdfast::launch(stream_, tiles, threads, find_coefficients, frame_, durable_, work,
                   speckle_.data(), phase + 1, persists_);
  holdfast::launch(stream_, tiles, threads, diffuse, frame_, durable_,
                   durable_.images[(iteration + 1) % 2], work, phase + 2, persists_);
}

}  // namespace srad
