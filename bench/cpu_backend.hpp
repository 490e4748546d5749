// Kernels that measure the CPU backend itself.
#pragma once

#include "holdfast/kernel.hpp"

namespace holdfast::bench {

inline constexpr unsigned kWords = 1 << 14;  // of the arrays of loads_and_stores

__global__ void store_once(unsigned* out);
__global__ void barriers(unsigned count);
__global__ void yields(unsigned count);
__global__ void shuffles(unsigned count, unsigned* out);
__global__ void atomics(unsigned count, unsigned* out);
__global__ void loads_and_stores(unsigned count, const unsigned* in, unsigned* out);

}  // namespace holdfast::bench
