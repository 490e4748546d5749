// Which backend this translation unit is compiled for. The build sets exactly one of
// HOLDFAST_BACKEND_CPU and HOLDFAST_BACKEND_CUDA, through the CMake target that it links.
#pragma once

#if defined(__cplusplus) && __cplusplus < 202002L
#error "Holdfast takes C++20: link holdfast::holdfast in CMake, or compile with -std=c++20"
#endif

#if defined(HOLDFAST_BACKEND_CPU) == defined(HOLDFAST_BACKEND_CUDA)
#error \
    "define exactly one of HOLDFAST_BACKEND_CPU and HOLDFAST_BACKEND_CUDA: link holdfast::holdfast"
#endif

// HOLDFAST_DEVICE_CODE is 1 where kernels and __device__ functions may be written: in every file
// of the CPU backend, and in the files that nvcc compiles.
#if defined(HOLDFAST_BACKEND_CPU) || defined(__CUDACC__)
#define HOLDFAST_DEVICE_CODE 1
#else
#define HOLDFAST_DEVICE_CODE 0
#endif

namespace holdfast {

// Bytes of a page: the unit in which changes are tracked and images are written.
inline constexpr unsigned kPageBytes = 4096;

}  // namespace holdfast
