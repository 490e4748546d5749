// Which of the tasks that the host gives to streams come before which, for the race detector.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "check/race_order.hpp"

namespace holdfast::check::race {

// A task comes behind the one before it in its stream, the one that it waits for, and what the host
// had behind it when it gave the task. What its threads have learnt beside that, from kernels that
// ran at the same time, is told on once they have ended.
class Tasks {
 public:
  explicit Tasks(Order& order) : order_(order) {}

  // The host gives the stream a task. Tasks are numbered from 1, through all streams.
  void give(std::uint32_t stream, std::uint64_t task, std::uint64_t waits_for);
  struct Begin {
    KnownPtr known;            // what comes before all that the task does
    bool follows_all = false;  // all that have begun before it are among that
    bool host_knows = false;   // and the host knows all these
  };
  // REQUIRES: it was given.
  Begin begin(std::uint64_t task);
  // A thread of the task has ended, and knew this.
  void end(std::uint64_t task, const KnownPtr& known);
  // The host has waited for the stream up to a task; 0: all that were given. Stream 0: all streams.
  void waited(std::uint32_t stream, std::uint64_t task);

  // Whether all that the task has done is known.
  bool is_done(const KnownPtr& known, std::uint64_t task) const;
  // Whether the host has waited for all.
  bool all_waited_for() const;

 private:
  struct Given {
    std::uint32_t stream = 0;
    KnownPtr start;
    KnownPtr end;  // more than `start`; null: nothing
  };
  struct Stream {
    std::uint64_t given = 0, begun = 0;  // its last task
  };
  bool knows_begun(const KnownPtr& known) const;
  KnownPtr done(std::uint64_t task);
  KnownPtr with_ends(KnownPtr known);

  Order& order_;
  std::unordered_map<std::uint64_t, Given> tasks_;
  std::unordered_map<std::uint32_t, Stream> streams_;
  std::vector<std::uint64_t> ended_;  // tasks that have an `end`
};

}  // namespace holdfast::check::race
