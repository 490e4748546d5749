// Kernels of launch_test, as host functions that queue them.
#pragma once

#include <cstdint>

#include "holdfast/stream.hpp"

namespace holdfast::test {

// Adds one to each of `count` words, a thread each.
void add_one_to_each(Stream& stream, std::uint32_t* words, std::uint64_t count);

}  // namespace holdfast::test
