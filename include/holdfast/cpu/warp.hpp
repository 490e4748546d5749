// CUDA's block barriers and warp collectives for the CPU backend.
//
// A collective waits until every lane of its mask has called the same operation with the same
// mask. A call that can never complete, or whose result CUDA leaves undefined, ends the kernel
// with Errc::kernel_fault, naming block, thread, file and line.
#pragma once

#include <cstdint>
#include <type_traits>

namespace holdfast::cpu::detail {

enum class BarrierOp : unsigned char { sync, count, all, any };

enum class WarpOp : unsigned char {
  sync,
  ballot,
  any,
  all,
  match_any,
  match_all,
  add,
  min_signed,
  max_signed,
  min_unsigned,
  max_unsigned,
  bit_and,
  bit_or,
  bit_xor,
  shfl,
  shfl_up,
  shfl_down,
  shfl_xor,
};

int block_barrier(BarrierOp op, int predicate, const char* file, unsigned line);

// `argument`: the lane, delta or lane mask of a shuffle; `width`: its segment.
std::uint64_t warp_collective(WarpOp op, unsigned mask, std::uint64_t value, unsigned argument,
                              int width, const char* file, unsigned line);

template <class T>
inline T shuffle(WarpOp op, unsigned mask, T value, unsigned argument, int width, const char* file,
                 unsigned line) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                "a shuffled value has 4 or 8 bytes");
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  const std::uint64_t result =
      warp_collective(op, mask, __builtin_bit_cast(Bits, value), argument, width, file, line);
  return __builtin_bit_cast(T, static_cast<Bits>(result));
}

}  // namespace holdfast::cpu::detail

#define HOLDFAST_WHERE const char *file = __builtin_FILE(), unsigned line = __builtin_LINE()

inline void __syncthreads(HOLDFAST_WHERE) {
  holdfast::cpu::detail::block_barrier(holdfast::cpu::detail::BarrierOp::sync, 0, file, line);
}
inline int __syncthreads_count(int predicate, HOLDFAST_WHERE) {
  return holdfast::cpu::detail::block_barrier(holdfast::cpu::detail::BarrierOp::count, predicate,
                                              file, line);
}
inline int __syncthreads_and(int predicate, HOLDFAST_WHERE) {
  return holdfast::cpu::detail::block_barrier(holdfast::cpu::detail::BarrierOp::all, predicate,
                                              file, line);
}
inline int __syncthreads_or(int predicate, HOLDFAST_WHERE) {
  return holdfast::cpu::detail::block_barrier(holdfast::cpu::detail::BarrierOp::any, predicate,
                                              file, line);
}

// Counts the lanes of the mask that have not exited, as __syncthreads counts threads.
inline void __syncwarp(unsigned mask = 0xffffffffu, HOLDFAST_WHERE) {
  holdfast::cpu::detail::warp_collective(holdfast::cpu::detail::WarpOp::sync, mask, 0, 0, 32, file,
                                         line);
}

// The calling lane alone: a legal answer, since CUDA promises nothing about convergence.
unsigned __activemask();

inline unsigned __ballot_sync(unsigned mask, int predicate, HOLDFAST_WHERE) {
  return static_cast<unsigned>(holdfast::cpu::detail::warp_collective(
      holdfast::cpu::detail::WarpOp::ballot, mask, predicate != 0, 0, 32, file, line));
}
inline int __any_sync(unsigned mask, int predicate, HOLDFAST_WHERE) {
  return static_cast<int>(holdfast::cpu::detail::warp_collective(
      holdfast::cpu::detail::WarpOp::any, mask, predicate != 0, 0, 32, file, line));
}
inline int __all_sync(unsigned mask, int predicate, HOLDFAST_WHERE) {
  return static_cast<int>(holdfast::cpu::detail::warp_collective(
      holdfast::cpu::detail::WarpOp::all, mask, predicate != 0, 0, 32, file, line));
}

#define HOLDFAST_SHUFFLE(name, op, Argument, argument)                                         \
  template <class T>                                                                           \
  inline T name(unsigned mask, T value, Argument argument, int width = 32, HOLDFAST_WHERE) {   \
    return holdfast::cpu::detail::shuffle(holdfast::cpu::detail::WarpOp::op, mask, value,      \
                                          static_cast<unsigned>(argument), width, file, line); \
  }
HOLDFAST_SHUFFLE(__shfl_sync, shfl, int, lane)
HOLDFAST_SHUFFLE(__shfl_up_sync, shfl_up, unsigned, delta)
HOLDFAST_SHUFFLE(__shfl_down_sync, shfl_down, unsigned, delta)
HOLDFAST_SHUFFLE(__shfl_xor_sync, shfl_xor, int, lane_mask)
#undef HOLDFAST_SHUFFLE

// Lanes of the mask whose value has the same bits as the caller's.
template <class T>
inline unsigned __match_any_sync(unsigned mask, T value, HOLDFAST_WHERE) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                "a matched value has 4 or 8 bytes");
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  return static_cast<unsigned>(
      holdfast::cpu::detail::warp_collective(holdfast::cpu::detail::WarpOp::match_any, mask,
                                             __builtin_bit_cast(Bits, value), 0, 32, file, line));
}
// The mask if all lanes have the same value, or 0; *predicate says which.
template <class T>
inline unsigned __match_all_sync(unsigned mask, T value, int* predicate, HOLDFAST_WHERE) {
  static_assert(std::is_trivially_copyable_v<T> && (sizeof(T) == 4 || sizeof(T) == 8),
                "a matched value has 4 or 8 bytes");
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  const auto result = static_cast<unsigned>(
      holdfast::cpu::detail::warp_collective(holdfast::cpu::detail::WarpOp::match_all, mask,
                                             __builtin_bit_cast(Bits, value), 0, 32, file, line));
  *predicate = result != 0;
  return result;
}

#define HOLDFAST_REDUCE(name, T, op)                                                              \
  inline T name(unsigned mask, T value, HOLDFAST_WHERE) {                                         \
    return static_cast<T>(                                                                        \
        holdfast::cpu::detail::warp_collective(holdfast::cpu::detail::WarpOp::op, mask,           \
                                               static_cast<unsigned>(value), 0, 32, file, line)); \
  }
HOLDFAST_REDUCE(__reduce_add_sync, unsigned, add)
HOLDFAST_REDUCE(__reduce_add_sync, int, add)
HOLDFAST_REDUCE(__reduce_min_sync, unsigned, min_unsigned)
HOLDFAST_REDUCE(__reduce_min_sync, int, min_signed)
HOLDFAST_REDUCE(__reduce_max_sync, unsigned, max_unsigned)
HOLDFAST_REDUCE(__reduce_max_sync, int, max_signed)
HOLDFAST_REDUCE(__reduce_and_sync, unsigned, bit_and)
HOLDFAST_REDUCE(__reduce_or_sync, unsigned, bit_or)
HOLDFAST_REDUCE(__reduce_xor_sync, unsigned, bit_xor)
#undef HOLDFAST_REDUCE

#undef HOLDFAST_WHERE
