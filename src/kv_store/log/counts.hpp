// Live records by segment, as runs add them.
#pragma once

#include "kv_store/log/batch.hpp"

namespace holdfast::kv::log {

// Counts the records of a block's operations in their segments. These are in three at most, one
// behind another: all pieces but the first and the last hold more than a block's records.
class SegmentCounts {
 public:
  // REQUIRES: all threads of the block call, as for flush().
  __device__ SegmentCounts(unsigned* live, unsigned* tombs, const RunPlan& run, std::uint32_t first)
      : live_(live), tombs_(tombs), run_(run), piece_(run.piece_of(first)) {
    if (threadIdx.x < kPieces) live_[threadIdx.x] = tombs_[threadIdx.x] = 0;
    __syncthreads();
  }
  __device__ void add(std::uint32_t record, bool tombstone) const {
    const std::uint32_t piece = run_.piece_of(record) - piece_;
    atomicAdd(&live_[piece], 1u);
    if (tombstone) atomicAdd(&tombs_[piece], 1u);
  }
  __device__ void flush(const IndexBase& index) const {
    __syncthreads();
    if (threadIdx.x >= kPieces || live_[threadIdx.x] == 0) return;
    const std::uint32_t segment = run_.segment_of(piece_ + threadIdx.x);
    atomicAdd(&index.live[segment], live_[threadIdx.x]);
    if (tombs_[threadIdx.x] != 0) atomicAdd(&index.tombs[segment], tombs_[threadIdx.x]);
  }
  // Of a block of up to kSmallBatch threads.
  static constexpr unsigned kPieces = kSmallBatch / (kLeastSegment - kHeaderRecords) + 3;

 private:
  unsigned* live_;
  unsigned* tombs_;
  const RunPlan& run_;
  std::uint32_t piece_;
};

}  // namespace holdfast::kv::log
