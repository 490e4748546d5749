// A prefix sum that survives a crash at any moment and resumes: blocks whose sums are durable are
// passed over. Source: GPM (ASPLOS '22) section 5.4, Figure 8 ("native persistence").
#pragma once

#include <cstdint>
#include <vector>

#include "holdfast/region.hpp"
#include "holdfast/stream.hpp"

namespace prefix_sum {

inline constexpr std::uint32_t kMaxBlocks = 1u << 20;
inline constexpr std::uint32_t kMaxThreads = 1024;

// Inclusive sums of blocks x threads numbers of 32 bits.
//
// Invariant, after any crash: where the last sum of a row is there, the whole row is. A row is what
// one block stores, and its last sum is durable after all others.
//
// Thread safety: one thread at a time; the region outlives it, and it outlives what it queued.
class PrefixSum {
 public:
  // Makes the object "prefix_sum". Throws invalid_argument (a shape of nothing, or past the limits
  // above), already_exists, no_space.
  static PrefixSum create(holdfast::Region& region, std::uint32_t blocks, std::uint32_t threads);
  // Throws not_found, invalid_argument (another object of that name).
  static PrefixSum open(holdfast::Region& region);
  // Bytes that its object takes.
  static std::uint64_t object_bytes(std::uint32_t blocks, std::uint32_t threads);

  // Computes what is not there yet. Stream-ordered. REQUIRES: `input` holds size() numbers in
  // memory that kernels can read, the same ones on every call.
  void run(holdfast::Stream& stream, const std::uint32_t* input);

  // Waits for the stream. Throws not_found if not every sum is there: run() again.
  std::vector<std::uint64_t> result(holdfast::Stream& stream) const;
  // Rows of result that are there. Waits for the stream.
  std::uint32_t rows_done(holdfast::Stream& stream) const;

  std::uint32_t blocks() const { return blocks_; }
  std::uint32_t threads() const { return threads_; }
  std::uint64_t size() const { return std::uint64_t{blocks_} * threads_; }

 private:
  PrefixSum(std::uint64_t* rows, std::uint32_t blocks, std::uint32_t threads)
      : rows_(rows), blocks_(blocks), threads_(threads) {}

  // Rows of `threads_` sums: first `blocks_` with each block's own sums, then as many of result.
  std::uint64_t* rows_;
  std::uint32_t blocks_;
  std::uint32_t threads_;
  holdfast::DeviceBuffer<std::uint64_t> totals_;  // of the rows
};

}  // namespace prefix_sum
