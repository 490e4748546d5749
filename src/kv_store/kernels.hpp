// The kernels of the store. One thread carries one operation.
#pragma once

#include "holdfast/undo.hpp"
#include "kv_store/table.hpp"

namespace holdfast::kv {

inline constexpr unsigned kBlock = 256;

// What each operation changes, into batch.changes. Stream-ordered, as all of these are.
void launch_choose(Stream& stream, const Table& kvs, const Batch& batch, Outcome* outcome);
// Stores the changes, each logged and persisted. REQUIRES: a transaction has begun.
void launch_store(Stream& stream, const Table& kvs, const UndoLog& log, const Batch& batch,
                  const Outcome* outcome);

// Undoes an entry of the log, in the table and in the copy that kernels read.
struct UndoPair {
  using Entry = LogEntry;
  Table kvs;
  __device__ bool operator()(const LogEntry& entry) const {
    if (entry.bucket > kvs.mask || entry.way >= kWays) return false;
    const Pair before{entry.key, entry.value};
    Pair* const place = &kvs.buckets[entry.bucket].ways[entry.way];
    detail::kv_store_pair(place, before);
    kvs.marks.mark(place, sizeof(Pair));
    if (kvs.copy != nullptr) {
      detail::kv_store_pair(&kvs.copy[entry.bucket].ways[entry.way], before);
    }
    return true;
  }
};

// Gives each bucket of `to`, a larger table, and of its copy, the pairs of `from` that belong
// there, each in the way that it has: those of a bucket come from one, so that all have a place.
// Persisted. Counts pairs of `from` that are in no bucket of theirs, and get none.
void launch_spread(Stream& stream, const Table& from, const Table& to, std::uint32_t* strays);

// Looks up a batch that is ordered with all others. REQUIRES: blocks of whole warps.
__global__ void get_from_kvs(Table kvs, Batch batch, std::uint64_t* values, std::uint8_t* found);

// One thread: the store's counters, as part of the same transaction.
__global__ void count_batch(Counters* counters, ConventionalLogRef log, PageMarks marks,
                            const Outcome* outcome);

}  // namespace holdfast::kv
