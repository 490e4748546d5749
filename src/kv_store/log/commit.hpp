// How a run is ended: its headers, and the word that commits it.
#pragma once

#include "kv_store/log/batch.hpp"

namespace holdfast::kv::log {

// Whether this block is the last of `blocks` to come here. What the others stored and counted
// before, and what each of their threads persisted, is seen behind it: a fence of one thread behind
// a barrier is one of all that the barrier makes seen. REQUIRES: all threads of the block call.
__device__ inline bool is_last_block(Outcome* outcome, std::uint32_t blocks) {
  __shared__ std::uint32_t arrived;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    arrived = atomicAdd(&outcome->blocks, 1u);
  }
  __syncthreads();
  const bool last = arrived == blocks - 1;
  if (last) __threadfence();
  return last;
}

__device__ inline std::uint64_t seen(const unsigned long long& word) {
  return *const_cast<const volatile unsigned long long*>(&word);
}

// The header of a piece, from the counts before the run and what the outcome adds to them.
__device__ inline RunHeader header_of(const RunPlan& run, const Work& work, std::uint32_t piece) {
  RunHeader header = run.before;
  header.inserted += seen(work.outcome->inserted);
  header.updated += seen(work.outcome->updated);
  header.digest += seen(work.outcome->digest);
  header.sum = seen(work.sums[piece]);
  const std::uint32_t begin = run.begin_of(piece);
  const std::uint32_t end = run.end_of(piece);
  const std::uint32_t pairs = run.records - run.tombstones;
  header.records = end - begin;
  header.tombstones = end <= pairs ? 0 : end - (begin > pairs ? begin : pairs);
  header.piece = piece;
  header.pieces = run.pieces;
  header.check = header_check(header, piece == 0 ? run.chain : 0, run.header_of(piece));
  return header;
}

// By one block, behind all records of the run: stores the headers, and then the commit word. No
// order among the records and headers is relied on: sums tell a piece that is whole. The commit
// word comes behind them all.
__device__ inline void commit_run(const Medium& medium, const RunPlan& run, const Work& work) {
  for (std::uint32_t piece = threadIdx.x; piece < run.pieces; piece += blockDim.x) {
    const RunHeader header = header_of(run, work, piece);
    auto* const to = reinterpret_cast<RunHeader*>(medium.records + run.header_of(piece));
    *to = header;
    medium.marks.mark(to, sizeof(header));
    if (piece == run.pieces - 1) work.outcome->chain = header.check;
  }
  persist();
  __syncthreads();
  if (threadIdx.x != 0) return;
  medium.commit->word = commit_word(run.before.number);
  medium.marks.mark(&medium.commit->word, sizeof(medium.commit->word));
  persist();
  work.outcome->committed = 1;
}

}  // namespace holdfast::kv::log
