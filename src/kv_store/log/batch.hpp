// The kernels of a batch: which operations are the last of their keys, where these are in the
// index, the run on the medium, and what it changes in the index.
#pragma once

#include <cstdint>

#include "holdfast/stream.hpp"
#include "kv_store/claims.hpp"
#include "kv_store/log/fingerprint_index.hpp"

namespace holdfast::kv::log {

inline constexpr unsigned kBlock = 256;
// A batch of up to so many operations is one kernel of one block.
inline constexpr std::uint32_t kSmallBatch = 1024;
static_assert(kLeastSegment % kBlock == 0, "a block of the append stores to one piece");

// What the kernels report; in device memory, and zeroed before each batch. Counts are of keys.
struct Outcome {
  unsigned long long inserted;
  unsigned long long updated;
  unsigned long long removed;
  unsigned long long revived;  // of the inserted ones, those whose tombstone is not needed any more
  unsigned long long digest;   // what is added to the store's
  unsigned long long slots;    // that were empty and are not any more
  unsigned long long kept;     // by cleaning: pairs
  unsigned long long kept_tombs;
  unsigned long long gone;      // tombstones that cleaning dropped
  unsigned long long lost;      // keys for which no slot was found: never
  std::uint64_t chain;          // the check of the run's last header
  std::uint32_t reserved_keys;  // operations whose key cannot be stored: nothing is done then
  std::uint32_t committed;      // whether the run is
  std::uint32_t blocks;         // that are through
  std::uint32_t padding;
};

// How a small batch tells the host what it did; in pinned memory.
struct Report {
  Outcome outcome;
  std::uint64_t ticket;  // of the batch: stored last
};

// A batch. Its values may be across the link, and of a small one the keys: kernels read values
// once, in order.
struct Batch {
  const std::uint64_t* keys;
  const std::uint64_t* values;  // null: ERASE
  std::uint32_t count;

  Claims claims;            // which operation is the last of its key
  std::uint32_t* claim_of;  // by operation: its key's entry
  std::uint32_t* slots;     // by operation: kNone (not the last), or a slot and kPresentBit

  // Of SETs and ERASEs together: what each operation is, and the operations in the order of their
  // records, with all ERASEs behind. Null: all are alike, and in their order.
  const KvStore::Op* kinds = nullptr;
  const std::uint32_t* order = nullptr;

  __host__ __device__ bool mixed() const { return kinds != nullptr; }
  __host__ __device__ bool erases() const { return values == nullptr; }  // all of it
  __device__ bool erases(std::uint32_t op) const {
    return mixed() ? kinds[op] == KvStore::Op::erase : erases();
  }
};
inline constexpr std::uint32_t kPresentBit = 0x80000000u;  // there are 2^30 slots at most

// The log on the medium.
struct Medium {
  Record* records;
  Commit* commit;
  PageMarks marks;
};

// Where the sums of a run's pieces are added up; zeroed before each.
struct Work {
  Outcome* outcome;
  unsigned long long* sums;  // by piece
};

// Keys that come into the batch's device memory as they are claimed. `from` may be across the link.
// REQUIRES: each word of `to` is the reserved key, which says that its own is not there yet.
struct KeysIn {
  const std::uint64_t* from;
  std::uint64_t* to;  // null: they are where the batch has them
};

// Of a run whose records need nothing of claims and lookups, the part of its pages that is appended
// beside the claims: every third one in the order of blocks.
struct Ahead {
  std::uint32_t pages = 0;
  std::uint64_t* values = nullptr;  // by operation, in device memory: those of these pages, for
                                    // what comes behind; null: these are where the batch has them

  static constexpr std::uint32_t kOneOf = 3;
  static std::uint32_t part_of(std::uint32_t pages) { return (pages + kOneOf - 1) / kOneOf; }
  // The page that a block has: those ahead are the first ones, and spread over all blocks.
  __device__ std::uint32_t page_of(std::uint32_t block) const {
    if (pages == 0) return block;
    return block % kOneOf == 0 ? block / kOneOf : pages + block - block / kOneOf - 1;
  }
};

// All are stream-ordered. `Form`: Index or FingerprintIndex.

// Which operation of each key is the last one; counts keys that cannot be stored.
void launch_claim(Stream& stream, const KeysIn& keys, const Batch& batch, Outcome* outcome);

// The same of a batch of SETs, and appends the pages ahead. Nothing of these counts before it is
// committed.
void launch_claim_ahead(Stream& stream, const Medium& medium, const KeysIn& keys,
                        const Batch& batch, const RunPlan& run, const Ahead& ahead,
                        const Work& work);

// Fills `order` of a mixed batch, whose first ERASE has the record `sets`. `cursors`: two zeros.
void launch_order(Stream& stream, const KvStore::Op* kinds, std::uint32_t count, std::uint32_t sets,
                  std::uint32_t* order, std::uint32_t* cursors);

// Looks the keys up, which adds up the counts. REQUIRES: claimed.
template <class Form>
void launch_look(Stream& stream, const Form& index, const Batch& batch, Outcome* outcome);

// Appends the run (but what is ahead), which the index learns of meanwhile, and commits it.
// `looks`: looks the keys of a batch of SETs up, too. REQUIRES: claimed, or else looked up.
template <class Form>
void launch_step(Stream& stream, const Medium& medium, const Form& index, const Batch& batch,
                 const RunPlan& run, const Ahead& ahead, bool looks, const Work& work);

// All of it, and `report` has that ticket then. Of the batch keys, values and count are needed
// alone. REQUIRES: kSmallBatch operations at most; `report` is pinned.
template <class Form>
void launch_small(Stream& stream, const Medium& medium, const Form& index, const Batch& batch,
                  const RunPlan& run, Report* report, std::uint64_t ticket);

template <class Form>
void launch_get(Stream& stream, const Form& index, const std::uint64_t* keys, std::uint64_t* values,
                std::uint8_t* found, std::uint32_t count);

// What the index lists of `count` pairs from `first` on.
template <class Form>
void launch_list(Stream& stream, const Form& index, std::uint64_t first, std::uint64_t count,
                 KvPair* pairs);

}  // namespace holdfast::kv::log
