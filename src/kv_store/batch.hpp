// Brings a batch into device memory and lays it out over the table.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/stream_end.hpp"
#include "holdfast/sort.hpp"
#include "kv_store/table.hpp"

namespace holdfast::kv {

// Owns the device memory for one batch of up to `max_batch` operations. Reused from batch to
// batch; one thread at a time.
class BatchPlanner {
 public:
  explicit BatchPlanner(std::uint32_t max_batch);

  // Makes room for what mixed batches need beside others. Throws no_memory.
  void reserve_mixed();
  // Copies keys and values (which may be null) in, and kinds (null: all are alike). Stream-ordered;
  // values come behind, beside later work of the stream. REQUIRES: there is room for them.
  void load(Stream& stream, const std::uint64_t* keys, const std::uint64_t* values,
            std::size_t count, const KvStore::Op* kinds = nullptr);
  // Finds every operation's bucket and builds the chains. `chains` is false for lookups, which
  // need none. Counts keys that cannot be stored in outcome->reserved_keys. Stream-ordered.
  Batch plan(Stream& stream, const Table& table, bool ordered, bool chains, Outcome* outcome);

  // Finds what a batch with chains changes, into batch.changes. Later work of the stream finds its
  // values, too.
  void choose(Stream& stream, const Table& table, const Batch& batch, Outcome* outcome);

  // Waits for what comes beside, of a batch that nobody has chosen of.
  void end_work() noexcept { const core::StreamEnd end(beside_); }

 private:
  std::uint32_t count_ = 0;
  bool has_values_ = false;
  bool has_kinds_ = false;
  DeviceBuffer<std::uint64_t> keys_, values_;
  DeviceBuffer<std::uint32_t> bucket_, op_, sorted_bucket_, sorted_op_, starts_, skips_;
  DeviceBuffer<Change> changes_;
  DeviceBuffer<KvStore::Op> kinds_;  // of mixed batches, as the next two
  DeviceBuffer<unsigned long long> claims_;
  DeviceBuffer<std::uint32_t> claim_of_;
  std::uint32_t tag_ = 0;
  Stream beside_;
  Event keys_in_, values_in_;
  PairSorter sorter_;
};

}  // namespace holdfast::kv
