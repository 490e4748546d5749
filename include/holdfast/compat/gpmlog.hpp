// The handle of libGPM's logs, which libgpm.h and libgpm.cuh share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "holdfast/config.hpp"
#include "holdfast/undo_log_ref.hpp"
#if HOLDFAST_DEVICE_CODE
#include "holdfast/kernel.hpp"
#endif

// A log, of either layout. Hand the pointer to kernels; the host does not look inside.
struct gpmlog {
  holdfast::LogLayout layout;
  holdfast::CoalescedLogRef coalesced;
  holdfast::ConventionalLogRef conventional;
};

#if HOLDFAST_DEVICE_CODE

namespace holdfast::detail {

// Of an entry as logs count them: what they cannot count is larger than any entry, and refused.
__device__ inline std::uint32_t entry_bytes(std::size_t size) {
  return size < 0xffffffff ? static_cast<std::uint32_t>(size) : 0xffffffff;
}

// Calls body(log, slot) with the layout's own type and the slot that `partition` means: -1 is the
// calling thread's.
template <class Body>
__device__ int with_gpmlog(const gpmlog* log, int partition, Body&& body) {
  if (log->layout == LogLayout::coalesced) {
    const auto& ref = log->coalesced;
    return static_cast<int>(body(ref, partition < 0 ? ref.own_slot() : partition));
  }
  const auto& ref = log->conventional;
  return static_cast<int>(body(ref, partition < 0 ? ref.own_slot() : partition));
}

}  // namespace holdfast::detail

#endif  // HOLDFAST_DEVICE_CODE
