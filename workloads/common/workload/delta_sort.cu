#include "workload/delta_sort.hpp"

#include "holdfast/kernel.hpp"

namespace workload {
namespace {

constexpr unsigned kThreads = 256;
using u32 = std::uint32_t;

__global__ void read_cells(const DeltaTile* tiles, u32 count, u32* cells, u32* places) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  cells[i] = tiles[i / DeltaTile::kChanges].cell[i % DeltaTile::kChanges];
  places[i] = i;
}

__global__ void move_changes(const DeltaTile* tiles, u32 count, const u32* cells, const u32* places,
                             DeltaTile* sorted) {
  const u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const u32 from = places[i];
  DeltaRef{sorted}.put(i, cells[i],
                       tiles[from / DeltaTile::kChanges].value[from % DeltaTile::kChanges]);
}

}  // namespace

DeltaSorter::DeltaSorter(std::uint64_t most)
    : cells_(most),
      sorted_cells_(most),
      places_(most),
      sorted_places_(most),
      sorted_((most + DeltaTile::kChanges - 1) / DeltaTile::kChanges),
      sorter_(most) {}

const DeltaTile* DeltaSorter::sort(holdfast::Stream& stream, const DeltaTile* tiles,
                                   std::uint64_t count, unsigned bits) {
  const auto number = static_cast<u32>(count);
  if (number == 0) return sorted_.data();
  const dim3 grid(holdfast::blocks_for(count, kThreads));
  holdfast::launch(stream, grid, dim3(kThreads), read_cells, tiles, number, cells_.data(),
                   places_.data());
  sorter_.sort(stream, cells_.data(), sorted_cells_.data(), places_.data(), sorted_places_.data(),
               number, bits);
  holdfast::launch(stream, grid, dim3(kThreads), move_changes, tiles, number, sorted_cells_.data(),
                   sorted_places_.data(), sorted_.data());
  return sorted_.data();
}

}  // namespace workload
