// One shot through one store: what is run, and what is measured.
//
// An iteration of the forward pass computes for an interval and saves; one of the backward pass
// restores and computes. A save or a restore blocks the program from its call until the stream has
// done what it queued: only then can the next kernel begin. The device writes each snapshot before
// it is saved, and compares every word of each that was restored, within the interval. So the
// interval is never shorter than asked for, and is longer where that does not suffice.
//
// Source: Score (HPDC '23), sections 5.3.5, 5.4.1 to 5.4.3.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ranks.hpp"
#include "schedule.hpp"
#include "store.hpp"

namespace score {

enum class Compute : std::uint8_t { sleep, kernel };

struct Cell {
  std::string store = "history";  // history, pager, buffers
  Sizes sizes = Sizes::uniform;
  Order order = Order::reverse;
  Hints hints = Hints::all;
  bool wait = false;     // for the flushes, before the backward pass
  bool coupled = false;  // a barrier of the ranks at each iteration
  std::uint64_t interval_us = 10'000;
  std::uint64_t gpu_bytes = std::uint64_t{4} << 30;
  std::uint64_t host_bytes = std::uint64_t{32} << 30;
  std::string text;  // as it was given
};

struct Settings {
  std::uint64_t snapshots = 384;
  std::uint64_t bytes = 128u << 20;  // of a uniform snapshot
  std::uint64_t page_bytes = 2u << 20;
  std::uint64_t seed = 1;
  Compute compute = Compute::sleep;
  std::string disk;  // a folder; snapshots go to a new one in it
};

struct ShotResult {
  std::uint64_t bytes = 0;
  double init_seconds = 0, close_seconds = 0;
  double forward_seconds = 0, backward_seconds = 0;  // whole passes
  double drain_seconds = 0;                          // flush() between them
  std::vector<double> save_seconds;                  // blocking, by iteration
  std::vector<double> restore_seconds;
  std::vector<double> save_call_seconds;  // of which the call
  std::vector<double> restore_call_seconds;
  std::vector<double> restored_bytes;
  std::vector<double> ready;  // prefetch distance, before each restore
  StoreCounts counts;
};

// Throws holdfast::Error: damaged if a restored snapshot is not what was saved; what stores throw.
ShotResult run_shot(const Cell& cell, const Settings& settings, Ranks& ranks);

}  // namespace score
