// A program written as the applications of GPM's artifact are: a table whose rows are updated in
// place behind a log. Everything goes through compat/gpm's headers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace artifact {

inline constexpr int kRows = 1000;
inline constexpr int kRowWords = 5;

struct Answers {  // of calls that are to fail
  bool map_missing, map_length, map_other_size, log_over_table, open_table_as_log;
  long long register_past_end, checkpoint_nothing;
  int log_bad_partition, log_unnamed_partition, log_full, copy_outside;
  int copy_null, log_long;
  bool map_too_large, log_shape, log_open, checkpoint_over_table, open_again;
  long long checkpoint_groups;
};

// The table's words after `updates` updates of all rows.
std::vector<std::uint32_t> table_after(unsigned updates);

// Makes the table, by updates; the last one is cut off behind `rows_of_last` rows, and its log
// stays: then the process must end.
void make_and_update(unsigned updates, int rows_of_last);
// Opens the table, takes back what was under way, and returns its words.
std::vector<std::uint32_t> recover();
// The calls that applications make beside: host copies, partitions, checkpoints.
std::string use_everything_else();
Answers failures();

// Makes a map, a log of each kind and a checkpoint, over what is there. Names what was not made.
std::string create_each();
// In a forked child: whether the host's calls come back, as failures, where they write.
bool child_calls_come_back();

}  // namespace artifact
