// Copying and summing of buffers, and the store that makes a copy the current one.
#pragma once

#include <cstdint>

#include "checkpoint/layout.hpp"
#include "holdfast/page_marks.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::checkpoint {

// Bytes [from, from + bytes), whose place in the copy is `offset`. They are summed, and copied to
// `to` unless that is null. Pages of `marked`, unless null, are noted as changed.
struct Part {
  const unsigned char* from;
  unsigned char* to;
  const unsigned char* marked;
  std::uint64_t bytes;
  std::uint64_t offset;
  std::uint64_t first_chunk;  // chunks of the parts before it
};
// What a block copies at a time: four steps of its threads. Of a small group's bytes larger chunks
// would leave most of a device idle, and a block wait for itself. On the CPU a block is what costs.
#if defined(HOLDFAST_BACKEND_CPU)
inline constexpr std::uint64_t kChunkBytes = 64 << 10;
#else
inline constexpr std::uint64_t kChunkBytes = 16 << 10;
#endif
inline std::uint64_t chunks_of(std::uint64_t bytes) {
  return (bytes + kChunkBytes - 1) / kChunkBytes;
}

// In device memory, zeroed. One for each sequence of launches that follow one another.
struct Tally {
  std::uint64_t sum;
  unsigned blocks_done;
  unsigned reserved;
};

// The slot that is stored behind everything else.
struct Publication {
  Slot* slot = nullptr;  // null: nothing is published
  std::uint64_t tag = 0;
  std::uint64_t sequence = 0;
};

// Copies and sums parts, durably where `to` is of the medium, and publishes. The tally's sum is
// left there if nothing is published, and zeroed else.
void copy_and_sum(Stream& stream, const Part* parts, std::uint32_t count, std::uint64_t chunks,
                  Tally* tally, const Publication& publication, const PageMarks& marks);
// Publishes what earlier launches summed.
void publish(Stream& stream, Tally* tally, const Publication& publication, const PageMarks& marks);
// Notes that [address, address + bytes) changed.
void mark_pages(Stream& stream, const unsigned char* address, std::uint64_t bytes,
                const PageMarks& marks);

// The check word of a slot.
std::uint64_t slot_check(std::uint64_t tag, std::uint64_t data, std::uint64_t sequence);

}  // namespace holdfast::checkpoint
