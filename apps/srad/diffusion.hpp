// The diffusion itself, by kernels and by host threads, and what is on the medium after each part.
#pragma once

#include <cstdint>
#include <vector>

#include "holdfast/stream.hpp"

namespace srad {

// Pixels in a row that one block computes and stores: 1 KiB of the medium.
inline constexpr std::uint32_t kTile = 256;

// What a region without any speckle counts as having (its variance over its squared mean), so that
// the coefficients are defined: all that varies is then an edge.
inline constexpr float kLeastSpeckle = 1e-6f;

struct Frame {
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  // The corner, without edges, whose variance tells speckle from what is to be kept.
  std::uint32_t region_rows = 0;
  std::uint32_t region_columns = 0;
  float lambda = 0.5f;  // step size, 0 to 1
  std::uint32_t tile = kTile;
  std::uint64_t pixels() const { return std::uint64_t{rows} * columns; }
  std::uint64_t tiles() const { return (pixels() + tile - 1) / tile; }
};

// What is on the medium. Zeroed when new. Iteration i reads images[i % 2] (the first one the input)
// and writes the other one, so that it can be done again.
//
// Invariant, after any crash, where kernels persist: stamps[j] = 2 i + 1 says that tile j of the
// coefficients is that of iteration i, whole; 2 i + 2 says it of the image too. No tile is two
// stamps ahead of another.
struct Durable {
  float* images[2] = {nullptr, nullptr};
  float* coefficients = nullptr;
  std::uint32_t* stamps = nullptr;
};

// By kernels. Works in device memory and writes the medium, which is read after a crash alone.
//
// Thread safety: one thread. The stream and what `durable` names outlive it.
class Diffusion {
 public:
  // `in_place`: what `durable` names is device memory, which is worked in directly.
  Diffusion(holdfast::Stream& stream, const Frame& frame, const Durable& durable, bool persists,
            bool in_place);

  // Iterations that the medium holds whole. REQUIRES: kernels persist. Waits. Throws
  // Error(damaged): stamps that no run leaves.
  std::uint64_t iterations_done();
  // Tiles of coefficients and images of the next iteration that are there as well.
  std::uint64_t tiles_ahead() const { return tiles_ahead_; }
  // The state before `iteration`: the medium's, or `input` before the first.
  void load(std::uint64_t iteration, const std::vector<float>& input);
  // REQUIRES: load() or iterate() brought the state before it. Stream-ordered.
  void iterate(std::uint64_t iteration);

 private:
  holdfast::Stream& stream_;
  Frame frame_;
  Durable durable_;
  bool persists_;
  std::uint64_t tiles_ahead_ = 0;
  holdfast::DeviceBuffer<float> buffers_[3];  // unless in place
  float* images_[2];
  float* coefficients_;
  holdfast::DeviceBuffer<std::uint32_t> found_;  // stamps as a crash left them
  holdfast::DeviceBuffer<float> speckle_;
};

// The same by OpenMP threads, on the medium itself, for mode cpu. Durable on return; the result
// does not depend on the number of threads.
void iterate_on_cpu(const Frame& frame, const Durable& durable, std::uint64_t iteration,
                    unsigned threads);

}  // namespace srad
