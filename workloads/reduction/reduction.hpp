// A sum of many numbers that survives a crash at any moment and resumes from the sums that are
// durable, by persist releases and acquires. Source: SBRP (ASPLOS '23) sections 4 and 5.3,
// Figures 2 and 3.
#pragma once

#include <cstdint>
#include <vector>

#include "holdfast/persist.hpp"
#include "holdfast/region.hpp"
#include "holdfast/stream.hpp"

namespace reduction {

inline constexpr std::uint32_t kMaxBlocks = 1u << 20;
inline constexpr std::uint32_t kMaxThreads = 1024;
inline constexpr std::uint64_t kMaxNumbers = std::uint64_t{1} << 32;

// Every thread adds up its share of the numbers; the threads of a block then halve in number, each
// adding the sum of one that ends. What a thread had when it ended is a partial sum and persistent;
// that of a block's thread 0 is the block's sum.
//
// Invariants, after any crash: where a block's sum is there, all of its partial sums are; where the
// total is there, all partial sums of all blocks are.
//
// Thread safety: one thread at a time; the region outlives it.
class Reduction {
 public:
  // Makes the objects "reduction.total" and "reduction.partial". Throws invalid_argument (a shape
  // of nothing, or past the limits above), already_exists, no_space.
  static Reduction create(holdfast::Region& region, std::uint32_t blocks, std::uint32_t threads);
  // Throws not_found, invalid_argument (other objects of these names).
  static Reduction open(holdfast::Region& region);

  // Computes what is not there yet. Stream-ordered. `input`: `count` numbers in memory that kernels
  // can read, the same ones on every call. Throws invalid_argument: count over kMaxNumbers.
  //
  // `release` says whom the release of a block's sum speaks to. Anything narrower than the device
  // is the scoped persistency bug of SBRP, section 5.3: the total may then survive a crash that
  // partial sums do not. It is here to be found.
  void run(holdfast::Stream& stream, const std::uint32_t* input, std::uint64_t count,
           holdfast::Scope release = holdfast::Scope::device);

  // These wait for the stream.
  bool done(holdfast::Stream& stream) const;
  std::uint64_t total(holdfast::Stream& stream) const;  // throws not_found: run() again
  // One for each thread, block by block, as encode() stores them.
  std::vector<std::uint64_t> partial_sums(holdfast::Stream& stream) const;

  // A sum is stored as one more than it is, so that no sum looks like zeroed memory. It cannot
  // overflow: 2^32 numbers of 32 bits stay below 2^64 - 1.
  static constexpr std::uint64_t encode(std::uint64_t sum) { return sum + 1; }
  static constexpr std::uint64_t decode(std::uint64_t stored) { return stored - 1; }

  std::uint32_t blocks() const { return blocks_; }
  std::uint32_t threads() const { return threads_; }

 private:
  Reduction(std::uint64_t* total, std::uint64_t* partial, std::uint32_t blocks,
            std::uint32_t threads);

  std::uint64_t* total_;    // persistent
  std::uint64_t* partial_;  // persistent: a row of `threads_` for every block
  std::uint32_t blocks_;
  std::uint32_t threads_;
  // Volatile: what threads release (a row for every block, then one for each block's sum), and how
  // many blocks have come to their end.
  holdfast::DeviceBuffer<std::uint32_t> flags_;
};

}  // namespace reduction
