// Kind: count updated before publish. Threads take their places in a queue by adding to its count,
// which is persistent, and store what they put there afterwards.
//
// That a count goes last is a likely correctness condition in Witcher's sense (SOSP '21). On a CPU
// one thread would have to be careless; on a GPU, atomicAdd() on the count is the usual way to
// append.
#include "bugs.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

constexpr unsigned kThreads = 3;

struct Queue {
  alignas(64) unsigned long long count;
  alignas(64) std::uint64_t elements[kThreads];
};

template <bool kFixed>
__global__ void append(Queue* queue) {
  if (kFixed) {
    queue->elements[threadIdx.x] = 1 + threadIdx.x;
    persist();
    __syncthreads();
    if (threadIdx.x != 0) return;
    queue->count = kThreads;
    persist();
  } else {
    const unsigned long long place = atomicAdd(&queue->count, 1ull);  // BUG: kept
    persist();
    queue->elements[place] = 1 + threadIdx.x;  // BUG: lost
    persist();
  }
}

template <bool kFixed>
void run(Stream& stream, Queue* queue) {
  launch(stream, dim3(1), dim3(kThreads), append<kFixed>, queue);
}

std::string verify(const Queue& queue, const check::History& history) {
  const unsigned long long count = queue.count;
  if (history.acknowledged != 0 && count != kThreads) return "elements are gone";
  for (unsigned long long i = 0; i < count; ++i) {
    if (queue.elements[i] == 0) return "the count takes in an element that is not there";
  }
  return "";
}

}  // namespace

check::Program count_before_publish(bool fixed) {
  return make_program<Queue>("count_before_publish",
                             {fixed ? run<true> : run<false>, nullptr, verify});
}

}  // namespace holdfast::test
