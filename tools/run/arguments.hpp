// The command line of holdfast-run.
#pragma once

#include <cstdint>
#include <string>

#include "workload/workload.hpp"

namespace holdfast_run {

struct Arguments {
  bool list = false;
  bool remove = false;  // what a killed run left at `region`
  std::string name;
  workload::Settings settings;
  std::string region;  // empty: one of its own, removed afterwards
  unsigned files = 0;
  unsigned cpu_threads = 0;
  bool direct_io = true;
  holdfast::testing::MediumModel medium;
  bool verify = true;
  std::string expect;             // a verified run's `state`, which takes the oracle's place
  std::uint64_t die_in_step = 0;  // counted from 1: before what it did is committed; 0: in none
  bool last_commit = false;       // of the region; what a crash left since is set aside
};

extern const char* const kUsage;

// Throws Error(invalid_argument), naming the option and what it takes.
Arguments parse(int argc, const char* const* argv);

}  // namespace holdfast_run
