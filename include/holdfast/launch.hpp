// launch(): starts a kernel on either backend.
//
// Thread safety: any thread may launch, several at once; as with all else that is queued, one at a
// time on one stream.
#pragma once

#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#include "holdfast/config.hpp"
#include "holdfast/stream.hpp"

#if defined(HOLDFAST_BACKEND_CPU)
#include "holdfast/cpu/executor.hpp"
#include "holdfast/cpu/simt.hpp"
#elif defined(__CUDACC__)
#include <cuda_runtime.h>
#endif

namespace holdfast {

// How many blocks have a place for each of `items`, with `per_block` of them to a block: for
// kernels that give each thread an item, the threads of a block. The last block may have places
// left over, which the kernel leaves alone; for no items there is one block of such places, since a
// launch has at least one. Throws invalid_argument if per_block is 0, or a grid cannot have as many
// blocks.
unsigned blocks_for(std::uint64_t items, std::uint64_t per_block);

}  // namespace holdfast

#if HOLDFAST_DEVICE_CODE
namespace holdfast {

// Grid and block extents, and the bytes of dynamic shared memory per block.
struct LaunchShape {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes = 0;
};

namespace detail {
void check_launch_shape(const LaunchShape& shape);
#if defined(HOLDFAST_BACKEND_CUDA)
void launch_cuda(Stream& stream, const LaunchShape& shape, const void* kernel, void** arguments);
#endif
}  // namespace detail

// Queues `kernel` on `stream`. Arguments are copied. Throws Errc::invalid_argument for an empty
// or oversized shape; what the kernel meets is thrown by Stream::synchronize().
template <class... Parameters, class... Arguments>
void launch(Stream& stream, const LaunchShape& shape, void (*kernel)(Parameters...),
            Arguments&&... arguments) {
  static_assert(sizeof...(Parameters) == sizeof...(Arguments),
                "launch: the kernel takes another number of arguments");
  detail::check_launch_shape(shape);
  std::tuple<std::decay_t<Parameters>...> values(std::forward<Arguments>(arguments)...);
#if defined(HOLDFAST_BACKEND_CUDA)
  std::apply(
      [&](auto&... value) {
        void* pointers[] = {static_cast<void*>(&value)..., nullptr};
        detail::launch_cuda(stream, shape, reinterpret_cast<const void*>(kernel), pointers);
      },
      values);
#else
  cpu::launch(stream, cpu::Shape{shape.grid, shape.block, shape.shared_bytes}, [kernel, values]() {
    std::apply(
        [kernel](Parameters... copies) {
          cpu::enter_kernel();
          kernel(copies...);
        },
        values);
  });
#endif
}

template <class... Parameters, class... Arguments>
void launch(Stream& stream, dim3 grid, dim3 block, void (*kernel)(Parameters...),
            Arguments&&... arguments) {
  launch(stream, LaunchShape{grid, block}, kernel, std::forward<Arguments>(arguments)...);
}

// A pointer to the block's dynamic shared memory, 16-byte aligned (CUDA's `extern __shared__`).
template <class T>
__device__ T* dynamic_shared() {
#if defined(HOLDFAST_BACKEND_CUDA)
  extern __shared__ __align__(16) unsigned char holdfast_dynamic_shared[];
  return reinterpret_cast<T*>(holdfast_dynamic_shared);
#else
  return static_cast<T*>(cpu::dynamic_shared_base());
#endif
}

}  // namespace holdfast
#endif  // HOLDFAST_DEVICE_CODE
