// A kernel that copies bytes, where the copy engine is not to.
#pragma once

#include <cstdint>

#include "holdfast/stream.hpp"

namespace workload {

// Copies `bytes` by a kernel that persists nothing. Stream-ordered. Both are memory that kernels
// reach.
void store_by_kernel(holdfast::Stream& stream, void* to, const void* from, std::uint64_t bytes);

}  // namespace workload
