// The two layouts of the key-value store in turn, and of the log both forms of its index, on the
// same batches.
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
// kvs_layout_mixed (19 GETs to a SET), kvs_layout_get, kvs_layout_apply (SETs and ERASEs in one
// batch), kvs_layout_open, and of logs kvs_layout_grow for each.
void compare_layouts(const LayoutRun& run);

// Prints lines kvs_log_open for logs of a sixteenth of so many records, of a quarter, and of all:
// holding each pair once ("loaded"), full for the first time ("full"), once cleaning is steady
// ("aged"), and behind as many SETs in batches of 256 ("aged by small batches"). Each of them
// closed, with the snapshots that a kill would have left, and without any. `run.pairs` does not
// matter; batches are `run.batch` or a 32nd of the log, what is less.
void measure_openings(std::uint64_t records, const LayoutRun& run);

}  // namespace bench
