#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace holdfast::test {

struct alignas(16) LineCell {
  static constexpr const char* kTypeName = "line_cell";
  std::uint64_t words[2];
  bool operator==(const LineCell&) const = default;
};

// What a thread stores: 0 nothing, 1 a cell, 2 the line around it.
struct LineTask {
  unsigned change;
  std::uint64_t at;
  LineCell value;
};

// A thread for each task, of as many blocks of `threads` as it takes. Returns by thread whether it
// stored something. `cells` and `copy` are of the device, or reached by it.
std::vector<std::uint8_t> store_by_lines_of(std::span<LineCell> cells,
                                            const std::vector<LineCell>& copy,
                                            const std::vector<LineTask>& tasks, unsigned threads);

}  // namespace holdfast::test
