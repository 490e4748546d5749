// The oracle: one loop over the numbers. Shares no code with the kernels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace prefix_sum {

// Compares stored sums (one more than they are) with those of `numbers`, from each row's start or
// from the very start, part by part. Thread safety: one thread.
class SumOracle {
 public:
  // `what` is for wrong(). `numbers` outlive it.
  SumOracle(const std::vector<std::uint32_t>& numbers, std::uint64_t row, bool from_row_start,
            const char* what)
      : numbers_(numbers), row_(row), from_row_start_(from_row_start), what_(what) {}

  // The next sums.
  void compare(const std::uint64_t* stored, std::uint64_t count);
  // What is wrong so far; empty if nothing is.
  const std::string& wrong() const { return wrong_; }

 private:
  const std::vector<std::uint32_t>& numbers_;
  std::uint64_t row_;
  bool from_row_start_;
  const char* what_;
  std::uint64_t sum_ = 0;
  std::uint64_t next_ = 0;
  std::string wrong_;
};

// Of all of them at once.
std::string compare_sums(const std::vector<std::uint32_t>& numbers,
                         const std::vector<std::uint64_t>& stored, std::uint64_t row,
                         bool from_row_start, const char* what);

}  // namespace prefix_sum
