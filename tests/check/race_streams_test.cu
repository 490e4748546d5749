#include "check/race_streams_test.hpp"

namespace holdfast::test {

__global__ void put(unsigned* words, unsigned value) {
  words[blockIdx.x * blockDim.x + threadIdx.x] = value;
}

__global__ void copy_word(unsigned* to, const unsigned* from) { *to = *from; }

__global__ void send(unsigned* data, volatile unsigned* flag, Sent how) {
  *data = 7;
  if (how == Sent::device_fence) __threadfence();
  if (how == Sent::persisted) persist();
  *flag = 1;
}

__global__ void receive(const unsigned* data, const volatile unsigned* flag, unsigned* out) {
  while (*flag == 0) {
  }
  __threadfence_system();
  *out = *data;
}

void wait_on_host(const volatile unsigned* flag) {
  while (*flag == 0) {
  }
}

void tell_on_host(volatile unsigned* flag) { *flag = 1; }

}  // namespace holdfast::test
