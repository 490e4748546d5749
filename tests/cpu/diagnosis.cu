#undef NDEBUG  // assert() is part of what is tested
#include "cpu/diagnosis.hpp"

#include <stdexcept>

namespace holdfast::test {
namespace {

__device__ __noinline__ int recurse(volatile int* sink, int depth) {
  volatile char frame[256];
  frame[depth % 256] = static_cast<char>(depth);
  if (depth == 0) return *sink;
  return recurse(sink, depth - 1) + frame[(depth + 1) % 256];
}

__device__ __noinline__ void fill_large_frame(volatile int* sink) {
  volatile char large[200 * 1024];
  for (unsigned i = 0; i < sizeof large; ++i) large[i] = static_cast<char>(*sink);
  *sink = large[static_cast<unsigned>(*sink)];
}

// An address that the compiler does not see through.
__device__ volatile int* wild_address(volatile int* zero, std::uintptr_t address) {
  return reinterpret_cast<volatile int*>(address + static_cast<std::uintptr_t>(*zero));
}

__device__ void misuse_warp(Mistake mistake, unsigned lane, unsigned* where) {
  switch (mistake) {
    case Mistake::caller_not_in_mask:
      *where = __LINE__ + 1;
      __ballot_sync(0x0000fffe, 1);
      break;
    case Mistake::exited_lane:
      if (lane == 3) return;
      __nanosleep(1);
      *where = __LINE__ + 1;
      __any_sync(0xffffffff, 1);
      break;
    case Mistake::lane_exits_while_waited_for:
      if (lane == 31) {
        __nanosleep(1);
        return;
      }
      *where = __LINE__ + 1;
      __all_sync(0xffffffff, 1);
      break;
    case Mistake::different_operations:
      if (lane < 16) {
        __ballot_sync(0xffffffff, 1);
      } else {
        *where = __LINE__ + 1;
        __any_sync(0xffffffff, 1);
      }
      break;
    case Mistake::different_masks:
      if (lane < 16) {
        __syncwarp(0xffffffff);
      } else {
        *where = __LINE__ + 1;
        __syncwarp(0xffff0001);
      }
      break;
    case Mistake::inactive_source:
      if (lane >= 16) break;
      *where = __LINE__ + 1;
      __shfl_sync(0x0000ffff, lane, 20);
      break;
    case Mistake::bad_width:
      *where = __LINE__ + 1;
      __shfl_sync(0xffffffff, lane, 0, 12);
      break;
    default:
      break;
  }
}

__device__ void misuse_barrier(Mistake mistake, unsigned lane, unsigned* where) {
  if (mistake == Mistake::different_barriers) {
    if (lane == 0) {
      __syncthreads();
    } else {
      *where = __LINE__ + 1;
      __syncthreads_or(1);
    }
  } else if (mistake == Mistake::barrier_against_collective) {
    if (lane == 0) {
      *where = __LINE__ + 1;
      __syncthreads();
    } else {
      __syncwarp();
    }
  } else if (lane % 2 == 0) {  // each lane names one that waits with another
    __syncwarp(lane == 0 ? 3u : 0xcu);
  } else {
    __syncwarp(lane == 1 ? 6u : 9u);
  }
}

}  // namespace

__global__ void make_mistake(Mistake mistake, unsigned* where, volatile int* sink) {
  const unsigned lane = threadIdx.x;
  if (mistake <= Mistake::bad_width) return misuse_warp(mistake, lane, where);
  if (mistake <= Mistake::two_subsets_wait) return misuse_barrier(mistake, lane, where);
  if (lane != 5) {
    __syncthreads();
    return;
  }
  switch (mistake) {
    case Mistake::null_store:
      *wild_address(sink, 16) = 1;
      break;
    case Mistake::wild_load:
      *sink = *wild_address(sink, 0x123456789000);
      break;
    case Mistake::divide_by_zero:
      *sink = 100 / *sink;
      break;
    case Mistake::trap:
      *where = __LINE__ + 1;
      __trap();
      break;
    case Mistake::failed_assert:
      *where = __LINE__ + 1;
      assert(lane == 6);
      break;
    case Mistake::throws:
      throw std::runtime_error("a kernel's exception");
      break;
    case Mistake::misaligned_atomic:
      atomicAdd(reinterpret_cast<unsigned*>(reinterpret_cast<char*>(where) + 1), 1u);
      break;
    case Mistake::stack_overflow:
      fill_large_frame(sink);
      break;
    case Mistake::deep_recursion:
      *sink = recurse(sink, 1000);
      break;
    default:
      break;
  }
  __syncthreads();
}

__global__ void spin_for_ever(unsigned* flag) {
  while (atomicCAS(flag, 1u, 2u) == 0) {
  }
}

__global__ void spin_by_acquire(unsigned* flag) {
  while (pacq<Scope::system>(flag) == 0) {
  }
}

__global__ void spin_on_volatile(volatile unsigned* flag) {
  while (*flag == 0) {
  }
}

__global__ void all_is_well(unsigned* out) {
  __syncthreads();
  atomicAdd(out, 1u);
}

}  // namespace holdfast::test
