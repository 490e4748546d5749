// The executions of a program that are not equivalent, one after another.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "check/machine.hpp"
#include "check/order.hpp"
#include "check/schedules.hpp"

namespace holdfast::check {

// A state of Options::replay: the execution ("s7@", "x102@"; empty: that of Options::schedule), the
// model ("epoch@"; nothing: sbrp, or the one that was asked for), and the state under it.
struct ReplayName {
  std::string execution;
  std::optional<Model> model;
  std::string state;
};
ReplayName parse_replay(const std::string& text);

// Each is made by running the program once more. The first runs as kernels do in any test, with the
// seed of Options::schedule. Where it might have gone another way, all schedules of the program's
// own run are explored behind it (Schedules), up to Options::schedules of them. The trace of such a
// one is in an order in which the host's starts and acknowledgements come as late as they can
// (happens.hpp), for Order with moments().
class Executions {
 public:
  // `machine` outlives it. REQUIRES: no other run of the machine goes on at the same time; others
  // in between are fine.
  Executions(Machine& machine, const Options& options);
  // Is called before each run; not all of them are returned by next().
  void before_run(std::function<void()> call) { before_run_ = std::move(call); }

  // Runs the program under the next schedule and records it; nothing: there are no more, or no more
  // are wanted. Throws what the program's run() throws, and Errc::livelock where its threads can
  // wait for each other for ever. Where the program does not do the same under the same schedule,
  // or cannot be explored, there are no more, and complete() is false.
  std::optional<Trace> next();
  // The execution that name() named. Throws invalid_argument where the text names none.
  Trace again(const std::string& name);

  // The last execution, as a prefix of the names of its states; empty for schedule 0.
  std::string name() const;
  // Which moments of the last execution are to be looked at.
  Moments moments() const { return explored_ ? Moments::cuts : Moments::prefixes; }
  bool complete() const;  // all have been made
  double share() const;   // of all, estimated down the tree of schedules; 0: unknown
  // The first is equivalent to one of those that are explored, so it does not count beside them;
  // where time decided which one it was, it is left out.
  std::uint64_t made() const;

 private:
  Trace first();

  Machine& machine_;
  std::function<void()> before_run_;
  Schedules schedules_;
  std::uint64_t seed_;
  std::uint64_t most_;
  std::string name_;            // of the last one, without its letter
  std::optional<Trace> spare_;  // the first, where it will do if no other can be had
  bool begun_ = false;          // it has been made
  bool explored_ = false;       // the last one is not the first
  bool over_ = false;
  bool given_up_ = false;
};

}  // namespace holdfast::check
