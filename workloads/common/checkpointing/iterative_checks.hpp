// What the simple checkpointing workloads are all held to.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "holdfast/stream.hpp"
#include "support/scratch.hpp"
#include "workload_checks.hpp"

namespace checkpointing_checks {

using workload::Mode;
using workload_checks::error_with;

// Whole and step by step, in every mode: the oracle agrees, and the digest is that of the mode's
// kind of computation, kernels or OpenMP.
inline void expect_every_mode(const workload::Info& info, workload::Settings settings) {
  std::optional<workload::Digest> by_kernels;
  for (const Mode mode : workload::all_modes()) {
    settings.mode = mode;
    const workload_checks::Run whole = workload_checks::run_whole(info, settings);
    EXPECT_EQ(whole.wrong, "") << to_string(mode);
    const workload_checks::Run steps = workload_checks::run_step_by_step(info, settings);
    EXPECT_EQ(steps.wrong, "") << to_string(mode);
    EXPECT_EQ(steps.digest, whole.digest) << to_string(mode);
    if (mode == Mode::cpu) continue;
    EXPECT_EQ(whole.digest, by_kernels.value_or(whole.digest)) << to_string(mode);
    by_kernels = whole.digest;
  }
}

// By the copy engine and by kernels: the same end, and what is refused.
inline void expect_either_copier(const workload::Info& info, workload::Settings settings) {
  for (const Mode mode : {Mode::gpm, Mode::eadr, Mode::ndp, Mode::cap_mm}) {
    settings.mode = mode;
    settings.options.erase("checkpoint");
    const workload_checks::Run usual = workload_checks::run_step_by_step(info, settings);
    for (const char* const by : {"kernels", "engine", "automatic"}) {
      settings.options["checkpoint"] = by;
      const workload_checks::Run run = workload_checks::run_step_by_step(info, settings);
      EXPECT_EQ(run.wrong, "") << to_string(mode) << " by " << by;
      EXPECT_EQ(run.digest, usual.digest) << to_string(mode) << " by " << by;
    }
  }
  workload_checks::expect_refused(info, {{"checkpoint", "hand"}}, {"checkpoint", "give kernels"});
}

// On the CPU backend alone, since a CUDA context does not outlive a fork().
inline void expect_kills_survived(const workload::Info& info, workload::Settings settings) {
  if (std::string(holdfast::backend::name()) != "cpu") GTEST_SKIP() << "needs the CPU backend";
  const std::uint64_t seed = holdfast::test::test_seed();
  for (const Mode mode :
       {Mode::gpm, Mode::ndp, Mode::cap_fs, Mode::cap_mm, Mode::gpufs, Mode::cpu}) {
    SCOPED_TRACE(to_string(mode));
    settings.mode = mode;
    workload_checks::expect_kills_survived(info, settings, 12, seed);
  }
}

inline std::string data_folder() {
  const char* const folder = std::getenv("HOLDFAST_DATA");
  return folder != nullptr ? folder : "";
}

class Files : public holdfast::test::Scratch {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    holdfast::test::write_file(path(name), {text.begin(), text.end()});
    return path(name);
  }
};

}  // namespace checkpointing_checks
