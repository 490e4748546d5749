// What persist.hpp declares, for either backend. Included by persist.hpp alone.
#pragma once

#if defined(HOLDFAST_BACKEND_CPU)

namespace holdfast {

// Defined by the CPU backend.
namespace cpu {
void durability_fence(const char* file, unsigned line);
void ordering_fence(const char* file, unsigned line);
void before_release(Scope scope, void* address, unsigned bytes, const char* file, unsigned line);
void after_release(const void* value);
void acquire(Scope scope, const void* address, unsigned bytes, void* value, const char* file,
             unsigned line);
}  // namespace cpu

inline void persist(const char* file, unsigned line) { cpu::durability_fence(file, line); }
inline void dfence(const char* file, unsigned line) { cpu::durability_fence(file, line); }
inline void ofence(const char* file, unsigned line) { cpu::ordering_fence(file, line); }

template <Scope S, class T>
void prel(T* variable, T value, const char* file, unsigned line) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "prel: a variable of 4 or 8 bytes");
  cpu::before_release(S, variable, sizeof(T), file, line);
  cpu::after_release(&value);
}

template <Scope S, class T>
T pacq(const T* variable, const char* file, unsigned line) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "pacq: a variable of 4 or 8 bytes");
  T value;
  cpu::acquire(S, variable, sizeof(T), &value, file, line);
  return value;
}

}  // namespace holdfast

#else

#include <cuda/atomic>

namespace holdfast {
namespace detail {
template <Scope S>
inline constexpr cuda::thread_scope kCudaScope = S == Scope::block    ? cuda::thread_scope_block
                                                 : S == Scope::device ? cuda::thread_scope_device
                                                                      : cuda::thread_scope_system;
}  // namespace detail

__device__ inline void persist() { __threadfence_system(); }
__device__ inline void dfence() { __threadfence_system(); }
__device__ inline void ofence() { __threadfence_system(); }

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

}  // namespace holdfast

#endif
