// The kernels' side of the prefix sum: rows of sums, wherever they are.
#pragma once

#include <cstdint>

#include "holdfast/stream.hpp"

namespace prefix_sum {

// Rows of `length` sums, which one block stores. A sum is stored as one more than it is; 0 says
// that it is not there.
struct Rows {
  std::uint64_t* partial = nullptr;  // row b: the sums of its numbers alone
  std::uint64_t* result = nullptr;   // row b: the sums of all numbers up to there
  std::uint32_t length = 0;          // 1 to kMaxThreads
};

struct RowRange {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
};

// Computes the rows of `range`. With `persists` each row's last sum is durable after its others,
// and rows whose last sum is there are passed over; without, all are computed. Stream-ordered.
// REQUIRES: `input` and `totals` (range.count elements) are memory that kernels can use, and the
// results of the row before the range are there.
void sum_rows(holdfast::Stream& stream, const std::uint32_t* input, const Rows& rows,
              const RowRange& range, std::uint64_t* totals, bool persists);

// The same by OpenMP threads, on the medium itself, for mode cpu. Durable on return, row by row.
void sum_rows_on_cpu(const std::uint32_t* input, const Rows& rows, const RowRange& range,
                     unsigned threads);

}  // namespace prefix_sum
