// Counting in kernels for figures that are only reported.
//
// Include through holdfast/kernel.hpp.
#pragma once

#include "holdfast/config.hpp"

namespace holdfast {

// Adds to a counter, atomically, and returns nothing: neither the kernel, nor what runs after it,
// does anything that depends on the sum. The crash-state checker takes this at its word. A counter
// that recovery's threads share otherwise ties together all that they look at, since who reads the
// sum learns of all of it, and such programs cannot be explored group by group.
// Memory: of the device, not of a region. Thread safety: any threads of the device.
#if defined(__CUDACC__)
__device__ inline void tally(unsigned* counter, unsigned count) { atomicAdd(counter, count); }
#else
void tally(unsigned* counter, unsigned count) noexcept;
#endif

}  // namespace holdfast
