#include "lenet/lenet_cudnn_kernels.hpp"

#include "holdfast/kernel.hpp"

namespace lenet::passes {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::uint32_t kAligned = 64;  // numbers: 256 bytes

__device__ unsigned thread_number() { return blockIdx.x * blockDim.x + threadIdx.x; }

dim3 blocks(std::size_t threads) { return dim3(holdfast::blocks_for(threads, kThreads)); }

__device__ unsigned aligned_place(const Placement& placement, unsigned i) {
  unsigned part = 0;
  while (i >= placement.first[part + 1]) ++part;
  return placement.place[part] + (i - placement.first[part]);
}

__global__ void spread_parameters(Placement placement, Rows rows) {
  const unsigned i = thread_number();
  if (i >= placement.first[Placement::kParts]) return;
  rows.aligned[aligned_place(placement, i)] = rows.parameters[i];
}

__global__ void descend_and_spread(Placement placement, Rows rows, float rate) {
  const unsigned i = thread_number();
  if (i >= placement.first[Placement::kParts]) return;
  const unsigned place = aligned_place(placement, i);
  const float moved = rows.parameters[i] - rate * rows.gradient[place];
  rows.parameters[i] = moved;
  rows.aligned[place] = moved;
}

__global__ void gather_pixels(Batch batch, const float* pixels, float* images) {
  const unsigned i = thread_number();
  if (i >= batch.size * kPixels) return;
  const unsigned digit = i / kPixels;
  images[i] =
      digit < batch.count ? pixels[std::size_t{batch.places[digit]} * kPixels + i % kPixels] : 0;
}

// A thread takes one digit.
__global__ void judge_digits(Batch batch, const std::uint8_t* labels, const float* logits,
                             const float* probabilities, float* d_logits, std::uint8_t* classes) {
  const unsigned digit = thread_number();
  if (digit >= batch.count) return;
  const unsigned label = labels[batch.places[digit]];
  const float scale = 1.0f / static_cast<float>(batch.count);
  const float* const own = logits + digit * kClasses;
  unsigned best = 0;
  for (unsigned c = 0; c < kClasses; ++c) {
    d_logits[digit * kClasses + c] =
        scale * (probabilities[digit * kClasses + c] - (c == label ? 1.0f : 0.0f));
    if (own[c] > own[best]) best = c;
  }
  classes[digit] = static_cast<std::uint8_t>(best);
}

}  // namespace

Placement Placement::of(const Shape& shape) {
  Placement placement{
      {shape.conv1(), shape.conv1_bias(), shape.conv2(), shape.conv2_bias(), shape.dense1(),
       shape.dense1_bias(), shape.dense2(), shape.dense2_bias(), shape.parameters()},
      {},
      0};
  for (unsigned part = 0; part < kParts; ++part) {
    const std::uint32_t count = placement.first[part + 1] - placement.first[part];
    placement.place[part] = placement.length;
    placement.length += (count + kAligned - 1) / kAligned * kAligned;
  }
  return placement;
}

void spread(holdfast::Stream& stream, const Placement& placement, const Rows& rows) {
  holdfast::launch(stream, blocks(placement.first[Placement::kParts]), dim3(kThreads),
                   spread_parameters, placement, rows);
}

void descend(holdfast::Stream& stream, const Placement& placement, const Rows& rows, float rate) {
  holdfast::launch(stream, blocks(placement.first[Placement::kParts]), dim3(kThreads),
                   descend_and_spread, placement, rows, rate);
}

void gather(holdfast::Stream& stream, const Batch& batch, const float* pixels, float* images) {
  holdfast::launch(stream, blocks(std::size_t{batch.size} * kPixels), dim3(kThreads), gather_pixels,
                   batch, pixels, images);
}

void judge(holdfast::Stream& stream, const Batch& batch, const std::uint8_t* labels,
           const float* logits, const float* probabilities, float* d_logits,
           std::uint8_t* classes) {
  holdfast::launch(stream, blocks(batch.count), dim3(kThreads), judge_digits, batch, labels, logits,
                   probabilities, d_logits, classes);
}

}  // namespace lenet::passes
