// The prefix sum of mode cpu.
#include <vector>

#include "prefix_sum/rows.hpp"
#include "workload/backing.hpp"

namespace prefix_sum {
namespace {

using workload::Backing;

constexpr std::uint64_t kParallelNumbers = 1u << 16;  // below, threads cost more than they bring

// Stores a row's sums, the last one behind all others. Returns the last. A row that is there is not
// computed again.
std::uint64_t store_row(const std::uint32_t* numbers, std::uint32_t length, std::uint64_t before,
                        std::uint64_t* row) {
  std::uint64_t& last = row[length - 1];
  if (last != 0) return last - 1;
  std::uint64_t sum = before;
  for (std::uint32_t i = 0; i + 1 < length; ++i) row[i] = (sum += numbers[i]) + 1;
  Backing::flush(row, (length - 1) * sizeof(std::uint64_t));
  sum += numbers[length - 1];
  last = sum + 1;
  Backing::flush(&last, sizeof(last));
  return sum;
}

}  // namespace

void sum_rows_on_cpu(const std::uint32_t* input, const Rows& rows, const RowRange& range,
                     unsigned threads) {
  const std::uint64_t length = rows.length;
  const std::uint32_t end = range.first + range.count;
  std::vector<std::uint64_t> totals(range.count);
#pragma omp parallel num_threads(static_cast <int>(threads)) if (range.count * length >= \
                                                                 kParallelNumbers)
  {
#pragma omp for schedule(static)
    for (std::uint32_t row = range.first; row < end; ++row) {
      totals[row - range.first] =
          store_row(input + row * length, rows.length, 0, rows.partial + row * length);
    }
#pragma omp single
    {
      std::uint64_t sum = range.first == 0 ? 0 : rows.result[range.first * length - 1] - 1;
      for (std::uint64_t& total : totals) {
        const std::uint64_t own = total;
        total = sum;
        sum += own;
      }
    }
#pragma omp for schedule(static)
    for (std::uint32_t row = range.first; row < end; ++row) {
      store_row(input + row * length, rows.length, totals[row - range.first],
                rows.result + row * length);
    }
  }
}

}  // namespace prefix_sum
