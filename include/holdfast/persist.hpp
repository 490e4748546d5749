// Ordering and durability of a kernel's stores: the operations of the persistency model
// (docs/model.md).
//
// Source: GPM (ASPLOS '22) section 5.1 for persist(); SBRP (ASPLOS '23) section 4 for the rest.
// On today's GPUs each ends in a system-scope fence, the only instruction that waits until a
// store has left the GPU; the CPU backend delivers each as an event of its own.
#pragma once

#include "holdfast/config.hpp"

namespace holdfast {

// Which threads a release or an acquire speaks to.
enum class Scope : unsigned char { block, device, system };

}  // namespace holdfast

#if HOLDFAST_DEVICE_CODE

// How kernels' functions are declared. On the CPU backend they have two more parameters, which are
// not for callers: the place of the call, for whoever listens.
#if defined(HOLDFAST_BACKEND_CPU)
#define HOLDFAST_KERNEL_SIDE inline
#define HOLDFAST_PLACE const char *file = __builtin_FILE(), unsigned line = __builtin_LINE()
#define HOLDFAST_AND_PLACE , HOLDFAST_PLACE
#else
#define HOLDFAST_KERNEL_SIDE __device__ inline
#define HOLDFAST_PLACE
#define HOLDFAST_AND_PLACE
#endif

namespace holdfast {

// All stores of the calling thread so far are durable once it returns, on the rung of
// Region::guarantee().persist. Other threads' stores are not its concern: each thread persists its
// own, and a barrier behind that tells the others.
HOLDFAST_KERNEL_SIDE void persist(HOLDFAST_PLACE);

// The same as persist(): a durability fence in the words of SBRP.
HOLDFAST_KERNEL_SIDE void dfence(HOLDFAST_PLACE);

// No later store of the calling thread becomes durable before its earlier ones: a crash may take
// the later ones alone, and never the earlier ones alone. By itself it makes nothing durable.
HOLDFAST_KERNEL_SIDE void ofence(HOLDFAST_PLACE);

// Persist release: stores `value` to `*variable`; a thread within scope S that reads it with
// pacq() sees this thread's earlier stores, and none of that thread's later stores becomes
// durable before them. A variable in a region becomes durable behind them, too. T: a trivially
// copyable type of 4 or 8 bytes, naturally aligned.
template <Scope S, class T>
HOLDFAST_KERNEL_SIDE void prel(T* variable, T value HOLDFAST_AND_PLACE);

// Persist acquire, the other half of prel(): loads `*variable`. What the thread stores from here on
// is ordered behind what the thread had stored whose prel() wrote the value, if that was of a scope
// that takes in both, as S must be.
template <Scope S, class T>
HOLDFAST_KERNEL_SIDE T pacq(const T* variable HOLDFAST_AND_PLACE);

}  // namespace holdfast

#include "holdfast/persist.inl"

#undef HOLDFAST_KERNEL_SIDE
#undef HOLDFAST_PLACE
#undef HOLDFAST_AND_PLACE

#endif  // HOLDFAST_DEVICE_CODE
