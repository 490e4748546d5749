// The kernels of the store. One thread carries one operation.
#pragma once

#include "gpkvs/table.hpp"

namespace gpkvs {

inline constexpr unsigned kBlock = 256;

// Updates, and their undoing in recovery, by the kernel of the log's layout. Stream-ordered.
void launch_insert(holdfast::Stream& stream, const Table& kvs, const holdfast::UndoLog& log,
                   const Batch& batch, Outcome* outcome);
void launch_erase(holdfast::Stream& stream, const Table& kvs, const holdfast::UndoLog& log,
                  const Batch& batch, Outcome* outcome);
void launch_recover(holdfast::Stream& stream, const Table& kvs, const holdfast::UndoLog& log,
                    Outcome* outcome);

// The same SETs without log and persists.
__global__ void store_into_kvs(Table kvs, Batch batch, Outcome* outcome);
__global__ void get_from_kvs(Table kvs, Batch batch, std::uint64_t* values, std::uint8_t* found);

// One thread: the store's counters, as part of the same transaction.
__global__ void count_batch(Counters* counters, holdfast::ConventionalLogRef log,
                            holdfast::PageMarks marks, Outcome* outcome);

// Recovery of the counters: one thread.
__global__ void recover_counters(Counters* counters, holdfast::ConventionalLogRef log,
                                 holdfast::PageMarks marks);

}  // namespace gpkvs
