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
// Up to so many are taken in by a kernel; the copy engine is as fast for more, and copies values
// beside what needs the keys alone.
inline constexpr std::uint32_t kMostTakenIn = 1u << 18;
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

// A batch in device memory; a small one may be in pinned memory, too.
struct Batch {
  const std::uint64_t* keys;
  const std::uint64_t* values;  // null: ERASE
  std::uint32_t count;

  Claims claims;            // which operation is the last of its key
  std::uint32_t* claim_of;  // by operation: its key's entry
  std::uint32_t* slots;     // by operation: kNone (not the last), or a slot and kPresentBit

  __host__ __device__ bool erases() const { return values == nullptr; }
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

// All are stream-ordered. `Form`: Index or FingerprintIndex.

// Copies a batch's words, `values` unless that is null: in one launch, where two copies, in two
// streams, would take as long as the batch. REQUIRES: kernels can read them.
void launch_take_in(Stream& stream, const std::uint64_t* keys, const std::uint64_t* values,
                    std::uint64_t* to_keys, std::uint64_t* to_values, std::uint32_t count);

void launch_claim(Stream& stream, const Batch& batch, Outcome* outcome);

// What one launch does: looks the keys up, which adds up the counts, or appends the run and commits
// it, or both at once. The append of an ERASE needs what the lookups found. REQUIRES: claimed.
enum class Step { look, append, both };
template <class Form>
void launch_step(Stream& stream, Step step, const Medium& medium, const Form& index,
                 const Batch& batch, const RunPlan& run, const Work& work);

// What a run that is committed changes in the index.
template <class Form>
void launch_apply(Stream& stream, const Form& index, const Batch& batch, const RunPlan& run,
                  Outcome* outcome);

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
