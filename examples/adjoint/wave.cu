#include "adjoint/wave.hpp"

#include "holdfast/kernel.hpp"

namespace adjoint {
namespace {

using holdfast::Stream;

// A thread goes down a column: a warp's loads are of one row, and a thread of the CPU backend has
// enough to do to be worth its start.
constexpr unsigned kColumns = 64;
constexpr unsigned kRows = 8;

// With the weights of the eighth-order second difference, in both directions.
template <class Real>
__device__ Real laplacian(const Real* u, std::uint32_t i, std::uint32_t pitch) {
  constexpr Real kCentre = Real(-205) / Real(72);
  constexpr Real kFirst = Real(8) / Real(5), kSecond = Real(-1) / Real(5);
  constexpr Real kThird = Real(8) / Real(315), kFourth = Real(-1) / Real(560);
  const Real first = (u[i - 1] + u[i + 1]) + (u[i - pitch] + u[i + pitch]);
  const Real second = (u[i - 2] + u[i + 2]) + (u[i - 2 * pitch] + u[i + 2 * pitch]);
  const Real third = (u[i - 3] + u[i + 3]) + (u[i - 3 * pitch] + u[i + 3 * pitch]);
  const Real fourth = (u[i - 4] + u[i + 4]) + (u[i - 4 * pitch] + u[i + 4 * pitch]);
  return Real(2) * kCentre * u[i] + kFirst * first + kSecond * second + kThird * third +
         kFourth * fourth;
}

template <class Real>
__device__ Real driven(const Real* u, std::uint32_t i, std::uint32_t pitch,
                       const Pulse<Real>& pulse) {
  const Real value = laplacian(u, i, pitch);
  return i == pulse.cell ? value + pulse.value : value;
}

// Calls `update` with each cell of the thread.
template <class Update>
__device__ void for_cells(const Grid& grid, Update update) {
  const std::uint32_t x = blockIdx.x * kColumns + threadIdx.x;
  const std::uint32_t first = blockIdx.y * kRows;
  if (x >= grid.nx) return;
  const std::uint32_t end = first + kRows < grid.nz ? first + kRows : grid.nz;
  for (std::uint32_t z = first; z < end; ++z) {
    update((z + kRadius) * grid.pitch + x + kRadius);
  }
}

template <class Real>
__global__ void step_kernel(Grid grid, Medium<Real> medium, const Real* now, const Real* before,
                            Real* next, Pulse<Real> pulse) {
  for_cells(grid, [&](std::uint32_t i) {
    const Real a = medium.damping[i];
    const Real drive = medium.courant2[i] * driven(now, i, grid.pitch, pulse);
    next[i] = (Real(2) * now[i] - (Real(1) - a) * before[i] + drive) / (Real(1) + a);
  });
}

template <class Real>
__global__ void linearised_kernel(Grid grid, Medium<Real> medium, const Real* now,
                                  const Real* before, Real* next, const Real* change,
                                  const Real* field, Pulse<Real> pulse) {
  for_cells(grid, [&](std::uint32_t i) {
    const Real a = medium.damping[i];
    const Real drive = medium.courant2[i] * laplacian(now, i, grid.pitch) +
                       change[i] * driven(field, i, grid.pitch, pulse);
    next[i] = (Real(2) * now[i] - (Real(1) - a) * before[i] + drive) / (Real(1) + a);
  });
}

template <class Real>
__global__ void correlate_kernel(Grid grid, const Real* field, const Real* adjoint,
                                 Pulse<Real> pulse, Sums<Real> sums) {
  for_cells(grid, [&](std::uint32_t i) {
    sums.sensitivity[i] += adjoint[i] * driven(field, i, grid.pitch, pulse);
    sums.correlation[i] += adjoint[i] * field[i];
    sums.illumination[i] += field[i] * field[i];
  });
}

__device__ std::uint64_t thread_number() {
  return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}

template <class Real>
__global__ void sample_kernel(const Real* field, Receivers receivers, Real* trace) {
  const std::uint64_t r = thread_number();
  if (r < receivers.count) trace[r] = field[receivers.cells[r]];
}

template <class Real>
__global__ void inject_kernel(Medium<Real> medium, Real* field, Receivers receivers,
                              const Real* trace) {
  const std::uint64_t r = thread_number();
  if (r >= receivers.count) return;
  const std::uint32_t i = receivers.cells[r];
  field[i] -= medium.courant2[i] * trace[r] / (Real(1) + medium.damping[i]);
}

template <class Real>
__global__ void subtract_kernel(std::uint64_t count, Real* values, const Real* others) {
  const std::uint64_t i = thread_number();
  if (i < count) values[i] -= others[i];
}

dim3 blocks(const Grid& grid) {
  return {holdfast::blocks_for(grid.nx, kColumns), holdfast::blocks_for(grid.nz, kRows)};
}
constexpr unsigned kBlock = 128;

}  // namespace

template <class Real>
void step(Stream& stream, const Grid& grid, const Medium<Real>& medium, const Real* now,
          const Real* before, Real* next, const Pulse<Real>& pulse) {
  holdfast::launch(stream, blocks(grid), dim3(kColumns), step_kernel<Real>, grid, medium, now,
                   before, next, pulse);
}

template <class Real>
void linearised_step(Stream& stream, const Grid& grid, const Medium<Real>& medium, const Real* now,
                     const Real* before, Real* next, const Real* change, const Real* field,
                     const Pulse<Real>& pulse) {
  holdfast::launch(stream, blocks(grid), dim3(kColumns), linearised_kernel<Real>, grid, medium, now,
                   before, next, change, field, pulse);
}

template <class Real>
void sample(Stream& stream, const Real* field, const Receivers& receivers, Real* trace) {
  holdfast::launch(stream, dim3(holdfast::blocks_for(receivers.count, kBlock)), dim3(kBlock),
                   sample_kernel<Real>, field, receivers, trace);
}

template <class Real>
void inject(Stream& stream, const Medium<Real>& medium, Real* field, const Receivers& receivers,
            const Real* trace) {
  holdfast::launch(stream, dim3(holdfast::blocks_for(receivers.count, kBlock)), dim3(kBlock),
                   inject_kernel<Real>, medium, field, receivers, trace);
}

template <class Real>
void correlate(Stream& stream, const Grid& grid, const Real* field, const Real* adjoint,
               const Pulse<Real>& pulse, const Sums<Real>& sums) {
  holdfast::launch(stream, blocks(grid), dim3(kColumns), correlate_kernel<Real>, grid, field,
                   adjoint, pulse, sums);
}

template <class Real>
void subtract(Stream& stream, std::uint64_t count, Real* values, const Real* others) {
  holdfast::launch(stream, dim3(holdfast::blocks_for(count, kBlock)), dim3(kBlock),
                   subtract_kernel<Real>, count, values, others);
}

#define ADJOINT_INSTANTIATE(Real)                                                                  \
  template void step(Stream&, const Grid&, const Medium<Real>&, const Real*, const Real*, Real*,   \
                     const Pulse<Real>&);                                                          \
  template void linearised_step(Stream&, const Grid&, const Medium<Real>&, const Real*,            \
                                const Real*, Real*, const Real*, const Real*, const Pulse<Real>&); \
  template void sample(Stream&, const Real*, const Receivers&, Real*);                             \
  template void inject(Stream&, const Medium<Real>&, Real*, const Receivers&, const Real*);        \
  template void correlate(Stream&, const Grid&, const Real*, const Real*, const Pulse<Real>&,      \
                          const Sums<Real>&);                                                      \
  template void subtract(Stream&, std::uint64_t, Real*, const Real*);
ADJOINT_INSTANTIATE(float)
ADJOINT_INSTANTIATE(double)
#undef ADJOINT_INSTANTIATE

}  // namespace adjoint
