#include "cpu/schedule.hpp"

namespace holdfast::test {

__global__ void leave_trace(unsigned rounds, unsigned* cursor, unsigned* trace) {
  for (unsigned round = 0; round < rounds; ++round) {
    trace[atomicAdd(cursor, 1u)] = blockIdx.x * blockDim.x + threadIdx.x;
  }
}

__global__ void race(unsigned* flag, unsigned* outcome) {
  if (blockIdx.x == 0) {
    atomicExch(flag, 1u);
  } else {
    *outcome = atomicAdd(flag, 0u);
  }
}

}  // namespace holdfast::test
