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

__global__ void act(RacingActs acts, unsigned* words, unsigned* flags) {
  bool told = false;
  unsigned sum = 0;
  for (unsigned i = 0; i < acts.count; ++i) {
    const RacingAct& one = acts.acts[i];
    if (one.if_told && !told) continue;
    unsigned* const word = words + 16 * one.word;
    unsigned* const flag = flags + 16 * one.word;
    if (one.what == RacingAct::What::load) sum += *word;
    if (one.what == RacingAct::What::store) *word = 1;
    if (one.what == RacingAct::What::tell) prel<Scope::system>(flag, 1u);
    if (one.what == RacingAct::What::ask) told = pacq<Scope::system>(flag) != 0;
  }
  if (sum > 1'000) words[1'000] = sum;  // so that the loads are made
}

unsigned ask_on_host(const volatile unsigned* flag) { return *flag; }

void wait_on_host(const volatile unsigned* flag) {
  while (*flag == 0) {
  }
}

void tell_on_host(volatile unsigned* flag) { *flag = 1; }

}  // namespace holdfast::test
