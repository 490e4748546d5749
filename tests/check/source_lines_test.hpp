// A kernel with a function inlined into it.
#pragma once

#include "holdfast/kernel.hpp"

namespace holdfast::test {

__global__ void store_two(unsigned* words);
// Launches a kernel that stands in an anonymous namespace.
void launch_unnamed(Stream& stream, unsigned* words);

}  // namespace holdfast::test
