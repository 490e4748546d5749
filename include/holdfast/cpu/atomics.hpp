// CUDA's atomics, fences and timing functions for the CPU backend.
//
// The overloads are CUDA's, so that what compiles here compiles there. Every atomic is atomic
// towards host threads too; the scope is what the call's name says and is delivered to a listener.
#pragma once

#include <cstdint>

namespace holdfast::cpu::detail {

enum class AtomicOp : unsigned char {
  add,
  sub,
  exch,
  min,
  max,
  inc,
  dec,
  cas,
  bit_and,
  bit_or,
  bit_xor
};

// 0: block, 1: device, 2: system, as holdfast::Scope.
using ScopeNumber = unsigned char;

// Returns the value before. Misaligned addresses end the kernel.
// T: int, unsigned, long long, unsigned long long, float, double; each with the operations that
// CUDA gives it.
template <class T>
T atomic_apply(AtomicOp op, ScopeNumber scope, T* address, T operand, const char* file,
               unsigned line);
template <class T>
T atomic_compare_swap(ScopeNumber scope, T* address, T expected, T desired, const char* file,
                      unsigned line);

void thread_fence(ScopeNumber scope, const char* file, unsigned line);
void pause_thread(const char* file, unsigned line);
[[noreturn]] void trap(const char* file, unsigned line);
long long clock_ticks() noexcept;

}  // namespace holdfast::cpu::detail

#define HOLDFAST_WHERE const char *file = __builtin_FILE(), unsigned line = __builtin_LINE()

#define HOLDFAST_ATOMIC_SCOPED(name, op, T, scope)                                            \
  inline T name(T* address, T value, HOLDFAST_WHERE) {                                        \
    return holdfast::cpu::detail::atomic_apply<T>(holdfast::cpu::detail::AtomicOp::op, scope, \
                                                  address, value, file, line);                \
  }
#define HOLDFAST_ATOMIC(name, op, T)             \
  HOLDFAST_ATOMIC_SCOPED(name##_block, op, T, 0) \
  HOLDFAST_ATOMIC_SCOPED(name, op, T, 1)         \
  HOLDFAST_ATOMIC_SCOPED(name##_system, op, T, 2)
#define HOLDFAST_CAS_SCOPED(name, T, scope)                                                    \
  inline T name(T* address, T compare, T value, HOLDFAST_WHERE) {                              \
    return holdfast::cpu::detail::atomic_compare_swap<T>(scope, address, compare, value, file, \
                                                         line);                                \
  }
#define HOLDFAST_CAS(T)                      \
  HOLDFAST_CAS_SCOPED(atomicCAS_block, T, 0) \
  HOLDFAST_CAS_SCOPED(atomicCAS, T, 1)       \
  HOLDFAST_CAS_SCOPED(atomicCAS_system, T, 2)

HOLDFAST_ATOMIC(atomicAdd, add, int)
HOLDFAST_ATOMIC(atomicAdd, add, unsigned)
HOLDFAST_ATOMIC(atomicAdd, add, unsigned long long)
HOLDFAST_ATOMIC(atomicAdd, add, float)
HOLDFAST_ATOMIC(atomicAdd, add, double)
HOLDFAST_ATOMIC(atomicSub, sub, int)
HOLDFAST_ATOMIC(atomicSub, sub, unsigned)
HOLDFAST_ATOMIC(atomicExch, exch, int)
HOLDFAST_ATOMIC(atomicExch, exch, unsigned)
HOLDFAST_ATOMIC(atomicExch, exch, unsigned long long)
HOLDFAST_ATOMIC(atomicExch, exch, float)
HOLDFAST_ATOMIC(atomicMin, min, int)
HOLDFAST_ATOMIC(atomicMin, min, unsigned)
HOLDFAST_ATOMIC(atomicMin, min, long long)
HOLDFAST_ATOMIC(atomicMin, min, unsigned long long)
HOLDFAST_ATOMIC(atomicMax, max, int)
HOLDFAST_ATOMIC(atomicMax, max, unsigned)
HOLDFAST_ATOMIC(atomicMax, max, long long)
HOLDFAST_ATOMIC(atomicMax, max, unsigned long long)
HOLDFAST_ATOMIC(atomicInc, inc, unsigned)
HOLDFAST_ATOMIC(atomicDec, dec, unsigned)
HOLDFAST_ATOMIC(atomicAnd, bit_and, int)
HOLDFAST_ATOMIC(atomicAnd, bit_and, unsigned)
HOLDFAST_ATOMIC(atomicAnd, bit_and, unsigned long long)
HOLDFAST_ATOMIC(atomicOr, bit_or, int)
HOLDFAST_ATOMIC(atomicOr, bit_or, unsigned)
HOLDFAST_ATOMIC(atomicOr, bit_or, unsigned long long)
HOLDFAST_ATOMIC(atomicXor, bit_xor, int)
HOLDFAST_ATOMIC(atomicXor, bit_xor, unsigned)
HOLDFAST_ATOMIC(atomicXor, bit_xor, unsigned long long)
HOLDFAST_CAS(int)
HOLDFAST_CAS(unsigned)
HOLDFAST_CAS(unsigned long long)
HOLDFAST_CAS(unsigned short)

#undef HOLDFAST_ATOMIC_SCOPED
#undef HOLDFAST_ATOMIC
#undef HOLDFAST_CAS_SCOPED
#undef HOLDFAST_CAS

inline void __threadfence_block(HOLDFAST_WHERE) {
  holdfast::cpu::detail::thread_fence(0, file, line);
}
inline void __threadfence(HOLDFAST_WHERE) { holdfast::cpu::detail::thread_fence(1, file, line); }
inline void __threadfence_system(HOLDFAST_WHERE) {
  holdfast::cpu::detail::thread_fence(2, file, line);
}

// Lets the other threads go first; the time is not waited for.
inline void __nanosleep(unsigned /*ns*/, HOLDFAST_WHERE) {
  holdfast::cpu::detail::pause_thread(file, line);
}

// Nanoseconds of the host's monotonic clock, standing in for the GPU's cycles.
inline long long clock64() { return holdfast::cpu::detail::clock_ticks(); }

// Ends the kernel with Errc::kernel_fault.
[[noreturn]] inline void __trap(HOLDFAST_WHERE) { holdfast::cpu::detail::trap(file, line); }

#undef HOLDFAST_WHERE
