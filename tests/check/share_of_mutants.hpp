// A share (support/share.hpp) of the mutants of a program.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "check/checker.hpp"
#include "support/share.hpp"

namespace holdfast::check {

// Gives all mutants to look(); or one in N of them, and fewer states of each, then the next ones
// until look() says that it has seen enough. The seed draws which comes first, of those shares that
// change the program at a place that is_meant() holds of.
template <class IsMeant, class Look>
void check_some_mutants(const SizedProgram& program, Options options, IsMeant&& is_meant,
                        Look&& look) {
  const test::Every tried = test::every();
  if (tried.step == 1) {
    look(check_mutants({program}, options, 1));
    return;
  }
  std::vector<bool> has_meant(tried.step);
  {
    const Program usual = program.make();
    Checker checker(usual, options);
    std::size_t number = 0;
    for (const Checker::Target& target : checker.targets()) {
      if (is_meant(target.place)) has_meant[number % tried.step] = true;
      ++number;
    }
  }
  options.workers = static_cast<unsigned>(tried.step);
  options.max_states = std::min<std::uint64_t>(options.max_states, 100);
  options.schedules = std::min<std::uint64_t>(options.schedules, 5);
  options.recovery_schedules = std::min<std::uint64_t>(options.recovery_schedules, 1);
  for (std::uint64_t i = 0; i < tried.step; ++i) {
    options.worker = static_cast<unsigned>((tried.first + i) % tried.step);
    if (has_meant[options.worker] && look(check_mutants({program}, options, 1))) return;
  }
}

}  // namespace holdfast::check
