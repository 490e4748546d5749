// Kernels for the tests of streams.
#pragma once

#include "holdfast/kernel.hpp"

namespace holdfast::test {

__global__ void append(unsigned* log, unsigned* cursor, unsigned value);
__global__ void add_to_all(unsigned* data, unsigned count, unsigned value);
__global__ void print_one();

}  // namespace holdfast::test
