// Where a GPU may do what no sequentially consistent execution does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "check/trace.hpp"

namespace holdfast::check {

// A critical cycle (Shasha and Snir, TOPLAS '88): strong accesses of one thread that nothing keeps
// in order, and those of other threads that could tell. Ops are indices into Trace::ops.
struct WeakReason {
  std::uint32_t first = 0, second = 0;  // of one thread, to two variables
  std::vector<std::uint32_t> others;    // of the others, from second's variable to first's
  bool gave_up = false;  // too many accesses to look for cycles; the rest is unset then
};

// docs/model.md, "Weak memory": empty if PTX's axioms allow the strong accesses (atomics, volatile
// ones, prel, pacq) of `trace` no outcome that is not sequentially consistent, provided that plain
// accesses do not race (race.hpp). Sound, not exact: a cycle may be one that no execution shows. At
// most 16 reasons, each pair of places once. Kernels are looked at one by one where streams or the
// host's waits order them.
std::vector<WeakReason> find_weak(const Trace& trace);

// "two accesses of block 0, thread 1 ... may be seen out of order by ...", without places.
std::string to_string(const WeakReason& reason, const Trace& trace);

}  // namespace holdfast::check
