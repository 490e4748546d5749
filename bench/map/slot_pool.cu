#include "slot_pool.hpp"

#include <vector>

#include "holdfast/kernel.hpp"

namespace maps {
namespace {

// One thread. What was given back is free from here on; what was asked for in vain was not taken.
__global__ void open_pool(PoolRef::Counters* counters) {
  if (counters->taken > counters->limit) counters->taken = counters->limit;
  counters->limit = counters->given;
}

}  // namespace

SlotPool::SlotPool(std::uint32_t slots, std::uint32_t batch)
    : slots_(slots), ring_(std::size_t{slots} + batch), counters_(1) {
  holdfast::Stream stream;
  fill(stream, nullptr);
}

void SlotPool::rebuild(holdfast::Stream& stream, const std::uint8_t* used) {
  std::vector<std::uint8_t> host(slots_);
  holdfast::copy_async(stream, host.data(), used, host.size());
  stream.synchronize();
  fill(stream, host.data());
}

void SlotPool::fill(holdfast::Stream& stream, const std::uint8_t* used) {
  std::vector<std::uint32_t> free;
  free.reserve(slots_);
  for (std::uint32_t slot = 0; slot < slots_; ++slot) {
    if (used == nullptr || used[slot] == 0) free.push_back(slot);
  }
  const PoolRef::Counters counters{0, free.size(), 0};
  holdfast::copy_async(stream, ring_.data(), free.data(), free.size() * sizeof(std::uint32_t));
  holdfast::copy_async(stream, counters_.data(), &counters, sizeof(counters));
  stream.synchronize();
}

PoolRef SlotPool::open(holdfast::Stream& stream) {
  holdfast::launch(stream, dim3(1), dim3(1), open_pool, counters_.data());
  return {ring_.data(), static_cast<std::uint32_t>(ring_.size()), counters_.data()};
}

}  // namespace maps
