// The table as kernels see it, and what passes between the host and the kernels of a batch.
#pragma once

#include <cstdint>

#include "holdfast/kernel.hpp"
#include "holdfast/kv_store.hpp"
#include "holdfast/undo_log.hpp"
#include "kv_store/claims.hpp"

namespace holdfast::kv {

inline constexpr std::uint32_t kNone = 0xffffffffu;
inline constexpr std::uint64_t kReservedKey = KvStore::kReservedKey;
inline constexpr unsigned kWays = detail::kKvWays;

// A way of a bucket. Keys are stored inverted, so that zeroed memory is an empty table.
using Pair = detail::KvPair;

struct alignas(128) Bucket {
  static constexpr const char* kTypeName = "kvs_bucket";
  Pair ways[kWays];
};

struct Counters {
  static constexpr const char* kTypeName = "kvs_counters";
  std::uint64_t records;
  std::uint64_t batches;
  std::uint64_t inserted;
  std::uint64_t updated;
  std::uint64_t evicted;
  std::uint64_t removed;
};

// What a SET or an ERASE overwrites.
struct LogEntry {
  std::uint32_t bucket;
  std::uint32_t way;
  std::uint64_t key;
  std::uint64_t value;
};

// A way that a batch overwrites, and the operation whose pair goes there.
struct alignas(16) Change {
  std::uint32_t bucket = kNone;  // kNone: nothing changes
  std::uint32_t way = 0;
  std::uint32_t op = 0;
  std::uint32_t alone = 0;  // whether nothing else in its line changes
  Pair before{0, 0};
};

struct Table {
  Bucket* buckets;
  std::uint64_t mask;  // buckets - 1
  PageMarks marks;
  Bucket* copy = nullptr;  // of the buckets, in device memory; null: there is none

  std::uint64_t bytes() const { return (mask + 1) * sizeof(Bucket); }
  // Where kernels read.
  __host__ __device__ const Bucket* readable() const { return copy != nullptr ? copy : buckets; }

  __device__ Pair* place_of(const Change& change) const {
    return &buckets[change.bucket].ways[change.way];
  }

  // For lookups.
  __host__ __device__ detail::KvView view() const {
    return {detail::KvLayout::buckets, readable()->ways, mask};
  }

  __device__ static std::uint64_t hash(std::uint64_t key) { return detail::kv_hash(key); }
  __device__ std::uint32_t bucket_of(std::uint64_t key) const {
    return static_cast<std::uint32_t>(hash(key) & mask);
  }
};

// A batch in device memory. A position is a place in the order in which threads take operations:
// operation op[p] goes to bucket[p]. Operations of one bucket form a chain, and the position of one
// of them leads it, so that a bucket is changed by one group of threads alone.
struct Batch {
  const std::uint64_t* keys;    // by operation
  const std::uint64_t* values;  // by operation; null for ERASE
  const std::uint32_t* op;
  const std::uint32_t* bucket;

  // Links of chains, one behind the other: a chain's in the order of the batch.
  const std::uint32_t* chain_op;
  const std::uint32_t* chain_bucket;
  const std::uint32_t* starts;  // by position: its chain's first link; kNone: it leads none
  // By link: one behind it in its chain, with links of its own key alone up to there, or itself.
  // Where that is itself, the next link is of another key or chain.
  const std::uint32_t* skips;
  Change* changes;  // by position

  std::uint32_t count;
  bool ordered;  // by bucket: positions are the links' places
  // Of SETs and ERASEs together, by operation: what it is, and which is the last of its key. Null:
  // all are alike.
  const KvStore::Op* kinds = nullptr;
  const std::uint32_t* claim_of = nullptr;
  Claims claims{};

  __host__ __device__ bool mixed() const { return kinds != nullptr; }
  __host__ __device__ bool erases() const { return values == nullptr; }  // all of it
  __device__ bool erases(std::uint32_t of) const {
    return mixed() ? kinds[of] == KvStore::Op::erase : erases();
  }
  __device__ std::uint32_t position_of(std::uint32_t link) const {
    return ordered ? link : chain_op[link];
  }
};

// What the kernels of a batch report; in device memory.
struct Outcome {
  unsigned long long inserted;
  unsigned long long updated;
  unsigned long long evicted;
  unsigned long long removed;
  std::uint32_t reserved_keys;  // operations whose key cannot be stored: nothing is changed then
};

}  // namespace holdfast::kv
