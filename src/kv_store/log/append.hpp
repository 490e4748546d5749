// How a run's records come onto the medium: in whole lines, in the order of their positions.
#pragma once

#include "kv_store/log/batch.hpp"
#include "kv_store/log/block_sum.hpp"
#include "kv_store/log/commit.hpp"

namespace holdfast::kv::log {

// Pages of the log that a run's records and first header lie in: a block for each (spot_of()).
inline std::uint32_t pages_of(const RunPlan& run) {
  const std::uint32_t segment = 1u << run.shift;
  const std::uint32_t in_page = run.first % kBlock;
  const std::uint32_t last = run.end_of(run.pieces - 1) - run.begin_of(run.pieces - 1);
  const auto pages = [](std::uint32_t positions) { return (positions + kBlock - 1) / kBlock; };
  if (run.pieces == 1) return pages(in_page + kHeaderRecords + last);
  const std::uint32_t in_first = segment - run.first % segment;
  return pages(in_page + in_first) + (run.pieces - 2) * (segment / kBlock) +
         pages(kHeaderRecords + last);
}

// What a thread of a block that has a page of the run stores there.
struct Spot {
  std::uint32_t piece = 0;
  std::uint32_t position = 0;
  std::uint32_t index = 0;   // of the record within its piece
  std::uint32_t number = 0;  // within the run: one more than that of the thread before
  bool stores = false;       // whether there is a record: not in front of them, nor behind
};

// A block has a page of positions, so that warps store whole lines; all of it is of one piece.
// `page`: counted from the page of the first header. `thread`: of that block.
__device__ inline Spot spot_of(const RunPlan& run, std::uint32_t page,
                               std::uint32_t thread = threadIdx.x) {
  const std::uint32_t begin = run.first / kBlock * kBlock;  // the page of the first header
  const std::uint32_t in_first = (((run.first >> run.shift) + 1) << run.shift) - begin;
  const std::uint32_t at = page * kBlock + thread;
  Spot spot;
  spot.piece = at < in_first ? 0 : 1 + ((at - in_first) >> run.shift);
  if (spot.piece >= run.pieces) return spot;
  const std::uint32_t header = run.header_of(spot.piece);
  const std::uint32_t base = spot.piece == 0 ? begin : header;
  const std::uint32_t offset = spot.piece == 0 ? at : (at - in_first) & ((1u << run.shift) - 1);
  const std::uint32_t there = run.end_of(spot.piece) - run.begin_of(spot.piece);
  spot.position = base + offset;
  spot.index = spot.position - header - kHeaderRecords;  // wraps in front of the records
  spot.number = run.begin_of(spot.piece) + spot.index;   // the same
  spot.stores = spot.position >= header + kHeaderRecords && spot.index < there;
  return spot;
}

__device__ inline unsigned long long sum_of(const Spot& spot, const Record& record) {
  return record_sum(record.key, record.value, spot.index);
}

// Stores a record, which is durable once the thread persists.
__device__ inline void append(const Medium& medium, std::uint32_t position, const Record& record) {
  medium.records[position] = record;
  medium.marks.mark(&medium.records[position], sizeof(Record));
}

// The first warp of a block stores the page's records, by thread, for all of its threads: so it
// alone has stores on the link, and one persist of it waits for them all. A fence of another thread
// then waits for none of them. REQUIRES: all have put theirs, in front of a barrier.
__device__ inline bool is_appender() { return threadIdx.x < kWarp; }
__device__ inline void append_page(const Medium& medium, const RunPlan& run, std::uint32_t page,
                                   const Record* records) {
  for (std::uint32_t i = threadIdx.x; i < kBlock; i += kWarp) {
    const Spot spot = spot_of(run, page, i);
    if (spot.stores) append(medium, spot.position, records[i]);
  }
}

// REQUIRES: all threads of the block call; each has the sum of what it stored, or 0.
__device__ inline void add_sums(const Work& work, const Spot& spot, unsigned long long mine) {
  const unsigned long long sum = block_sum(mine);
  if (sum != 0) atomicAdd(&work.sums[spot.piece], sum);
}

}  // namespace holdfast::kv::log
