#include "cfd/cfd.hpp"

#include "cfd/euler.hpp"
#include "holdfast/kernel.hpp"

namespace cfd {
namespace {

constexpr unsigned kThreads = 128;

__device__ std::uint64_t this_cell() {
  return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

__global__ void start_step(Arrays arrays) {
  if (this_cell() < arrays.cells) start_cell(arrays, this_cell());
}

__global__ void compute_fluxes(Arrays arrays, State far) {
  if (this_cell() < arrays.cells) compute_flux(arrays, far, this_cell());
}

__global__ void advance(Arrays arrays, unsigned stage) {
  if (this_cell() < arrays.cells) advance_cell(arrays, stage, this_cell());
}

}  // namespace

void iterate(holdfast::Stream& stream, const Arrays& arrays, std::uint64_t iterations) {
  const dim3 blocks(holdfast::blocks_for(arrays.cells, kThreads));
  const dim3 threads(kThreads);
  const State far = load(far_field().variables, 1, 0);
  for (std::uint64_t i = 0; i < iterations; ++i) {
    holdfast::launch(stream, blocks, threads, start_step, arrays);
    for (unsigned stage = 0; stage < kStages; ++stage) {
      holdfast::launch(stream, blocks, threads, compute_fluxes, arrays, far);
      holdfast::launch(stream, blocks, threads, advance, arrays, stage);
    }
  }
}

}  // namespace cfd
