// The kernels of the store. One thread carries one operation.
#pragma once

#include "gpkvs/table.hpp"
#include "holdfast/undo.hpp"
#include "workload/delta_ref.hpp"

namespace gpkvs {

inline constexpr unsigned kBlock = 256;

// What each operation changes, into batch.changes. Stream-ordered, as all of these are.
void launch_choose(holdfast::Stream& stream, const Table& kvs, const Batch& batch,
                   Outcome* outcome);
// Stores the changes, each logged and persisted. REQUIRES: a transaction has begun.
void launch_store(holdfast::Stream& stream, const Table& kvs, const holdfast::UndoLog& log,
                  const Batch& batch, const Outcome* outcome);
// The same without log and persists, for tables that the CPU makes durable behind the kernel.
void launch_store_unlogged(holdfast::Stream& stream, const Table& kvs, const Batch& batch,
                           const Outcome* outcome);
// The same, and gathers the changes in `delta`, a pair being a cell: in the order of positions, but
// for blocks of threads that overtake others.
void launch_store_gathered(holdfast::Stream& stream, const Table& kvs, const Batch& batch,
                           const workload::DeltaRef& delta, Outcome* outcome);
// Undoes an entry of the log, in the table and in the copy that kernels read.
struct UndoPair {
  using Entry = LogEntry;
  Table kvs;
  __device__ bool operator()(const LogEntry& entry) const {
    if (entry.bucket > kvs.mask || entry.way >= kWays) return false;
    const Pair before{entry.key, entry.value};
    Pair* const place = &kvs.buckets[entry.bucket].ways[entry.way];
    *place = before;
    kvs.marks.mark(place, sizeof(Pair));
    if (kvs.copy != nullptr) kvs.copy[entry.bucket].ways[entry.way] = before;
    return true;
  }
};

__global__ void get_from_kvs(Table kvs, Batch batch, std::uint64_t* values, std::uint8_t* found);

// One thread: the store's counters, as part of the same transaction.
__global__ void count_batch(Counters* counters, holdfast::ConventionalLogRef log,
                            holdfast::PageMarks marks, const Outcome* outcome);

}  // namespace gpkvs
