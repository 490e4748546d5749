#include "prefix_sum/prefix_sum_oracle.hpp"

#include "holdfast/error.hpp"

namespace prefix_sum {

std::string compare_sums(const std::vector<std::uint32_t>& numbers,
                         const std::vector<std::uint64_t>& stored, std::uint64_t row,
                         bool from_row_start, const char* what) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (from_row_start && i % row == 0) sum = 0;
    sum += numbers[i];
    if (stored[i] != sum + 1) {
      return holdfast::detail::concat(what, " ", i, " is stored as ", stored[i],
                                      ", and should be as ", sum + 1);
    }
  }
  return {};
}

}  // namespace prefix_sum
