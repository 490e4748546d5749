// How much long tests try of what they try one after the other: bytes that flip, allocations that
// fail, fences to be killed at, random programs, schedules. All of it takes two cores an hour and
// more, so `make test` has a share of it, another one each time; `make test SHARE=1` has all.
//   $HOLDFAST_TEST_SHARE=N  one in N; not set: all, under the sanitizers one in 7
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "support/sanitized.hpp"
#include "support/scratch.hpp"

namespace holdfast::test {

inline std::uint64_t share() {
  static const std::uint64_t value = [] {
    const char* const given = std::getenv("HOLDFAST_TEST_SHARE");
    const std::uint64_t number = given != nullptr ? std::strtoull(given, nullptr, 0) : 0;
    return number != 0 ? std::min<std::uint64_t>(number, 1000) : kSanitized ? 7 : 1;
  }();
  return value;
}

// Of `all` rounds, or whatever is drawn at random: those to be tried, `least` at least.
inline std::uint64_t some_of(std::uint64_t all, std::uint64_t least = 1) {
  return std::min(all, std::max(all / share(), least));
}

// Of a sequence: every step-th, from one that the test's seed draws, so that in time each is tried.
//   for (const Every it = every(); at < end; at += it.step), from it.first
struct Every {
  std::uint64_t first, step;
  // The one behind `at` where 0 is tried in any case, as there may be but a few.
  std::uint64_t behind(std::uint64_t at) const { return at == 0 && first != 0 ? first : at + step; }
};

// `usual`: the step where all is tried; `most`: the longest that leaves the test its meaning.
inline Every every(std::uint64_t usual, std::uint64_t most, std::uint64_t seed) {
  const std::uint64_t step = std::max(usual, std::min(usual * share(), most));
  return {step == usual ? 0 : seed % step, step};
}
inline Every every(std::uint64_t usual = 1, std::uint64_t most = ~std::uint64_t{0}) {
  return share() == 1 ? Every{0, usual} : every(usual, most, test_seed());
}

}  // namespace holdfast::test
