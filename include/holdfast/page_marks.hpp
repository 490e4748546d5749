// The device side of change tracking: which pages of a region kernels have written.
#pragma once

#include <cstddef>
#include <cstdint>

#include "holdfast/config.hpp"

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#elif defined(HOLDFAST_BACKEND_CPU)
#include "holdfast/cpu/simt.hpp"
#endif

namespace holdfast {

// Trivially copyable: pass it to kernels by value. A byte per page, in volatile memory: after a
// crash commit() falls back to hashes once.
struct PageMarks {
  std::uint8_t* map = nullptr;      // null: nothing to note (domains without an image)
  const std::byte* base = nullptr;  // the region's first byte

#if HOLDFAST_DEVICE_CODE
  // Notes that [address, address + bytes) is written. Before or after the stores, in the same
  // kernel. Thread safety: any number of threads.
  __device__ void mark(const void* address, std::size_t bytes) const {
    if (map == nullptr || bytes == 0) return;
    const std::size_t first =
        static_cast<std::size_t>(static_cast<const std::byte*>(address) - base) / kPageBytes;
    const std::size_t last =
        static_cast<std::size_t>(static_cast<const std::byte*>(address) - base + bytes - 1) /
        kPageBytes;
    for (std::size_t page = first; page <= last; ++page) map[page] = 1;
  }
#endif
};

}  // namespace holdfast
