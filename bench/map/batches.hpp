// Requests as batches in device memory, and whether what a contestant answers can be.
#pragma once

#include <cstdint>
#include <vector>

#include "contestant.hpp"

namespace maps {

// A value says which operation stored it, under which key, and whether it is whole.
struct ValueWords {
  std::uint64_t word[kValueBytes / 8];
};
ValueWords value_of(std::uint64_t key, std::uint64_t operation);
// The key of a number: a permutation of the words, so that no two are alike and none lies where its
// number is. Of 32 bytes the first word is that of 8.
void key_of(std::uint64_t number, std::uint32_t key_bytes, std::uint64_t* words);

struct Answers {
  std::uint64_t absent = 0, present = 0, failed = 0;
  // Values that were returned and are torn, or of another key, or by an operation that is not
  // begun.
  std::uint64_t wrong = 0;
};

// Room for one batch. Thread safety: one thread.
class BatchRoom {
 public:
  BatchRoom(std::uint32_t key_bytes, std::uint32_t most);  // throws no_memory
  // Makes the batch of these requests, whose first is operation number `first` of the run; waits.
  Batch make(const std::vector<Request>& requests, std::uint64_t first);
  // Of the last batch made. Waits.
  Answers check();

 private:
  std::uint32_t key_bytes_;
  std::uint64_t first_ = 0;
  Batch batch_;
  holdfast::PinnedBuffer<std::uint64_t> host_numbers_;
  holdfast::PinnedBuffer<Op> host_ops_;
  holdfast::DeviceBuffer<std::uint64_t> numbers_, keys_;
  holdfast::DeviceBuffer<Op> ops_;
  holdfast::DeviceBuffer<ValueWords> values_, found_;
  holdfast::DeviceBuffer<Outcome> outcomes_;
  holdfast::DeviceBuffer<unsigned long long> tally_;
  holdfast::Stream stream_;
};

}  // namespace maps
