// Kernels that go wrong, each in one way.
#pragma once

#include "holdfast/kernel.hpp"

namespace holdfast::test {

enum class Mistake {
  caller_not_in_mask,
  exited_lane,
  lane_exits_while_waited_for,
  different_operations,
  different_masks,
  inactive_source,
  bad_width,
  different_barriers,
  barrier_against_collective,
  two_subsets_wait,
  null_store,
  wild_load,
  divide_by_zero,
  trap,
  failed_assert,
  throws,
  misaligned_atomic,
  stack_overflow,
  deep_recursion,
};

// `where` gets the line of the wrong call, where there is one.
__global__ void make_mistake(Mistake mistake, unsigned* where, volatile int* sink);

__global__ void spin_for_ever(unsigned* flag);
__global__ void spin_by_acquire(unsigned* flag);
__global__ void spin_on_volatile(volatile unsigned* flag);
__global__ void all_is_well(unsigned* out);

}  // namespace holdfast::test
