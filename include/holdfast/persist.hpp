// Ordering and durability of a kernel's stores: the operations of the persistency model.
//
// Source: GPM (ASPLOS '22) section 5.1 for persist(); SBRP (ASPLOS '23) section 4 for the rest.
// On today's GPUs each ends in a system-scope fence, the only instruction that waits until a
// store has left the GPU; the CPU backend delivers each as an event of its own.
#pragma once

#include "holdfast/config.hpp"

#if defined(__CUDACC__)
#include <cuda/atomic>
#endif

namespace holdfast {

// Which threads a release or an acquire speaks to.
enum class Scope : unsigned char { block, device, system };

#if HOLDFAST_DEVICE_CODE

#if defined(HOLDFAST_BACKEND_CPU)

// Declared here, defined by the CPU backend (holdfast/cpu/simt.hpp).
namespace cpu {
void durability_fence(const char* file, unsigned line);
void ordering_fence(const char* file, unsigned line);
void before_release(Scope scope, void* address, unsigned bytes, const char* file, unsigned line);
void after_release(const void* value);
void acquire(Scope scope, const void* address, unsigned bytes, void* value, const char* file,
             unsigned line);
}  // namespace cpu

inline void persist(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
  cpu::durability_fence(file, line);
}
inline void ofence(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
  cpu::ordering_fence(file, line);
}
inline void dfence(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
  cpu::durability_fence(file, line);
}

#else

// All stores of the calling thread so far are durable on the region's rung once it returns.
__device__ inline void persist() { __threadfence_system(); }

// No later store of the calling thread becomes durable before its earlier ones.
__device__ inline void ofence() { __threadfence_system(); }

// The same as persist(): a durability fence in the words of SBRP.
__device__ inline void dfence() { __threadfence_system(); }

namespace detail {
template <Scope S>
inline constexpr cuda::thread_scope kCudaScope = S == Scope::block    ? cuda::thread_scope_block
                                                 : S == Scope::device ? cuda::thread_scope_device
                                                                      : cuda::thread_scope_system;
}  // namespace detail

#endif

// Persist release: stores `value` to `*variable`; a thread within scope S that reads it with
// pacq() sees this thread's earlier stores, and none of that thread's later stores becomes
// durable before them. T: a trivially copyable type of 4 or 8 bytes, naturally aligned.
#if defined(HOLDFAST_BACKEND_CPU)
template <Scope S, class T>
void prel(T* variable, T value, const char* file = __builtin_FILE(),
          unsigned line = __builtin_LINE()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "prel: a variable of 4 or 8 bytes");
  cpu::before_release(S, variable, sizeof(T), file, line);
  cpu::after_release(&value);
}

// Persist acquire: the other half of prel().
template <Scope S, class T>
T pacq(const T* variable, const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "pacq: a variable of 4 or 8 bytes");
  T value;
  cpu::acquire(S, variable, sizeof(T), &value, file, line);
  return value;
}
#else
template <Scope S, class T>
__device__ void prel(T* variable, T value) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "prel: a variable of 4 or 8 bytes");
  __threadfence_system();
  cuda::atomic_ref<T, detail::kCudaScope<S> >(*variable).store(value, cuda::memory_order_release);
}

template <Scope S, class T>
__device__ T pacq(const T* variable) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "pacq: a variable of 4 or 8 bytes");
  const T value = cuda::atomic_ref<T, detail::kCudaScope<S> >(*const_cast<T*>(variable))
                      .load(cuda::memory_order_acquire);
  __threadfence_system();
  return value;
}
#endif

#endif  // HOLDFAST_DEVICE_CODE
}  // namespace holdfast
