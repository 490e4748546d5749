// Kernels that call each warp collective once per thread.
#pragma once

#include <cstdint>

#include "holdfast/kernel.hpp"

namespace holdfast::test {

enum class Collective {
  ballot,
  any,
  all,
  match_any,
  match_any64,
  match_all,
  match_all64,
  add,
  add_signed,
  min,
  min_signed,
  max,
  max_signed,
  bit_and,
  bit_or,
  bit_xor,
  shfl,
  shfl_up,
  shfl_down,
  shfl_xor,
  shfl64,
  shfl_double,
  count_
};

struct CollectiveInput {
  std::uint32_t mask;
  std::uint64_t value;
  std::int32_t argument;
  std::int32_t width;
};

// out[i]: the result of thread i; for match_all the predicate is in bit 32.
__global__ void call_collective(Collective which, const CollectiveInput* in, std::uint64_t* out);

enum class Vote { count, all, any };
__global__ void call_barrier(Vote which, const int* predicates, int* out);

// A block-wide sum by shuffles and shared memory.
__global__ void block_sum(const unsigned* in, unsigned* out);

// Lanes write to shared memory, meet at __syncwarp, and read what their neighbour wrote.
__global__ void rotate_by_syncwarp(unsigned* out);

// Half of each warp leaves first; the rest meets at __syncwarp with the full mask.
__global__ void early_exit_syncwarp(unsigned* out);

__global__ void active_masks(unsigned* out);

}  // namespace holdfast::test
