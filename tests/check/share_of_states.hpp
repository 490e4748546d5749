// A share (support/share.hpp) of the crash states of a program.
#pragma once

#include "check/checker.hpp"
#include "support/share.hpp"

namespace holdfast::check {

// check(), or, where a share is tried, of the states under one of the models: a few of those that
// come in turn, which are the same each time, and behind them others that the seed draws. `least`:
// states to try then.
inline Report check_share(const Program& program, Options options, std::uint64_t least,
                          std::uint64_t seed) {
  if (test::share() == 1) return check(program, options);
  options.max_states = test::some_of(options.max_states, least);
  options.model = seed % 2 == 0 ? Model::sbrp : Model::epoch;
  options.seed = seed;
  Checker checker(program, options);
  checker.start_at(Rung::sampled);
  return checker.check(true);
}

}  // namespace holdfast::check
