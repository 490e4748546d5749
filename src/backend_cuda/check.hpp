// Checks of CUDA calls: an error names the call, the file and the line.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>

#include "holdfast/error.hpp"

namespace holdfast::detail {

// The Error for a failed call.
Error cuda_error(cudaError_t status, const char* call, const char* file, int line);

inline void check_cuda(cudaError_t status, const char* call, const char* file, int line) {
  if (status != cudaSuccess) throw cuda_error(status, call, file, line);
}

}  // namespace holdfast::detail

namespace holdfast::backend {

// How many of the `bytes` from `address` on lie before the end of the registered range that holds
// it; all of them if none does. Thread safety: any.
std::size_t bytes_before_boundary(const void* address, std::size_t bytes);

}  // namespace holdfast::backend

#define HOLDFAST_CUDA(call) ::holdfast::detail::check_cuda((call), #call, __FILE__, __LINE__)
