// What every workload's tests do: whole runs in each mode, and runs that are killed and resumed.
#pragma once

#include <cstdint>
#include <string>

#include "workload/workload.hpp"

namespace workload_checks {

struct Run {
  std::uint64_t digest = 0;
  std::string wrong;  // what verify() said
  std::uint64_t steps = 0;
};

// Runs all steps in this process, in a scratch region that is removed afterwards.
Run run_whole(const workload::Info& info, const workload::Settings& settings);

// The same, but the workload and its backing are let go of, as a crash would, after every step, and
// resumed.
Run run_step_by_step(const workload::Info& info, const workload::Settings& settings);

// CPU backend: runs in forked processes, each of them killed with SIGKILL at a random time, until
// `kills` landed in a running step or recovery; then lets one finish. Prints its seed. Checks that
// every finished run ends as run_whole() does, by EXPECT.
void expect_kills_survived(const workload::Info& info, const workload::Settings& settings,
                           unsigned kills, std::uint64_t seed);

}  // namespace workload_checks
