// What the log decides on the host, as rules that can be tested: its shape, and what is cleaned.
#pragma once

#include <atomic>
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

// Device memory beyond so many bytes counts as not free. Tests set it, to have a small device.
extern std::atomic<std::uint64_t> g_most_device_memory;

// What an index takes.
struct IndexNeeds {
  std::uint64_t pairs = 0;    // that it is for, as messages say it
  std::uint64_t records = 0;  // the same
  std::uint64_t whole = 0;    // bytes of device memory
  std::uint64_t fingerprints = 0;
};

// The form of an index where `free` bytes of device memory are. Throws no_memory: the one that is
// asked for does not fit, or with Index::automatic neither does.
KvStore::Index choose_index(KvStore::Index asked, const IndexNeeds& needs, std::uint64_t free);

// Records that may be live: 95 % of what fits beside the reserve.
std::uint64_t most_live(const LogParameters& shape);

// A segment, as cleaning sees it.
struct SegmentState {
  std::uint32_t live = 0;          // records
  std::uint64_t oldest = 0;        // the first run that has a piece in it
  std::uint64_t newest = 0;        // the last one; 0: it is free
  std::uint32_t oldest_piece = 0;  // the first run's piece, of which a run has many
  std::uint32_t spare = 0;         // records that can still be written to it: of the tail
  std::uint32_t tombstones = 0;    // of the live records
};

// Which segments are cleaned first.
enum class Choice {
  benefit,  // over cost: (1 - u) * age / (1 + u), u being the part of a segment that is live
            // (Rosenblum and Ousterhout, 1991)
  oldest,   // the oldest one whatever it has, for its tombstones; then by benefit
  least,    // what has the least that is live, the tail too: where room is short, each piece of
            // cleaning has to gain some
};

// What a piece of cleaning takes on.
struct Victims {
  std::vector<std::uint32_t> segments;
  std::uint64_t live = 0;  // records that it has to copy
};

// Takes segments until `wanted` records come free, or until what is live in them exceeds `most`
// records; at least one, if there is one with anything to gain. `tail`: the segment that is written
// to, which Choice::least alone takes, and only with something to copy: the last run has to stay.
Victims choose_victims(const std::vector<SegmentState>& segments, std::uint32_t tail,
                       std::uint32_t segment_records, std::uint64_t run, std::uint64_t wanted,
                       std::uint64_t most, Choice choice);

bool contains(const Victims& victims, std::uint32_t segment);

// The segment that is not free, is not the tail, and begins with the oldest piece of a run; ~0u if
// there is none. Segments are filled one after another, piece by piece, so that no other one has a
// record that is older than one of its tombstones.
std::uint32_t oldest_of(const std::vector<SegmentState>& segments, std::uint32_t tail);

}  // namespace holdfast::kv::log
