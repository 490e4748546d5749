// How a run's records come onto the medium: in whole lines, in the order of their positions.
#pragma once

#include "kv_store/log/batch.hpp"
#include "kv_store/log/block_sum.hpp"
#include "kv_store/log/commit.hpp"

namespace holdfast::kv::log {

// Pages of the log that a run's records and first header lie in: blocks for append_page().
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

// One block's part of the run: a page of positions, so that warps store whole lines, of one piece.
// `page`: counted from the page of the first header. `source(number, position)`: the run's record
// of that number, which goes to that position.
template <class Source>
__device__ void append_page(const Medium& medium, const RunPlan& run, const Work& work,
                            std::uint32_t page, const Source& source) {
  const std::uint32_t begin = run.first / kBlock * kBlock;  // the page of the first header
  const std::uint32_t in_first = (((run.first >> run.shift) + 1) << run.shift) - begin;
  const std::uint32_t at = page * kBlock + threadIdx.x;
  const std::uint32_t piece = at < in_first ? 0 : 1 + ((at - in_first) >> run.shift);
  if (piece >= run.pieces) return;  // the whole block: pieces are of whole pages
  const std::uint32_t header = run.header_of(piece);
  const std::uint32_t base = piece == 0 ? begin : header;
  const std::uint32_t offset = piece == 0 ? at : (at - in_first) & ((1u << run.shift) - 1);
  const std::uint32_t position = base + offset;
  const std::uint32_t index = position - header - kHeaderRecords;  // wraps in front of the records
  const std::uint32_t there = run.end_of(piece) - run.begin_of(piece);
  const bool stores = position >= header + kHeaderRecords && index < there;
  unsigned long long mine = 0;
  if (stores) {
    const Record record = source(run.begin_of(piece) + index, position);
    mine = record_sum(record.key, record.value, index);
    medium.records[position] = record;
    medium.marks.mark(&medium.records[position], sizeof(Record));
    persist();
  }
  const unsigned long long sum = block_sum(mine);
  if (sum != 0) atomicAdd(&work.sums[piece], sum);
}

}  // namespace holdfast::kv::log
