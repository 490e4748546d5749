// What the log decides on the host, as rules that can be tested: its shape, and what is cleaned.
#pragma once

#include <cstdint>
#include <vector>

#include "holdfast/kv_store.hpp"

namespace holdfast::kv::log {

struct LogParameters;

// Segments that batches leave for cleaning, which so always has room to go on.
inline constexpr std::uint32_t kReservedSegments = 2;

// The shape of a log for these options. Throws invalid_argument: too many pairs or records, or too
// few records for the capacity and a batch.
LogParameters shape_of(const KvStore::Options& options);

// Records that may be live: 95 % of what fits beside the reserve.
std::uint64_t most_live(const LogParameters& shape);

// A segment, as cleaning sees it.
struct SegmentState {
  std::uint32_t live = 0;    // records
  std::uint64_t oldest = 0;  // the first run that has a piece in it
  std::uint64_t newest = 0;  // the last one; 0: it is free
};

// What a piece of cleaning takes on.
struct Victims {
  std::vector<std::uint32_t> segments;
  std::uint64_t live = 0;  // records that it has to copy
};

// Chooses by benefit over cost: (1 - u) * age / (1 + u), u being the part of a segment that is live
// (Rosenblum and Ousterhout, 1991). Takes segments until `wanted` records come free, or until what
// is live in them exceeds `most` records; at least one, if there is one with anything to gain.
// `tail`: the segment that is written to, never chosen. `oldest_first`: the oldest one is taken
// whatever it has, for its tombstones.
Victims choose_victims(const std::vector<SegmentState>& segments, std::uint32_t tail,
                       std::uint32_t segment_records, std::uint64_t run, std::uint64_t wanted,
                       std::uint64_t most, bool oldest_first);

// The segment that is not free, is not the tail, and begins with the oldest run; ~0u if there is
// none. Segments are filled one after another, so that none has a record that is older than one of
// its tombstones, but those of the same run.
std::uint32_t oldest_of(const std::vector<SegmentState>& segments, std::uint32_t tail);

}  // namespace holdfast::kv::log
