#include "support/stream_gate.hpp"

#include <atomic>
#include <cstdlib>
#include <thread>

#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

#ifdef HOLDFAST_BACKEND_CUDA
// A kernel's first launch loads it, which waits for kernels that run: for the gate's, too.
[[maybe_unused]] const int all_kernels_at_first = ::setenv("CUDA_MODULE_LOADING", "EAGER", 0);

__global__ void wait_at_gate(volatile std::uint32_t* reached, const volatile std::uint32_t* open) {
  constexpr unsigned kNap = 1000;                       // nanoseconds
  constexpr unsigned long long kMost = 10'000'000'000;  // of %globaltimer
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  *reached = 1;
  __threadfence_system();
  do {
    __nanosleep(kNap);
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (*open == 0 && now - start < kMost);
}
#endif

}  // namespace

StreamGate::StreamGate() { words_[kReached] = words_[kOpen] = 0; }

#ifdef HOLDFAST_BACKEND_CUDA

void StreamGate::hold(Stream& stream) {
  launch(stream, dim3(1), dim3(1), wait_at_gate, words_.data() + kReached, words_.data() + kOpen);
}

void StreamGate::open() { std::atomic_ref(words_[kOpen]).store(1); }

void StreamGate::wait_until_reached() {
  while (std::atomic_ref(words_[kReached]).load() == 0) std::this_thread::yield();
}

#else

void StreamGate::hold(Stream& stream) {
  stream.enqueue([this] { gate_.wait(); });
}

void StreamGate::open() { gate_.open(); }

void StreamGate::wait_until_reached() { gate_.wait_until_reached(); }

#endif

}  // namespace holdfast::test
