// What a log holds, from the headers of its runs. Host only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "holdfast/region.hpp"
#include "holdfast/stream.hpp"
#include "kv_store/log/format.hpp"
#include "kv_store/log/rules.hpp"

namespace holdfast::kv::log {

// A piece of a run that is committed, or a whole segment, as its snapshot has it: the header then
// has the snapshot's run, the segment's records, and the sum of the bits.
struct Piece {
  std::uint32_t first = 0;  // position of its first record
  std::uint32_t rank = 0;   // records of the log that are older
  bool snapshot = false;
  RunHeader header{};
};

struct Survey {
  std::uint64_t run = 0;  // the last that is committed; 0: there is none
  std::uint64_t openings = 0;
  RunHeader last{};           // of its last piece; zeroes where there is none
  std::vector<Piece> pieces;  // by position
  std::vector<SegmentState> segments;
  std::uint32_t tail = ~0u;         // the segment that is written to; ~0u: none is
  std::uint32_t tail_used = 0;      // records of it
  std::vector<std::uint32_t> torn;  // positions of headers of a run that was not committed
  std::uint64_t torn_records = 0;
  std::vector<std::uint64_t> taken;  // by segment: the run of its snapshot; 0: it has none
  std::uint32_t snapshots = 0;       // that count
  std::string suspect;               // what may be damaged, if anything has to be; in words
};

// Reads the commit word and the headers; of segments whose snapshot counts, the first one alone.
// `snapshots`: null to go by none. `where`: for messages. Throws damaged, naming the run: the word
// or a header is none that a store writes, or the last run does not end.
Survey survey_log(const Region& region, Stream& stream, const LogParameters& shape,
                  const Record* records, const Commit* commit, const SnapshotWord* snapshots,
                  const std::string& where);

}  // namespace holdfast::kv::log
