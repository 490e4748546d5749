// The oracle: one loop over the numbers. Shares no code with the kernels.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace prefix_sum {

// Compares stored sums (one more than they are) with those of `numbers`, from each row's start or
// from the very start. Returns what is wrong; empty if nothing is. `what` is for that message.
std::string compare_sums(const std::vector<std::uint32_t>& numbers,
                         const std::vector<std::uint64_t>& stored, std::uint64_t row,
                         bool from_row_start, const char* what);

}  // namespace prefix_sum
