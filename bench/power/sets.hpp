// The SETs that all systems carry out, and what must be there of them afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "holdfast/stream.hpp"

namespace power {

// Of one comparison: batches of SETs of uniformly random keys, of which there are `keys`.
struct Shape {
  std::uint64_t table_bytes = 0;  // of 16-byte pairs; a power of two
  std::uint64_t keys = 0;
  std::uint32_t batch = 0;  // SETs

  std::uint64_t capacity() const { return table_bytes / 16; }
  // A SET by its number: `batch` of them to each batch.
  std::uint64_t key(std::uint64_t number) const;
  static std::uint64_t value(std::uint64_t number) { return number + 1; }
};

// A permutation of the 64-bit words, and its inverse: keys are the images of 0, 1, ... (the
// finalizer of splitmix64; Steele, Lea, Flood: "Fast splittable pseudorandom number generators",
// OOPSLA '14).
std::uint64_t scrambled(std::uint64_t word);
std::uint64_t unscrambled(std::uint64_t word);

// A few batches in device memory, where GPM's kernels take them, and in pinned host memory.
// Thread safety: one thread.
class Inputs {
 public:
  // Throws no_memory.
  Inputs(const Shape& shape, unsigned most);
  // Makes batches first, first + 1, ..., and waits until they are there.
  void prepare(std::uint64_t first, unsigned count);

  const Shape& shape() const { return shape_; }
  unsigned count() const { return count_; }
  std::uint64_t first() const { return first_; }
  const std::uint64_t* device_keys(unsigned batch) const { return keys_.data() + at(batch); }
  const std::uint64_t* device_values(unsigned batch) const { return values_.data() + at(batch); }
  const std::uint64_t* host_keys(unsigned batch) const { return host_keys_.data() + at(batch); }
  const std::uint64_t* host_values(unsigned batch) const { return host_values_.data() + at(batch); }

 private:
  std::size_t at(unsigned batch) const { return std::size_t{batch} * shape_.batch; }

  Shape shape_;
  unsigned most_;
  std::uint64_t first_ = 0;
  unsigned count_ = 0;
  holdfast::PinnedBuffer<std::uint64_t> host_keys_, host_values_;
  holdfast::DeviceBuffer<std::uint64_t> keys_, values_;
  holdfast::Stream stream_;
};

// What batches leave, worked out from their numbers alone.
class Oracle {
 public:
  explicit Oracle(const Shape& shape);
  // Carries out all batches up to, without, `end`.
  void advance(std::uint64_t end);
  std::uint64_t distinct() const { return distinct_; }  // keys that were set
  const Shape& shape() const { return shape_; }

 private:
  friend class Comparison;
  Shape shape_;
  std::uint64_t done_ = 0;  // batches
  std::uint64_t distinct_ = 0;
  std::vector<std::uint64_t> value_;  // by the key's number; 0: never set
};

// What a system holds, pair by pair, against what it must hold.
class Comparison {
 public:
  enum class Losses {
    none,
    // A bucket of eight ways that more than eight keys were set in may have lost the others, and no
    // more: the tables of GPM evict.
    by_eviction,
  };
  Comparison(const Oracle& oracle, std::string system);
  // Throws std::runtime_error if the pair was never set, was set anew since, or comes twice.
  void pair(std::uint64_t key, std::uint64_t value);
  // Throws std::runtime_error if pairs are missing. Returns how many there were.
  std::uint64_t finish(Losses losses) const;

 private:
  std::uint64_t number_of(std::uint64_t key) const;
  void check_buckets() const;
  [[noreturn]] void fail(const std::string& what) const;

  const Oracle& oracle_;
  std::string system_;
  std::vector<bool> seen_;  // by the key's number
  std::uint64_t pairs_ = 0;
};

}  // namespace power
