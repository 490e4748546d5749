// The executions of a program that are not equivalent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "check/machine.hpp"
#include "check/schedules.hpp"
#include "check/trace.hpp"

namespace holdfast::check {

// The executions of a program that are not equivalent, one after another. Each is made by running
// the program once more; its trace is in an order in which the host's starts and acknowledgements
// come as late as they can (happens.hpp), for Order with Moments::cuts.
//
// Explored are the schedules of the program's own run. Recovery runs under one.
class Executions {
 public:
  // `machine` outlives it. REQUIRES: no other run of the machine goes on at the same time; others
  // in between are fine.
  Executions(Machine& machine, const Options& options);

  // Runs the program under the next schedule; nothing: there are no more. Throws what the program
  // throws, Errc::livelock where its threads can wait for each other for ever, and unsupported
  // where it does not do the same under the same schedule.
  std::optional<Trace> next();
  bool complete() const;  // all have been made
  double share() const;   // of all, estimated down the tree of schedules; 1 where complete
  std::uint64_t made() const { return schedules_.made(); }
  // Runs that turned out to be equivalent to earlier ones.
  std::uint64_t redundant() const { return schedules_.redundant_runs(); }

  // Names the execution that next() returned last.
  const std::string& name() const { return name_; }
  // The execution of that name. Throws invalid_argument where it names none of this program.
  Trace replay(std::string_view name);

 private:
  Machine& machine_;
  Schedules schedules_;
  std::string name_;
  bool over_ = false;
};

}  // namespace holdfast::check
