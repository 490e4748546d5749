// Mode cpu: the same time steps with OpenMP.
#include "cfd/cfd.hpp"
#include "cfd/euler.hpp"

namespace cfd {

void iterate_on_cpu(int threads, const Arrays& arrays, std::uint64_t iterations) {
  const State far = load(far_field().variables, 1, 0);
#pragma omp parallel num_threads(threads)
  for (std::uint64_t i = 0; i < iterations; ++i) {
#pragma omp for schedule(static)
    for (std::uint64_t cell = 0; cell < arrays.cells; ++cell) start_cell(arrays, cell);
    for (unsigned stage = 0; stage < kStages; ++stage) {
#pragma omp for schedule(static)
      for (std::uint64_t cell = 0; cell < arrays.cells; ++cell) compute_flux(arrays, far, cell);
#pragma omp for schedule(static)
      for (std::uint64_t cell = 0; cell < arrays.cells; ++cell) advance_cell(arrays, stage, cell);
    }
  }
}

}  // namespace cfd
