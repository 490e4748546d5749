#include "holdfast/kernel.hpp"

__global__ void add(std::uint64_t* sum) {
  atomicAdd(reinterpret_cast<unsigned long long*>(sum), 1);
}
