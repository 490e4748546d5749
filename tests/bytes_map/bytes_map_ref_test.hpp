// A kernel that makes operations of a map of byte strings by its ref, and writes down what they
// were answered.
#pragma once

#include <cstdint>

#include "holdfast/bytes_map.hpp"

namespace holdfast::test {

enum class BytesCall : std::uint32_t { insert, insert_or_assign, erase, find, kinds };

// What a group does, and what it met. The moments are of one clock.
struct BytesStep {
  BytesCall call;
  std::uint32_t key;    // which one
  std::uint32_t value;  // which one it sets
  MapStatus status;     // of those that have one
  BytesFound found;     // of find() ...
  BytesFound read;      // ... and of read() behind it
  std::uint32_t bytes;  // of the value that was read
  unsigned long long begun;
  unsigned long long ended;
};

// All in memory of the device. A group makes its steps one after the other, beside the others.
struct BytesSteps {
  BytesStep* steps;  // of group after group
  std::uint32_t each;
  std::uint32_t groups;
  const ByteSpan* keys;
  const ByteSpan* values;
  std::byte* out;            // by step: what was read
  std::uint32_t out_stride;  // of the longest value at least
  unsigned long long* clock;
};
void make_steps(Stream& stream, const BytesMapRef& ref, const BytesSteps& steps,
                unsigned groups_of_block);

}  // namespace holdfast::test
