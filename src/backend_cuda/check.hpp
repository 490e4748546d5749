// Checks of CUDA calls: an error names the call, the file and the line.
#pragma once

#include <cuda_runtime.h>

#include "holdfast/error.hpp"

namespace holdfast::detail {

// The Error for a failed call.
Error cuda_error(cudaError_t status, const char* call, const char* file, int line);

inline void check_cuda(cudaError_t status, const char* call, const char* file, int line) {
  if (status != cudaSuccess) throw cuda_error(status, call, file, line);
}

}  // namespace holdfast::detail

#define HOLDFAST_CUDA(call) ::holdfast::detail::check_cuda((call), #call, __FILE__, __LINE__)
