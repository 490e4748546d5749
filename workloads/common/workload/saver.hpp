// Checkpoints of volatile buffers, in every mode, for the checkpointing workloads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "workload/backing.hpp"

namespace workload {

// Device memory (mode cpu: host memory) that a checkpoint takes in.
struct Buffer {
  std::string name;
  void* data = nullptr;
  std::uint64_t bytes = 0;
};

// Two copies on the medium, the switch between them last (GPM section 5.3).
//
// Invariant, after any crash: restore() loads the last save that returned, or the one that was
// being made, whole.
class Saver {
 public:
  virtual ~Saver() = default;
  // Saves the buffers as the backing's stream leaves them. Durable on return. `step` is stored
  // with them: steps that are done, 1 or more.
  virtual void save(std::uint64_t step) = 0;
  // Loads the last save and returns its step; 0, with buffers untouched, where there is none.
  virtual std::uint64_t restore() = 0;

  // REQUIRES: the backing outlives it; the same buffers, in names and sizes, as before the crash.
  static std::unique_ptr<Saver> make(Backing& backing, std::vector<Buffer> buffers);
  // What it takes of the backing's capacity.
  static std::uint64_t medium_bytes(std::uint64_t buffer_bytes, std::uint64_t buffers);
};

}  // namespace workload
