// The diffusion itself, by kernels and by host threads, and what is on the medium after each part.
#pragma once

#include <cstdint>
#include <vector>

#include "holdfast/stream.hpp"

namespace srad {

// Pixels that a thread stores at once: 16 aligned bytes, so that a warp stores 512 in a row.
inline constexpr std::uint32_t kQuad = 4;

// Pixels of a tile, which has one stamp and one wait for its persists: 4 KiB of the medium, and
// four times as much where there is work for all blocks even so.
constexpr std::uint32_t usual_tile(std::uint64_t pixels) {
  return pixels < (std::uint64_t{1} << 23) ? 1024 : 4096;
}

// What a region without any speckle counts as having (its variance over its squared mean), so that
// the coefficients are defined: all that varies is then an edge.
inline constexpr float kLeastSpeckle = 1e-6f;

// REQUIRES: at most kMostPixels (image.hpp).
struct Frame {
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
  // The corner, without edges, whose variance tells speckle from what is to be kept.
  std::uint32_t region_rows = 0;
  std::uint32_t region_columns = 0;
  float lambda = 0.5f;               // step size, 0 to 1
  std::uint32_t tile = 1024;         // pixels, whole quads; on the medium this must not change
  std::uint32_t threads = 256;       // of a block, at most
  std::uint32_t most_blocks = 1024;  // each goes over tiles until there is none left
  std::uint64_t pixels() const { return std::uint64_t{rows} * columns; }
  std::uint64_t tiles() const { return (pixels() + tile - 1) / tile; }
};

// What is on the medium, at addresses that are multiples of 16. Zeroed when new. Iteration i reads
// images[i % 2] (the first one the input) and writes the other one, so that it can be done again.
//
// Invariant, after any crash, where kernels persist: stamps[j] = 2 i + 1 says that tile j of the
// coefficients is that of iteration i, whole; 2 i + 2 says it of the image too. No tile is two
// stamps ahead of another.
struct Durable {
  float* images[2] = {nullptr, nullptr};
  float* coefficients = nullptr;
  std::uint32_t* stamps = nullptr;
};

// By kernels. Works in device memory, and stores the results to the medium besides. So what crosses
// the link in an iteration are its stores: 8 bytes a pixel (a coefficient and a value of the image)
// and 8 a tile (two stamps). The medium is read after a crash alone, by load() and where a tile of
// the iteration that was cut off is there.
//
// Thread safety: one thread. The stream and what `durable` names outlive it.
class Diffusion {
 public:
  // `in_place`: what `durable` names is device memory, which is worked in directly. Throws
  // invalid_argument: an address or a tile that quads do not fit.
  Diffusion(holdfast::Stream& stream, const Frame& frame, const Durable& durable, bool persists,
            bool in_place);

  // Iterations that the medium holds whole. REQUIRES: kernels persist. Waits. Throws
  // Error(damaged): stamps that no run leaves.
  std::uint64_t iterations_done();
  // Bytes that iterations stored to what `durable` names so far.
  std::uint64_t bytes_stored() const { return bytes_stored_; }
  // The state before `iteration`: the medium's, or `input` before the first.
  void load(std::uint64_t iteration, const std::vector<float>& input);
  // REQUIRES: load() or iterate() brought the state before it. Stream-ordered.
  void iterate(std::uint64_t iteration);

 private:
  holdfast::Stream& stream_;
  Frame frame_;
  Durable durable_;
  bool persists_;
  std::uint64_t bytes_ahead_ = 0;  // of the next iteration, that are there
  std::uint64_t bytes_stored_ = 0;
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
