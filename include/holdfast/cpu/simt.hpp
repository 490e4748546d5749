// CUDA's names for g++: with this header g++ compiles kernels for the CPU backend.
//
// Differences from nvcc that a kernel may meet:
// - a loop that waits for another thread must hold an atomic, an acquire, a fence or __nanosleep;
//   one on a plain volatile never lets the other thread run, but in the intercepted flavour;
// - dynamic shared memory comes from holdfast::dynamic_shared<T>(), not from extern __shared__;
// - write alignas before __shared__, or use __align__ after it;
// - lanes of a warp do not run in lockstep: what needs lanes to meet needs a __..._sync call;
// - a lane that a mask names and the block does not have is ignored; a lane that has exited is
//   an error for every collective but __syncwarp.
#pragma once

#include "holdfast/config.hpp"

#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>

#include "holdfast/cpu/vector_types.hpp"

// In the intercepted flavour every function that a kernel calls is inlined into it where that is
// possible: -fsanitize=thread instruments neither the store of a call's result nor the load of an
// argument when they are structs.
#if defined(__SANITIZE_THREAD__)
#define __global__ __attribute__((flatten))
#else
#define __global__
#endif
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __shared__ static thread_local
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __grid_constant__

// Standard headers, which may come after this one, write __attribute__((__noinline__)): inside an
// attribute the macro must be something that compilers ignore. What it becomes there is an unknown
// attribute whose argument is this declaration's name; a specifier of its own, as CUDA has it,
// works.
extern const int __noinline__;
#define __noinline__ __attribute__((__noinline__))

namespace holdfast::cpu::detail {

struct Builtins {
  uint3 thread;
  uint3 block;
  dim3 block_dim;
  dim3 grid_dim;
};

extern constinit thread_local Builtins builtins;

inline const uint3& thread_index() noexcept { return builtins.thread; }
inline const uint3& block_index() noexcept { return builtins.block; }
inline const dim3& block_extent() noexcept { return builtins.block_dim; }
inline const dim3& grid_extent() noexcept { return builtins.grid_dim; }

// For files that are instrumented, out of line in one that is not: reading them is no access of the
// kernel's. (With the sanitizers: g++ tests a thread_local's address by the flags of an addition
// that the linker turns into one that sets none.) By the compiler's word for it, so that all other
// files are the same with the checker and without.
namespace apart {
uint3 thread_index() noexcept;
uint3 block_index() noexcept;
dim3 block_extent() noexcept;
dim3 grid_extent() noexcept;
}  // namespace apart
#if defined(__SANITIZE_THREAD__) || defined(HOLDFAST_SANITIZE)
namespace index_from = apart;
#else
namespace index_from = ::holdfast::cpu::detail;
#endif

}  // namespace holdfast::cpu::detail

#define threadIdx (::holdfast::cpu::detail::index_from::thread_index())
#define blockIdx (::holdfast::cpu::detail::index_from::block_index())
#define blockDim (::holdfast::cpu::detail::index_from::block_extent())
#define gridDim (::holdfast::cpu::detail::index_from::grid_extent())

constexpr int warpSize = 32;

#include "holdfast/cpu/atomics.hpp"
#include "holdfast/cpu/math.hpp"
#include "holdfast/cpu/warp.hpp"
