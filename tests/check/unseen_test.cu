#include "check/unseen_test.hpp"

namespace holdfast::test {

template <bool kFixed>
__global__ void publish(Pair* pair) {
  pair->payload = 42;
  if (kFixed) persist();
  pair->valid = 1;
  persist();
}
template __global__ void publish<false>(Pair*);
template __global__ void publish<true>(Pair*);

__global__ void store_words(std::uint64_t* words) {
  words[threadIdx.x] = 1 + threadIdx.x;
  __syncthreads();
  if (threadIdx.x == 0) words[blockDim.x] = 1;
}

}  // namespace holdfast::test
