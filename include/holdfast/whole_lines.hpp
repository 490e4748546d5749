// Stores of 16 bytes at random places, as stores of the whole lines around them.
//
// A host that receives a part of a line of its memory has to read the line before it can write it;
// one that receives the line whole has not. So where kernels know what else is in a line, from a
// copy in device memory, the whole is stored sooner than the part (bench/scatter_bench.cu).
//
// Include through holdfast/kernel.hpp.
#pragma once

#include <cstdint>
#include <cstring>

#include "holdfast/config.hpp"
#if HOLDFAST_DEVICE_CODE
#include "holdfast/kernel.hpp"
#endif

namespace holdfast {

inline constexpr std::uint64_t kLineBytes = 64;
inline constexpr unsigned kLineCells = 4;  // and the threads that store a line together

// What a thread of store_by_lines() has to store.
enum class LineChange : unsigned {
  none,
  cell,  // others may change cells of the same line
  line,  // nobody else does, in `cells` or in `copy`, until this kernel has ended
};

#if HOLDFAST_DEVICE_CODE
// Stores `value` to cells[at]; a LineChange::line with the three cells beside it, as they are in
// `copy`, which it leaves as it is. `store(place, cell)` stores a cell. Returns whether this thread
// stored one, and so has to persist(), whatever it had to store itself.
//
// REQUIRES: Cell is of 16 bytes; `cells` begins a line. Blocks of one dimension, of a multiple of
// four threads: 4n to 4n + 3 call it together. What has to be durable before a change is durable,
// by its own thread: another one stores it. copy[i] is what cells[i] is, but for what changes here.
template <class Cell, class Store>
__device__ bool store_by_lines(Cell* cells, const Cell* copy, LineChange change, std::uint64_t at,
                               const Cell& value, const Store& store) {
  static_assert(sizeof(Cell) * kLineCells == kLineBytes && sizeof(Cell) == 16);
  const unsigned lane = threadIdx.x % kLineCells;
  const unsigned mask = 0xfu << (threadIdx.x % 32 / kLineCells * kLineCells);
  const auto from = [mask](unsigned member, auto of) {
    return __shfl_sync(mask, of, static_cast<int>(member), static_cast<int>(kLineCells));
  };
  std::uint64_t halves[2];
  memcpy(halves, &value, sizeof(halves));
  bool stored = false;
#pragma unroll
  for (unsigned member = 0; member < kLineCells; ++member) {
    const unsigned theirs = from(member, static_cast<unsigned>(change));
    const std::uint64_t place = from(member, at);
    const std::uint64_t changed[2] = {from(member, halves[0]), from(member, halves[1])};
    const std::uint64_t mine = place / kLineCells * kLineCells + lane;
    const bool is_place = mine == place;
    if (theirs == static_cast<unsigned>(LineChange::none)) continue;
    if (!is_place && theirs != static_cast<unsigned>(LineChange::line)) continue;
    Cell cell;
    if (is_place) {
      memcpy(&cell, changed, sizeof(cell));
    } else {
      cell = copy[mine];
    }
    // One store for all threads of a warp: what they store side by side leaves as a line.
    store(cells + mine, cell);
    stored = true;
  }
  return stored;
}
#endif

}  // namespace holdfast
