// What a decision of eviction.hpp is made of, and what comes of it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "history/allocation_table.hpp"

namespace holdfast::history {

inline constexpr std::uint64_t kUnhinted = ~std::uint64_t{0};

// What makes a fragment worth keeping, at the time of the decision.
struct Score {
  // Seconds until it can be evicted: 0 now, infinity never. What is no such number (negative, NaN)
  // counts as never: a prediction that has gone wrong evicts nothing.
  double wait;
  std::uint64_t distance;  // restores known to come before its own; kUnhinted: no hint
  bool consumed;           // its distance does not matter
};

// Fragments [first, last), the seconds until all of them can be evicted, and for place() the side
// for what is left: beside the neighbour that is lost more easily, so that both make room together.
struct Window {
  std::size_t first;
  std::size_t last;
  double wait;
  Rest rest = Rest::behind;

  bool operator==(const Window&) const = default;
};

}  // namespace holdfast::history
