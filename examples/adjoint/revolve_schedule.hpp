// Where to keep snapshots so that a chain of steps is gone through backwards with the fewest steps
// computed again.
//
// To reverse n steps from one whose state is kept, with s snapshots in all: go m steps on, keep
// that state, reverse the n - m steps behind it with s - 1 snapshots, then the m with s again. So
// the steps that this takes are
//   T(n, s) = min over m of  m + T(n - m, s - 1) + T(m, s),   T(1, s) = 0,   T(n, 1) = n (n - 1)
//   / 2.
// With b(s, t) = (s + t)! / (s! t!), the steps that can be reversed with none of them computed more
// than t times, the least is T(n, s) = t n - b(s + 1, t - 1) for b(s, t - 1) < n <= b(s, t).
// Source: Griewank and Walther, Algorithm 799: Revolve, ACM TOMS 26 (2000), section 2.
//
// Tested by revolve_test, against the recurrence, by brute force.
#pragma once

#include <cstdint>

namespace adjoint {

// b(s, t), or UINT64_MAX where that is less.
std::uint64_t binomial_reach(std::uint64_t snapshots, std::uint64_t repeats);

// T(n, s). REQUIRES: steps < 2^32, snapshots > 0.
std::uint64_t least_steps(std::uint64_t steps, std::uint64_t snapshots);

// An m for which the minimum is taken. REQUIRES: steps > 1, snapshots > 1.
std::uint64_t best_advance(std::uint64_t steps, std::uint64_t snapshots);

}  // namespace adjoint
