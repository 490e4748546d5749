// A batch on its way to the CPU and its answers on the way back, by kernels that store to pinned
// memory and load from it: no more crosses the link than an operation needs.
#pragma once

#include <cstdint>
#include <memory>

#include "contestant.hpp"
#include "holdfast/stream.hpp"

namespace maps {

// In pinned memory, by position.
struct RequestsAtCpu {
  Op* ops;
  std::byte* keys;
  std::byte* values;  // where the operation takes one
  std::byte* found;   // to be filled in, where it returns one
  Outcome* outcomes;
};

// Thread safety: one thread.
class LinkCopies {
 public:
  LinkCopies(std::uint32_t key_bytes, std::uint32_t most, bool ordered);  // throws no_memory
  ~LinkCopies();

  // Positions are those of the batch or, ordered, go by the upper half of the keys' hashes: equal
  // keys are neighbours, in the batch's order. Waits. Adds to `order` and `to_cpu` of the phases.
  const RequestsAtCpu& to_cpu(const Batch& batch, Phases& phases);
  // The answers to the same batch. Waits.
  void to_gpu(const Batch& batch, Phases& phases);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace maps
