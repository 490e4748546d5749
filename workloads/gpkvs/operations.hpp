// The operations of gpKVS as a workload: which keys there are, and what each batch does.
#pragma once

#include <cstdint>
#include <vector>

#include "holdfast/stream.hpp"

namespace gpkvs {

struct OperationsShape {
  std::uint64_t buckets = 0;  // of the table, a power of two
  std::uint64_t keys = 0;     // that operations take
  std::uint64_t steps = 0;
  std::uint64_t gets = 0;  // of a step, before its SETs
  std::uint64_t sets = 0;
  bool zipf = false;  // keys by Zipf's law, exponent 0.99; else all alike
  bool load = false;  // all keys are in the table before the first step
  std::uint64_t seed = 1;
};

// The same for the same shape. No eight keys are joined by a ninth in their bucket, so that no
// operation evicts: a batch that was cut off where there is no log can then be done again.
struct Operations {
  explicit Operations(const OperationsShape& shape);

  OperationsShape shape;
  std::vector<std::uint64_t> keys;
  std::vector<std::uint64_t> loaded;  // values of the keys; empty: nothing is loaded
  // Of all steps; pinned, so that copying them to the device is quick.
  holdfast::PinnedBuffer<std::uint64_t> gets;
  holdfast::PinnedBuffer<std::uint64_t> sets;
  holdfast::PinnedBuffer<std::uint64_t> values;  // of the SETs

  const std::uint64_t* gets_of(std::uint64_t step) const { return gets.data() + step * shape.gets; }
  const std::uint64_t* sets_of(std::uint64_t step) const { return sets.data() + step * shape.sets; }
  const std::uint64_t* values_of(std::uint64_t step) const {
    return values.data() + step * shape.sets;
  }
};

}  // namespace gpkvs
