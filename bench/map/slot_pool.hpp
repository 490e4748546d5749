// Which slots of a store of values are free, in device memory: known while a map is open, made anew
// from what it holds when it is opened. A slot that is given back is not taken again in the same
// batch, so that no one reads in it what another has put there.
#pragma once

#include <cstdint>

#include "holdfast/stream.hpp"

#if HOLDFAST_DEVICE_CODE
#include "holdfast/kernel.hpp"
#endif

namespace maps {

inline constexpr std::uint32_t kNoSlot = 0xffffffffu;

// Trivially copyable. Invariant: the free slots are ring[taken % size] to ring[given % size - 1].
// The ring has a place more for each that a batch may have taken, so that none is stored over that
// is still to be read.
struct PoolRef {
  struct Counters {
    unsigned long long taken, given, limit;
  };
  std::uint32_t* ring = nullptr;
  std::uint32_t size = 0;
  Counters* counters = nullptr;

#if HOLDFAST_DEVICE_CODE
  // kNoSlot: there is none.
  __device__ std::uint32_t take() const {
    const unsigned long long number = atomicAdd(&counters->taken, 1ull);
    return number < counters->limit ? ring[number % size] : kNoSlot;
  }
  __device__ void give(std::uint32_t slot) const {
    ring[atomicAdd(&counters->given, 1ull) % size] = slot;
  }
#endif
};

// Thread safety: one thread.
class SlotPool {
 public:
  // All slots are free. `batch`: slots that a batch takes at most.
  SlotPool(std::uint32_t slots, std::uint32_t batch);
  // Those are free for which used[slot] is 0 (device memory). Waits.
  void rebuild(holdfast::Stream& stream, const std::uint8_t* used);
  // For the kernels of one batch. Stream-ordered.
  PoolRef open(holdfast::Stream& stream);
  std::uint32_t slots() const { return slots_; }

 private:
  void fill(holdfast::Stream& stream, const std::uint8_t* used);
  std::uint32_t slots_;
  holdfast::DeviceBuffer<std::uint32_t> ring_;
  holdfast::DeviceBuffer<PoolRef::Counters> counters_;
};

}  // namespace maps
