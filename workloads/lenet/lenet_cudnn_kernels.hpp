// What the trainer by cuDNN does in kernels of its own: what cuDNN has no call for.
#pragma once

#include <cstdint>

#include "holdfast/stream.hpp"
#include "lenet/shape.hpp"

namespace lenet::passes {

// Where each layer's weights, and its biases, begin in two rows of numbers: among the parameters,
// as Shape has it, and in a copy where each begins at a multiple of 256 bytes, since no library
// promises to take, or to be fast with, pointers that are aligned to a float alone.
struct Placement {
  static constexpr unsigned kParts = 8;  // weights and biases of four layers, in Shape's order
  std::uint32_t first[kParts + 1];       // among the parameters; the last is their number
  std::uint32_t place[kParts];           // in the aligned row
  std::uint32_t length;                  // of the aligned row

  static Placement of(const Shape& shape);
};

struct Rows {
  float* parameters;
  float* aligned;         // a copy of the parameters
  const float* gradient;  // aligned, too
};

// All of these are ordered by the stream.

// Copies the parameters to the aligned row.
void spread(holdfast::Stream& stream, const Placement& placement, const Rows& rows);
// Descent's step, in both rows of parameters.
void descend(holdfast::Stream& stream, const Placement& placement, const Rows& rows, float rate);

struct Batch {
  const std::uint32_t* places;  // of `count` digits
  unsigned count;
  unsigned size;  // of a whole batch
};

// Copies the pixels of a batch's digits to `images`; where it is not whole, blanks follow.
void gather(holdfast::Stream& stream, const Batch& batch, const float* pixels, float* images);
// The gradient of the mean cross entropy by each logit, and what each digit is taken for: the first
// of the largest logits. Of a batch that is not whole no more than its digits are set.
void judge(holdfast::Stream& stream, const Batch& batch, const std::uint8_t* labels,
           const float* logits, const float* probabilities, float* d_logits, std::uint8_t* classes);

}  // namespace lenet::passes
