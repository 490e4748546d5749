// Kernels that use CUDA's function qualifiers beside standard headers.
#pragma once

#include "holdfast/kernel.hpp"

namespace holdfast::test {

// frames: of a kernel, and of the functions that it calls with __noinline__ and __forceinline__.
__global__ void note_frames(void** frames);

__global__ void use_standard_headers(int* results);

}  // namespace holdfast::test
