// A shot over a catalog, by a clock that is counted: checkpoints are saved one behind the other and
// restored in an order, lanes move bytes at given rates, and what is counted is the bytes that come
// from the disk. The code that decides is the code that runs; there are no threads, and two runs
// are alike.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "history/catalog.hpp"

namespace holdfast::history::simulation {

enum class Hints { none, next, all };

struct Shot {
  std::vector<std::uint64_t> bytes;  // by step; saved in the order of the steps
  std::vector<Step> restores;        // each step once
  Hints hints = Hints::all;          // all: from the start; next: one, as a restore begins
  bool hints_late = false;           // all, but behind the last save
  bool waits = false;                // for all to be flushed; if not, what is restored is discarded
  std::uint64_t gpu = 0, host = 0;   // bytes of the caches
  double interval = 2.5e-3;          // seconds between two saves, or restores
  double link = 55e9;                // bytes a second, either way
  double disk_read = 1.46e9, disk_write = 2.1e9;
};

struct Counts {
  std::uint64_t read = 0;           // bytes from the disk
  std::uint64_t written = 0;        // to it
  double save_wait = 0, drain = 0;  // seconds
  double backward = 0, restore_wait = 0;
  std::array<std::uint64_t, 3> restored_from{};  // checkpoints, by tier
};

Counts simulate(const Shot& shot);

// What nobody can do without: bytes that caches of this size do not hold of the shot.
std::uint64_t least_read(const Shot& shot);

}  // namespace holdfast::history::simulation
