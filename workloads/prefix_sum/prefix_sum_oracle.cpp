#include "prefix_sum/prefix_sum_oracle.hpp"

#include "holdfast/error.hpp"

namespace prefix_sum {

void SumOracle::compare(const std::uint64_t* stored, std::uint64_t count) {
  if (!wrong_.empty()) return;
  for (std::uint64_t k = 0; k < count; ++k, ++next_) {
    if (from_row_start_ && next_ % row_ == 0) sum_ = 0;
    sum_ += numbers_[next_];
    if (stored[k] == sum_ + 1) continue;
    wrong_ = holdfast::detail::concat(what_, " ", next_, " is stored as ", stored[k],
                                      ", and should be as ", sum_ + 1);
    return;
  }
}

std::string compare_sums(const std::vector<std::uint32_t>& numbers,
                         const std::vector<std::uint64_t>& stored, std::uint64_t row,
                         bool from_row_start, const char* what) {
  SumOracle oracle(numbers, row, from_row_start, what);
  oracle.compare(stored.data(), numbers.size());
  return oracle.wrong();
}

}  // namespace prefix_sum
