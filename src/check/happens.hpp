// What happens before what in a recorded execution, as far as any order of its steps that is
// equivalent must keep it.
//
// Two executions are equivalent if one comes from the other by swapping neighbours of different
// threads that are independent. Dependent are: accesses by which threads may tell each other
// something (atomics, volatile accesses, releases and acquires) to common bytes, at least one of
// them a write; arrivals at a barrier and what comes behind it; a task that the host gives to a
// stream, the one before it there, and the host's waiting. Plain accesses need no mention: where
// they conflict and none of this orders them, the program has a race, and is reported as racy.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "check/bitset.hpp"
#include "check/trace.hpp"

namespace holdfast::check {

// What comes before some moment of a thread.
struct Past {
  Bitset durable;           // writes that someone has waited for
  std::uint32_t marks = 0;  // how many of the host's starts and acknowledgements
  void join(const Past& other) {
    durable |= other.durable;
    if (other.marks > marks) marks = other.marks;
  }
};

class Happens {
 public:
  // `trace` outlives it. Its operations come in an order in which they may have been made.
  explicit Happens(const Trace& trace);

  // The next operation: what comes before it. The caller adds to it what it does itself, and then
  // calls done().
  Past& enter(const Op& op);
  void done(const Op& op);

 private:
  struct Location {
    Past written, read;
  };
  Past& thread(std::uint32_t number);
  void begin(const Op& op);
  const Past& begin_of(std::uint32_t task);
  void join_task(Past& past, std::uint32_t task);
  void join_stream(Past& past, std::uint32_t stream);
  template <class Visit>
  void for_units(const Op& op, Visit&& visit);

  const Trace& trace_;
  std::vector<Past> threads_;
  std::vector<bool> begun_;
  std::vector<Past> tasks_;  // what is before each task's own operations
  std::vector<bool> task_known_;
  std::vector<Past> given_;   // what the host had behind it when it gave the task
  std::vector<Past> copies_;  // by task: the copy engine's
  std::vector<std::vector<std::uint32_t>> members_;  // threads of each task
  std::vector<std::uint32_t> before_;                // the task before it in its stream; 0: none
  // Where no tasks are known, kernels and copies of a stream come one after the other.
  struct Serial {
    std::uint32_t launch = 0;            // the kernel that was begun last
    Past before;                         // what comes before it
    std::vector<std::uint32_t> threads;  // of it and earlier ones, as far as they have begun
  };
  std::unordered_map<std::uint32_t, Serial> streams_;
  std::uint32_t next_given_ = 1;
  std::uint32_t host_ops_ = 0;
  std::unordered_map<std::uint64_t, Location> locations_;
  std::unordered_map<std::uint32_t, Past> barriers_;
  std::vector<std::uint32_t> at_barrier_;  // by thread: group + 1; 0: none
  std::uint64_t unit_ = 4;                 // bytes that all accesses have whole
};

// Orders the operations anew, equivalently, so that the host's starts and acknowledgements come as
// late as they can: at each of them all has been done that need not come after it.
Trace late_host(const Trace& trace);

}  // namespace holdfast::check
