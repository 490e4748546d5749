// Brings what kernels gathered into the order of addresses, in device memory.
#pragma once

#include <cstdint>

#include "holdfast/sort.hpp"
#include "holdfast/stream.hpp"
#include "workload/delta_ref.hpp"

namespace workload {

// Owns the device memory for sorting up to `most` changes, so that no step pays for it.
// Thread safety: one thread.
class DeltaSorter {
 public:
  // REQUIRES: `most` fits in 32 bits. Throws no_memory.
  explicit DeltaSorter(std::uint64_t most);
  // Sorts by the lowest `bits` bits of the cells' numbers; of equal ones the order stays.
  // Stream-ordered. Returns the tiles that are then in order, in device memory, until the next
  // call. REQUIRES: `count` is at most `most`.
  const DeltaTile* sort(holdfast::Stream& stream, const DeltaTile* tiles, std::uint64_t count,
                        unsigned bits);

 private:
  holdfast::DeviceBuffer<std::uint32_t> cells_, sorted_cells_;
  holdfast::DeviceBuffer<std::uint32_t> places_, sorted_places_;
  holdfast::DeviceBuffer<DeltaTile> sorted_;
  holdfast::PairSorter sorter_;
};

}  // namespace workload
