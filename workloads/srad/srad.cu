#include <algorithm>

#include "holdfast/kernel.hpp"
#include "srad/diffusion.hpp"

namespace srad {
namespace {

using holdfast::persist;
using u32 = std::uint32_t;
using u64 = std::uint64_t;

constexpr u32 kSumThreads = 256;

constexpr u64 kQuadBytes = kQuad * sizeof(float);

// What a thread stores at once.
struct alignas(kQuadBytes) Quad {
  float values[kQuad];
};

// Device memory, where the kernels work.
struct Working {
  const float* image;
  float* next;
  const float* coefficients;
};

// Where a kernel's results go, and whether they are there already.
struct Target {
  float* medium;
  float* working;
  u32* stamps;
  const u32* found;  // stamps as a crash left them
  u32 phase;         // the stamp of this kernel
  bool persists;
};

__host__ __device__ u32 pixels_of(const Frame& frame) { return frame.rows * frame.columns; }

struct Place {
  u32 pixel;
  u32 row;
  u32 column;
};

__device__ Place place_of(const Frame& frame, u32 pixel) {
  const u32 row = pixel / frame.columns;
  return {pixel, row, pixel - row * frame.columns};
}

__device__ void go_on(const Frame& frame, Place& at) {
  ++at.pixel;
  if (++at.column < frame.columns) return;
  at.column = 0;
  ++at.row;
}

struct Differences {
  float centre, north, south, west, east;
};

// To the four neighbours; beyond the border the image goes on as it is at the border.
__device__ Differences differences(const Frame& frame, const float* image, const Place& at) {
  const float* const here = image + at.pixel;
  const float centre = *here;
  return {centre, (at.row > 0 ? *(here - frame.columns) : centre) - centre,
          (at.row + 1 < frame.rows ? here[frame.columns] : centre) - centre,
          (at.column > 0 ? *(here - 1) : centre) - centre,
          (at.column + 1 < frame.columns ? here[1] : centre) - centre};
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
__device__ float coefficient_at(const Frame& frame, const float* image, const Place& at,
                                float speckle) {
  const Differences d = differences(frame, image, at);
  const float gradient =
      (d.north * d.north + d.south * d.south + d.west * d.west + d.east * d.east) /
      (d.centre * d.centre);
  const float laplacian = (d.north + d.south + d.west + d.east) / d.centre;
  const float scale = 1.0f + 0.25f * laplacian;
  const float variation = (0.5f * gradient - 0.0625f * laplacian * laplacian) / (scale * scale);
  const float value = 1.0f / (1.0f + (variation - speckle) / (speckle * (1.0f + speckle)));
  return value < 0.0f ? 0.0f : value > 1.0f ? 1.0f : value;
}

__device__ float diffused(const Frame& frame, const Working& work, const Place& at) {
  const Differences d = differences(frame, work.image, at);
  const float* const weights = work.coefficients + at.pixel;
  const float here = *weights;
  const float south = at.row + 1 < frame.rows ? weights[frame.columns] : here;
  const float east = at.column + 1 < frame.columns ? weights[1] : here;
  const float divergence = here * d.north + south * d.south + here * d.west + east * d.east;
  return d.centre + 0.25f * frame.lambda * divergence;
}

// Pixels from `first` up to `end`, at most a quad of them: computed, or taken from the medium where
// they are there.
template <class Value>
__device__ void make_quad(const Frame& frame, const Target& target, u32 first, u32 end,
                          bool is_there, const Value& value_at) {
  Place at = place_of(frame, first);
  Quad quad = {};  // not all of it is made at the end of the image
#pragma unroll
  for (u32 k = 0; k < kQuad; ++k) {
    if (first + k >= end) break;
    quad.values[k] = is_there ? target.medium[at.pixel] : value_at(at);
    go_on(frame, at);
  }
  if (first + kQuad <= end) {
    *reinterpret_cast<Quad*>(target.working + first) = quad;
    if (!is_there) *reinterpret_cast<Quad*>(target.medium + first) = quad;
    return;
  }
#pragma unroll
  for (u32 k = 0; k < kQuad; ++k) {  // the image's last pixels
    if (first + k >= end) break;
    target.working[first + k] = quad.values[k];
    if (!is_there) target.medium[first + k] = quad.values[k];
  }
}

// Every block goes over tiles, and waits once for each: behind a tile's persists the stamp is
// stored, and persisted with the next tile.
template <class Value>
__device__ void make_tiles(const Frame& frame, const Target& target, const Value& value_at) {
  const u32 pixels = pixels_of(frame);
  const u32 tiles = (pixels + frame.tile - 1) / frame.tile;
  for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const bool is_there = target.persists && target.found[tile] >= target.phase;
    const u32 start = tile * frame.tile;
    const u32 end = min(start + frame.tile, pixels);
    for (u32 first = start + kQuad * threadIdx.x; first < end; first += kQuad * blockDim.x) {
      make_quad(frame, target, first, end, is_there, value_at);
    }
    if (!target.persists || is_there) continue;
    persist();
    __syncthreads();
    if (threadIdx.x == 0) target.stamps[tile] = target.phase;
  }
  if (target.persists && threadIdx.x == 0) persist();
}

__global__ void find_coefficients(Frame frame, Target target, const float* image,
                                  const float* speckle) {
  const float usual = *speckle;
  make_tiles(frame, target,
             [&](const Place& at) { return coefficient_at(frame, image, at, usual); });
}

__global__ void diffuse(Frame frame, Target target, Working work) {
  make_tiles(frame, target, [&](const Place& at) { return diffused(frame, work, at); });
}

bool is_aligned(const float* address) {
  return reinterpret_cast<std::uintptr_t>(address) % kQuadBytes == 0;
}

// Bytes of `tile` and its stamp.
u64 tile_bytes(const Frame& frame, u64 tile) {
  const u64 pixels = std::min<u64>(frame.tile, frame.pixels() - tile * frame.tile);
  return pixels * sizeof(float) + sizeof(u32);
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
  if (frame.tile == 0 || frame.tile % kQuad != 0 || !is_aligned(durable.images[0]) ||
      !is_aligned(durable.images[1]) || !is_aligned(durable.coefficients)) {
    throw holdfast::Error(
        holdfast::Errc::invalid_argument,
        holdfast::detail::concat("a diffusion in tiles of ", frame.tile,
                                 " pixels: give a multiple of ", kQuad,
                                 ", and images and coefficients at multiples of 16 bytes"));
  }
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
  bytes_ahead_ = 0;
  for (u64 tile = 0; tile < stamps.size(); ++tile) {
    bytes_ahead_ += (stamps[tile] - 2 * done) * tile_bytes(frame_, tile);
  }
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
  const Working work{images_[iteration % 2], images_[(iteration + 1) % 2], coefficients_};
  const auto blocks = static_cast<u32>(std::min<u64>(frame_.tiles(), frame_.most_blocks));
  const dim3 threads(std::min(frame_.threads, frame_.tile / kQuad));
  const auto phase = static_cast<u32>(2 * iteration);
  Target target{durable_.coefficients, coefficients_, durable_.stamps,
                found_.data(),         phase + 1,     persists_};
  holdfast::launch(stream_, dim3(1), dim3(kSumThreads), find_speckle, frame_, work.image,
                   speckle_.data());
  holdfast::launch(stream_, dim3(blocks), threads, find_coefficients, frame_, target, work.image,
                   speckle_.data());
  target.medium = durable_.images[(iteration + 1) % 2];
  target.working = work.next;
  target.phase = phase + 2;
  holdfast::launch(stream_, dim3(blocks), threads, diffuse, frame_, target, work);
  const u64 stamps = persists_ ? frame_.tiles() * sizeof(u32) : 0;
  bytes_stored_ += 2 * (frame_.pixels() * sizeof(float) + stamps) - bytes_ahead_;
  bytes_ahead_ = 0;
}

}  // namespace srad
