// The two layouts of the key-value store in turn, on the same batches.
#pragma once

#include <cstdint>

namespace bench {

struct LayoutRun {
  std::uint64_t pairs = 0;         // that the store holds; keys are uniform over them
  std::uint64_t live_percent = 0;  // of the log
  std::uint32_t batch = 0;         // SETs
  int batches = 0;  // that are measured, behind as many as cleaning takes to be steady
};

// Prints lines kvs_layout_set (SETs that all update, by batch size and where the input is),
// kvs_layout_get and kvs_layout_open for each layout.
void compare_layouts(const LayoutRun& run);

}  // namespace bench
