// Include this in a file with kernels. It supplies CUDA's names on both backends, the launch
// function, and the persist operations.
#pragma once

#include "holdfast/config.hpp"

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#elif defined(HOLDFAST_BACKEND_CPU)
#include "holdfast/cpu/simt.hpp"
#else
#error "kernels of a CUDA build must be compiled by nvcc: name the file in holdfast_kernels()"
#endif

#include "holdfast/launch.hpp"
#include "holdfast/persist.hpp"
#include "holdfast/tally.hpp"
#include "holdfast/whole_lines.hpp"
