// Checkpoints of volatile buffers, in every mode, for the checkpointing workloads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "workload/backing.hpp"
#include "workload/workload.hpp"

namespace workload {

// Device memory (mode cpu: host memory) that a checkpoint takes in.
struct Buffer {
  std::string name;
  void* data = nullptr;
  std::uint64_t bytes = 0;
};

// What copies a checkpoint to the medium, in the modes whose kernels store there (gpm, eadr, ndp).
// Elsewhere it is the mode's own way.
enum class CopiedBy {
  kernels,    // as in the paper
  engine,     // the copy engine; in mode ndp that is cap_mm
  automatic,  // as a holdfast::Checkpoint has it: kernels below 4 MiB; in mode ndp kernels
};
// Option "checkpoint" of a workload: kernels, engine or automatic. Throws invalid_argument.
CopiedBy copied_by_option(const Settings& settings);
// What Info::options says of it.
inline constexpr const char* kCopiedByWords =
    "kernels (default), engine (the copy engine) or automatic (kernels below 4 MiB): what copies "
    "checkpoints to the medium, in the modes gpm, eadr and ndp";
// What Workload::facts() says, under "checkpoint": kernels, engine, automatic, or "as the mode has
// it".
std::string copied_by_fact(Mode mode, CopiedBy by);

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
  static std::unique_ptr<Saver> make(Backing& backing, std::vector<Buffer> buffers,
                                     CopiedBy by = CopiedBy::kernels);
  // What it takes of the backing's capacity.
  static std::uint64_t medium_bytes(std::uint64_t buffer_bytes, std::uint64_t buffers);
};

}  // namespace workload
