// The kernels of the store. One thread carries one operation.
#pragma once

#include "gpkvs/table.hpp"

namespace gpkvs {

inline constexpr unsigned kBlock = 256;

// What each operation changes, into batch.changes. Stream-ordered, as all of these are.
void launch_choose(holdfast::Stream& stream, const Table& kvs, const Batch& batch,
                   Outcome* outcome);
// Stores the changes, each logged and persisted. REQUIRES: a transaction has begun.
void launch_store(holdfast::Stream& stream, const Table& kvs, const holdfast::UndoLog& log,
                  const Batch& batch, Outcome* outcome);
// The same without log and persists, for tables that the CPU makes durable behind the kernel.
void launch_store_unlogged(holdfast::Stream& stream, const Table& kvs, const Batch& batch,
                           const Outcome* outcome);
// Undoes what the log holds.
void launch_recover(holdfast::Stream& stream, const Table& kvs, const holdfast::UndoLog& log,
                    Outcome* outcome);

__global__ void get_from_kvs(Table kvs, Batch batch, std::uint64_t* values, std::uint8_t* found);

// One thread: the store's counters, as part of the same transaction.
__global__ void count_batch(Counters* counters, holdfast::ConventionalLogRef log,
                            holdfast::PageMarks marks, Outcome* outcome);

// Recovery of the counters: one thread.
__global__ void recover_counters(Counters* counters, holdfast::ConventionalLogRef log,
                                 holdfast::PageMarks marks);

}  // namespace gpkvs
