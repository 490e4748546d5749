// The Euler equations of a compressible flow without friction on an unstructured mesh, as in
// Rodinia's cfd, with a checkpoint of the variables every so many time steps.
// Source: GPM (ASPLOS '22) section 4.2 and Table 1; the scheme: Corrigan et al., "Running
// unstructured grid-based CFD solvers on modern graphics hardware" (2009).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cfd/mesh.hpp"
#include "holdfast/stream.hpp"
#include "workload/workload.hpp"

namespace cfd {

// Per cell: density, momentum in x, y and z, energy.
inline constexpr unsigned kVariables = 5;
// Stages of the Runge-Kutta scheme.
inline constexpr unsigned kStages = 3;

workload::Info info();

// Device memory, or host memory in mode cpu, laid out as in Mesh.
struct Arrays {
  std::uint64_t cells;
  const float* areas;
  const std::int32_t* neighbours;
  const float* normals;
  float* variables;
  float* fluxes;  // of the last stage
  float* old_variables;
  float* step_factors;
};

// The far field's variables: what all cells start from.
struct FarField {
  float variables[kVariables];
};
FarField far_field();

// `iterations` time steps. Kernels: stream-ordered.
void iterate(holdfast::Stream& stream, const Arrays& arrays, std::uint64_t iterations);
void iterate_on_cpu(int threads, const Arrays& arrays, std::uint64_t iterations);

// Compares with a solver in double precision. Empty, or what is wrong: a variable that differs by
// more than kTolerance of its size or of 1, a density or pressure that is not positive; and, where
// `fluxes` are not empty, one that differs by more than that of what moves through the cell's
// faces, or all together from what comes through the borders of the mesh.
inline constexpr double kTolerance = 1e-4;
std::string compare_with_oracle(const Mesh& mesh, std::uint64_t iterations,
                                const std::vector<float>& variables,
                                const std::vector<float>& fluxes = {});

}  // namespace cfd
