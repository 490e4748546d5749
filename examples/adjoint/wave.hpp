// The acoustic wave equation, a time step at a time: the kernels that a shot and its adjoint take.
//
//   u_tt + (2 a / dt) u_t = c^2 (laplacian(u) + f)
//
// with second differences in time and an eighth-order stencil D (units of cells) in space:
//
//   (1 + a) u[n+1] = 2 u[n] - (1 - a) u[n-1] + k (D u[n] + f[n]),    k = (c dt / dx)^2
//
// Divided by k this is symmetric in u[n+1] and u[n-1] but for the sign of a, and D is symmetric:
// the transposed scheme is the same scheme backwards in time. So step() is the adjoint's step, too,
// and the gradient is exact to rounding (gradient_test). The stencil: Fornberg, Math. Comp. 51
// (1988).
//
// All are stream-ordered, and give the same bits on every run: no sum depends on a schedule. Real
// is float or double; pointers are to device memory, of Grid::cells values where they are fields.
#pragma once

#include <cstdint>

#include "adjoint/survey.hpp"
#include "holdfast/stream.hpp"

namespace adjoint {

template <class Real>
struct Medium {
  const Real* courant2 = nullptr;  // k
  const Real* damping = nullptr;   // a
};

// f[n], which is at one cell.
template <class Real>
struct Pulse {
  std::uint32_t cell = ~std::uint32_t{0};  // none
  Real value = 0;
};

struct Receivers {
  const std::uint32_t* cells = nullptr;  // device memory; each once
  std::uint32_t count = 0;
};

// What the backward pass adds up, cell by cell, with v[n] the adjoint.
template <class Real>
struct Sums {
  Real* sensitivity = nullptr;   // of v[n] (D u[n] + f[n]): the gradient, but for a factor
  Real* correlation = nullptr;   // of v[n] u[n]: the image
  Real* illumination = nullptr;  // of u[n]^2
};

// `next` may be `before`.
template <class Real>
void step(holdfast::Stream& stream, const Grid& grid, const Medium<Real>& medium, const Real* now,
          const Real* before, Real* next, const Pulse<Real>& pulse);

// The same of a small change of u that a change of k makes: `now` and the others are of the change,
// `field` and `pulse` are u[n] and f[n].
template <class Real>
void linearised_step(holdfast::Stream& stream, const Grid& grid, const Medium<Real>& medium,
                     const Real* now, const Real* before, Real* next, const Real* change,
                     const Real* field, const Pulse<Real>& pulse);

// trace[r] = field at receiver r.
template <class Real>
void sample(holdfast::Stream& stream, const Real* field, const Receivers& receivers, Real* trace);

// The transposed: after a step to `field`, as if that step had had -trace[r] at receiver r for f.
template <class Real>
void inject(holdfast::Stream& stream, const Medium<Real>& medium, Real* field,
            const Receivers& receivers, const Real* trace);

// Adds a step's part to the sums.
template <class Real>
void correlate(holdfast::Stream& stream, const Grid& grid, const Real* field, const Real* adjoint,
               const Pulse<Real>& pulse, const Sums<Real>& sums);

// values[i] -= others[i]
template <class Real>
void subtract(holdfast::Stream& stream, std::uint64_t count, Real* values, const Real* others);

}  // namespace adjoint
