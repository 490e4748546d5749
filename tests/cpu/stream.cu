#include "cpu/stream.hpp"

namespace holdfast::test {

__global__ void append(unsigned* log, unsigned* cursor, unsigned value) {
  log[(*cursor)++] = value;
}

__global__ void add_to_all(unsigned* data, unsigned count, unsigned value) {
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    data[i] += value;
  }
}

__global__ void print_one() { printf("thread %u of block %u\n", threadIdx.x, blockIdx.x); }

}  // namespace holdfast::test
