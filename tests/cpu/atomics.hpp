// Kernels that call each atomic.
#pragma once

#include <cstdint>

#include "holdfast/kernel.hpp"

namespace holdfast::test {

enum class Rmw { add, sub, exch, min, max, inc, dec, cas, bit_and, bit_or, bit_xor, count_ };
// How the call's scope is spelled.
enum class Spelling { block, device, system };

// One thread applies operands[0..count) in turn to *variable; old[i]: what the i-th call gave.
template <class T>
__global__ void apply_in_turn(Rmw rmw, Spelling spelling, const T* operands, const T* compares,
                              unsigned count, T* variable, T* old);

// Every thread adds `count` times 1.
template <class T>
__global__ void count_up(T* counter, unsigned count);

// Every thread takes the lock, adds to a plain counter, and gives the lock back.
__global__ void locked_increments(unsigned* lock, unsigned* counter, unsigned count);

// Bit functions: out[i] for in[i], one array per function.
__global__ void bit_functions(const std::uint64_t* in, std::uint64_t* out, unsigned count);
inline constexpr unsigned kBitFunctions = 12;

}  // namespace holdfast::test
