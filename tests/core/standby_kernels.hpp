#pragma once

#include <cstdint>

#include "holdfast/stream.hpp"

namespace holdfast::test {

inline constexpr unsigned kCounters = 1024;

// Each of kCounters threads counts up its own word, `rounds` times, and persists each count.
void keep_counting(Stream& stream, std::uint64_t* counters, std::uint64_t rounds);

}  // namespace holdfast::test
