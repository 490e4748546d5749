// Kernels that the log's tests drive through plain functions, so that the tests themselves are
// host code on both backends.
#pragma once

#include <cstdint>
#include <vector>

#include "holdfast/undo_log.hpp"

namespace holdfast::test {

// What a slot's threads saw; in device memory.
struct LogTally {
  std::uint32_t ok, full, empty, bad_size, bad_slot, wrong_bytes;
};

// The byte `i` of entry `n` of thread `thread`.
inline std::uint8_t entry_byte(std::uint32_t thread, std::uint32_t n, std::uint32_t i) {
  return static_cast<std::uint8_t>(thread * 7 + n * 31 + i * 3 + 1);
}

// Each of `threads` threads inserts `entries` entries of `bytes` bytes into its own slot.
void insert_entries(Stream& stream, const UndoLog& log, std::uint32_t threads,
                    std::uint32_t entries, std::uint32_t bytes, LogTally* tally);
// Each thread reads and removes `entries` entries, newest first, and compares them. `newest` is
// the number of the newest.
void drain_entries(Stream& stream, const UndoLog& log, std::uint32_t threads, std::uint32_t entries,
                   std::uint32_t newest, std::uint32_t bytes, LogTally* tally);
// Counts slots that are not empty.
void count_used_slots(Stream& stream, const UndoLog& log, std::uint32_t* count);
// The first `threads` slots are cleared.
void clear_slots(Stream& stream, const UndoLog& log, std::uint32_t threads);

// Every thread appends {thread, n} to its partition, which it shares with others.
void insert_shared(Stream& stream, const UndoLog& log, std::uint32_t threads, std::uint32_t entries,
                   LogTally* tally);
// One thread per partition pops {thread, n} pairs and counts each in seen[thread * entries + n].
void pop_shared(Stream& stream, const UndoLog& log, std::uint32_t threads, std::uint32_t entries,
                std::uint32_t* seen);

// The application of the crash tests: every cell goes from `from` to `to`, logged first. A thread
// that cannot log leaves its cell as it is.
void add_one(Stream& stream, const UndoLog& log, std::uint64_t* cells, std::uint32_t count,
             PageMarks marks);
// The same with a bug: the cell is stored before what it held is logged.
void add_one_too_early(Stream& stream, const UndoLog& log, std::uint64_t* cells,
                       std::uint32_t count, PageMarks marks);

// The cells that a log belongs to, and Transaction::finish() and recover() with what undoes it.
struct Cells {
  UndoLog log;
  std::uint64_t* first;
  std::uint32_t count;
  PageMarks marks;
};
void finish(Stream& stream, Transaction& transaction, const std::vector<Cells>& all);
Recovery recover(Stream& stream, Transaction& transaction, const std::vector<Cells>& all);
// The part of recover() that puts cells back, without the end: as far as a crash in it may come.
void undo_cells(Stream& stream, const Cells& cells);

}  // namespace holdfast::test
