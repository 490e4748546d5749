// Runs a workload's step and says what it took, waits for the medium included.
#pragma once

#include <cstdint>

#include "workload/workload.hpp"

namespace workload {

struct StepCost {
  double seconds = 0;
  double persist_seconds = 0;         // of these: in publish(), Savers, and waiting for the medium
  double medium_seconds = 0;          // of these: waiting because of the backing's medium model
  std::uint64_t bytes = 0;            // that reached the medium
  std::uint64_t streamed_bytes = 0;   // of these: Workload::streamed_bytes()
  std::uint64_t unchanged_bytes = 0;  // and: Workload::unchanged_bytes()
};

// Runs step `number` and waits for its stream. What kernels (mode cpu: host threads) stored to the
// medium themselves counts as written from the step's begin on, and falls as `access` says, but for
// what the workload says is streamed, and costs a medium nothing where it is unchanged: the step
// returns once the backing's medium has taken it, at once if it was computing for longer.
StepCost run_step(Workload& work, Backing& backing, holdfast::testing::Access access,
                  std::uint64_t number);

}  // namespace workload
