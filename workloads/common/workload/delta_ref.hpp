// What a step changes, as its kernels gather it in device memory: modes cap_delta and
// cap_delta_raw.
#pragma once

#include <cstdint>

#include "holdfast/config.hpp"
#if HOLDFAST_DEVICE_CODE
#include "holdfast/kernel.hpp"
#endif

namespace workload {

// The unit of a change.
struct alignas(16) Cell {
  std::uint64_t halves[2];
};

// Changes as kernels gather them. A warp's stores coalesce, and the first n changes are the first
// bytes of the tiles.
struct DeltaTile {
  static constexpr std::uint32_t kChanges = 32;
  std::uint32_t cell[kChanges];  // its number in the array
  Cell value[kChanges];
};
static_assert(sizeof(DeltaTile) == 640);

// For kernels. Null tiles: nothing is gathered.
struct DeltaRef {
  DeltaTile* tiles = nullptr;

#if HOLDFAST_DEVICE_CODE
  // REQUIRES: no other thread has the slot, and it is less than the most changes of a step.
  __device__ void put(std::uint32_t slot, std::uint32_t cell, const Cell& value) const {
    DeltaTile& tile = tiles[slot / DeltaTile::kChanges];
    tile.cell[slot % DeltaTile::kChanges] = cell;
    tile.value[slot % DeltaTile::kChanges] = value;
  }
#endif
};

#if HOLDFAST_DEVICE_CODE
// A slot for each thread of the block that wants one, in the order of the threads. All threads call
// it together; it is one atomic update of `taken` a block. REQUIRES: blocks of whole warps; a
// barrier between two calls.
__device__ inline std::uint32_t take_slot(std::uint32_t* taken, bool wants) {
  __shared__ std::uint32_t before[32];  // this warp, in the block
  __shared__ std::uint32_t first;
  const unsigned warp = threadIdx.x / 32;
  const unsigned wanting = __ballot_sync(0xffffffffu, wants);
  if (threadIdx.x % 32 == 0) before[warp] = static_cast<std::uint32_t>(__popc(wanting));
  __syncthreads();
  if (threadIdx.x == 0) {
    std::uint32_t sum = 0;
    for (unsigned i = 0; i < blockDim.x / 32; ++i) {
      const std::uint32_t count = before[i];
      before[i] = sum;
      sum += count;
    }
    first = sum != 0 ? atomicAdd(taken, sum) : 0;
  }
  __syncthreads();
  const unsigned earlier = wanting & ((1u << threadIdx.x % 32) - 1);
  return first + before[warp] + static_cast<std::uint32_t>(__popc(earlier));
}
#endif

}  // namespace workload
