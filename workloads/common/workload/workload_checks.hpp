// What every workload's tests do: whole runs in each mode, and runs that are killed and resumed.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "holdfast/error.hpp"
#include "workload/workload.hpp"

namespace workload_checks {

struct Run {
  workload::Digest digest;
  std::string wrong;  // what verify() said
  std::uint64_t steps = 0;
};

// Runs all steps in this process, in a scratch region that is removed afterwards.
Run run_whole(const workload::Info& info, const workload::Settings& settings);

// The same, but the workload and its backing are let go of, as a crash would, after every step, and
// resumed.
Run run_step_by_step(const workload::Info& info, const workload::Settings& settings);

// CPU backend: runs in forked processes, each of them killed with SIGKILL at a random time, until
// `kills`, or the share of them that is asked for, landed in a running step or recovery; then lets
// one finish. Prints its seed. Checks that every finished run ends as run_whole() does, by EXPECT.
void expect_kills_survived(const workload::Info& info, const workload::Settings& settings,
                           unsigned kills, std::uint64_t seed);

// What info.make() throws of these options; all of `words` must be in its message.
holdfast::Errc error_with(const workload::Info& info,
                          const std::map<std::string, std::string>& options,
                          const std::vector<std::string>& words);

// Checks that these options are refused as bad, with all of `words` in the message, by EXPECT.
void expect_refused(const workload::Info& info, const std::map<std::string, std::string>& options,
                    const std::vector<std::string>& words);

// Names of tests that take a mode.
std::string mode_name(const ::testing::TestParamInfo<workload::Mode>& mode);

}  // namespace workload_checks
