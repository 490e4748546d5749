#include "adjoint/revolve_schedule.hpp"

#include <algorithm>

namespace adjoint {
namespace {

// t of the header: how often the step that is computed most often is.
std::uint64_t repeats(std::uint64_t steps, std::uint64_t snapshots) {
  std::uint64_t t = 0;
  while (binomial_reach(snapshots, t) < steps) ++t;
  return t;
}

}  // namespace

std::uint64_t binomial_reach(std::uint64_t snapshots, std::uint64_t repeats) {
  // b(s, i) = b(s, i - 1) (s + i) / i, and s and t may change places: the smaller one counts.
  const std::uint64_t few = std::min(snapshots, repeats), many = std::max(snapshots, repeats);
  unsigned __int128 value = 1;
  for (std::uint64_t i = 1; i <= few; ++i) {
    value = value * (many + i) / i;
    if (value > UINT64_MAX) return UINT64_MAX;
  }
  return static_cast<std::uint64_t>(value);
}

std::uint64_t least_steps(std::uint64_t steps, std::uint64_t snapshots) {
  if (steps <= 1) return 0;
  const std::uint64_t t = repeats(steps, snapshots);
  return t * steps - binomial_reach(snapshots + 1, t - 1);
}

// The minimum is taken wherever no step is computed more than t times, to the left of m (t - 1
// times more) and to the right of it (t times, with a snapshot less), and some step as often as
// that.
std::uint64_t best_advance(std::uint64_t steps, std::uint64_t snapshots) {
  const std::uint64_t t = repeats(steps, snapshots);
  const std::uint64_t on_the_left = binomial_reach(snapshots, t - 1);
  const std::uint64_t on_the_right = binomial_reach(snapshots - 1, t - 1);
  return std::min(on_the_left, steps - on_the_right);
}

}  // namespace adjoint
