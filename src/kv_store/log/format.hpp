// The log of records as it is on the medium. docs/format.md describes every byte.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "holdfast/durable.hpp"
#include "holdfast/kernel.hpp"
#include "holdfast/kv_store.hpp"

namespace holdfast::kv::log {

// A pair, or a tombstone, which is told by its place: the last `tombstones` records of a run's
// piece are such. Keys are inverted; a record whose key is 0 says nothing.
struct alignas(16) Record {
  static constexpr const char* kTypeName = "kvs_record";
  std::uint64_t key;
  std::uint64_t value;  // of a tombstone: 0
};

// In front of each piece of a run. A run is what one commit adds: a batch, or what cleaning keeps.
// It has a piece in each segment that it reaches into.
struct RunHeader {
  std::uint64_t number;    // of the run: one more with each
  std::uint64_t batches;   // that are in once it is
  std::uint64_t inserted;  // by all of these
  std::uint64_t updated;
  std::uint64_t digest;  // of all pairs of the store then: the sum of their pair_digest()
  std::uint64_t sum;     // of the piece's records: the sum of their record_sum()
  std::uint32_t records;
  std::uint32_t tombstones;  // of them, the last ones
  std::uint32_t piece;       // this one's number within the run
  std::uint32_t pieces;
  std::uint64_t opening;  // that wrote it: runs of two never have equal headers
  std::uint64_t check;    // header_check(); 0: there is no run
};
inline constexpr std::uint32_t kHeaderRecords = 5;
static_assert(sizeof(RunHeader) == kHeaderRecords * sizeof(Record));

struct Commit {
  static constexpr const char* kTypeName = "kvs_commit";
  std::uint64_t word;      // commit_word() of the last run that counts; 0: there is none
  std::uint64_t openings;  // so far
};

// Which of 64 records of a segment were live when a snapshot of it was taken.
struct alignas(16) SnapshotBits {
  std::uint64_t live;
  std::uint64_t tombs;  // of them
};
inline constexpr std::uint32_t kSnapshotSpan = 64;

// In front of a segment's bits. A snapshot is of a segment that no run reaches into any more.
struct SnapshotHeader {
  std::uint64_t life;    // the check of the segment's first header
  std::uint64_t run;     // the last one when it was taken
  std::uint64_t oldest;  // the first run that has a piece in the segment
  std::uint64_t newest;  // the last one
  std::uint64_t bits;    // the sum of bits_sum()
  std::uint32_t oldest_piece;
  std::uint32_t reserved;  // 0
  std::uint64_t padding;   // 0
  std::uint64_t check;     // snapshot_check(); 0: there is none
};
struct SnapshotWord {
  static constexpr const char* kTypeName = "kvs_snapshot";
  std::uint64_t word;
};
// Of a segment's snapshot.
__host__ __device__ inline std::uint32_t snapshot_words(std::uint32_t segment_records) {
  return static_cast<std::uint32_t>(
      (sizeof(SnapshotHeader) + segment_records / kSnapshotSpan * sizeof(SnapshotBits)) /
      sizeof(SnapshotWord));
}
static_assert(sizeof(SnapshotHeader) == 64);
// Where it begins.
__host__ __device__ inline std::uint64_t snapshot_offset(std::uint32_t segment,
                                                         std::uint32_t segment_records) {
  return std::uint64_t{segment} * snapshot_words(segment_records);
}

inline constexpr std::uint32_t kLeastSegment = 256;  // records: a page, and a block of threads
inline constexpr std::uint32_t kMostSegment = 1u << 16;
inline constexpr std::uint32_t kLeastSegments = 8;
inline constexpr std::uint64_t kMostRecords = std::uint64_t{1} << 31;  // positions have 31 bits
inline constexpr std::uint64_t kMostPairs = std::uint64_t{1} << 29;

// The finalizer of MurmurHash3, as detail::kv_hash, on the host, too.
__host__ __device__ inline std::uint64_t mixed(std::uint64_t word) {
  word = (word ^ word >> 33) * 0xff51afd7ed558ccdull;
  word = (word ^ word >> 33) * 0xc4ceb9fe1a85ec53ull;
  return word ^ word >> 33;
}

// `index`: of the record within its piece. Sums do not depend on the order in which they are made.
__host__ __device__ inline std::uint64_t record_sum(std::uint64_t key, std::uint64_t value,
                                                    std::uint32_t index) {
  const std::uint64_t place = (std::uint64_t{index} + 1) * 0x9e3779b97f4a7c15ull;
  return mixed(mixed(key ^ place) + value * 0xd6e8feb86659fd93ull);
}

// `key` as records have it.
__host__ __device__ inline std::uint64_t pair_digest(std::uint64_t key, std::uint64_t value) {
  return mixed(mixed(key ^ 0x2545f4914f6cdd1dull) + value * 0xd6e8feb86659fd93ull);
}

// Hash of a header's other words. `chain`: the check of the piece in front of it in its segment, 0
// for the first: what an earlier life of the segment left behind the last piece follows nothing.
// `position`: of the header, in records from the log's first. Never 0.
__host__ __device__ inline std::uint64_t header_check(const RunHeader& header, std::uint64_t chain,
                                                      std::uint32_t position) {
  const std::uint64_t words[] = {header.number,
                                 header.batches,
                                 header.inserted,
                                 header.updated,
                                 header.digest,
                                 header.sum,
                                 std::uint64_t{header.tombstones} << 32 | header.records,
                                 std::uint64_t{header.pieces} << 32 | header.piece,
                                 header.opening,
                                 chain,
                                 position};
  std::uint64_t hash = 0x31474f4c56464c48ull;  // "HLFVLOG1"
  for (const std::uint64_t word : words) hash = mixed(hash ^ word) * 0x9e3779b97f4a7c15ull + 1;
  hash = mixed(hash);
  return hash != 0 ? hash : 1;
}

// `index`: of the bits within their segment.
__host__ __device__ inline std::uint64_t bits_sum(const SnapshotBits& bits, std::uint32_t index) {
  return record_sum(bits.live, bits.tombs, index);
}

__host__ __device__ inline std::uint64_t snapshot_check(const SnapshotHeader& header,
                                                        std::uint32_t segment) {
  const std::uint64_t words[] = {header.life, header.run,          header.oldest, header.newest,
                                 header.bits, header.oldest_piece, segment};
  std::uint64_t hash = 0x31504e5356464c48ull;  // "HLFVSNP1"
  for (const std::uint64_t word : words) hash = mixed(hash ^ word) * 0x9e3779b97f4a7c15ull + 1;
  hash = mixed(hash);
  return hash != 0 ? hash : 1;
}

inline constexpr unsigned kCommitCheckBits = 16;
inline constexpr std::uint64_t kMostRuns = (std::uint64_t{1} << (64 - kCommitCheckBits)) - 1;

__host__ __device__ inline std::uint64_t commit_word(std::uint64_t number) {
  if (number == 0) return 0;
  const std::uint64_t check = mixed(number ^ 0x6b76636f6d6d6974ull);
  return number << kCommitCheckBits | (check & ((1u << kCommitCheckBits) - 1));
}
inline std::uint64_t run_of_word(std::uint64_t word) { return word >> kCommitCheckBits; }

// The durable object "kvs" of the layout log.
struct LogParameters {
  static constexpr const char* kTypeName = "key-value log";
  static constexpr std::uint32_t kVersion = 2;
  std::uint64_t capacity;         // pairs
  std::uint32_t max_batch;        // operations
  std::uint32_t segment_records;  // a power of two
  std::uint32_t segments;
  std::uint32_t reserved;  // 0

  std::uint64_t records() const { return std::uint64_t{segments} * segment_records; }
  std::vector<Part> parts() const;  // throws invalid_argument
};
inline constexpr const char* kRecords = "records";
inline constexpr const char* kSnapshots = "snapshots";
inline constexpr const char* kCommit = "commit";
using LogObject = Durable<LogParameters>;

// What a run needs of where it goes. Piece 0 has its header at `first`; the others begin a segment.
struct RunPlan {
  static constexpr std::uint32_t kInline = 7;
  std::uint32_t first = 0;       // position of the first header
  std::uint32_t first_room = 0;  // records of piece 0 at most
  std::uint32_t records = 0;
  std::uint32_t tombstones = 0;
  std::uint32_t pieces = 0;
  std::uint32_t shift = 0;  // log2 of a segment's records
  std::uint32_t inline_segments[kInline] = {};
  const std::uint32_t* segments = nullptr;  // of pieces 1 and up; null: they are inline
  std::uint64_t chain = 0;                  // of piece 0
  RunHeader before{};                       // the counts before it, its number, the opening

  __host__ __device__ std::uint32_t room() const { return (1u << shift) - kHeaderRecords; }
  __device__ std::uint32_t segment_of(std::uint32_t piece) const {
    if (piece == 0) return first >> shift;
    return segments != nullptr ? segments[piece - 1] : inline_segments[piece - 1];
  }
  __device__ std::uint32_t header_of(std::uint32_t piece) const {
    return piece == 0 ? first : segment_of(piece) << shift;
  }
  __host__ __device__ std::uint32_t piece_of(std::uint32_t record) const {
    return record < first_room ? 0 : 1 + (record - first_room) / room();
  }
  // The first record of a piece.
  __host__ __device__ std::uint32_t begin_of(std::uint32_t piece) const {
    return piece == 0 ? 0 : first_room + (piece - 1) * room();
  }
  __host__ __device__ std::uint32_t end_of(std::uint32_t piece) const {
    const std::uint32_t end = piece == 0 ? first_room : begin_of(piece) + room();
    return end < records ? end : records;
  }
  __device__ std::uint32_t position_of(std::uint32_t record) const {
    const std::uint32_t piece = piece_of(record);
    return header_of(piece) + kHeaderRecords + record - begin_of(piece);
  }
};

}  // namespace holdfast::kv::log
