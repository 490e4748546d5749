// Calls that are under way in a history: for a look at a running program, and for its trace.
#pragma once

#include <mutex>
#include <string>

#include "history/trace.hpp"

namespace holdfast::history {

struct Core;

// A call from its beginning to its end. It costs a few stores where there is no trace; where there
// is one, it notes the call, and each wait within it. One that is not told to be done has failed.
// Thread safety: the history's mutex is held by its functions; its end takes it where it has to.
class Caller {
 public:
  using Kind = TraceEvent::Kind;
  using Why = TraceEvent::Why;
  using Lock = std::unique_lock<std::mutex>;

  Caller(Core& core, Lock& lock, Kind kind, Step step, Clock::time_point begin);
  ~Caller();
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  // The catalog has said to wait; `tier` as it did.
  void waits(int tier);
  void waits_for(Why why, int tier);
  void goes_on();
  // A restore is about to be served from this tier, perhaps not the fastest one.
  void is_served_from(int tier);
  // Bytes that move between the program and storage in this call: before and behind that.
  void begins_direct();
  void ends_direct(const Transfer& transfer, Outcome outcome);
  void done(const Transfer& transfer);
  void done();

  Kind kind() const { return event_.kind; }
  Step step() const { return event_.step; }
  Clock::time_point begin() const { return begin_; }
  Why why() const { return why_; }
  int tier() const { return tier_; }
  const Caller* next() const { return next_; }

 private:
  TraceEvent within(Kind kind, Clock::time_point begin, int from, int to) const;

  Core& core_;
  Lock& lock_;
  const Clock::time_point begin_;
  TraceEvent event_;
  Why why_ = Why::none;  // it waits
  int tier_ = kProgram;
  Clock::time_point part_begin_;  // of the wait, or of the direct transfer
  Census room_;                   // of the tier that it waits for
  Caller* next_;
  Caller** place_;  // what points to this one
};

}  // namespace holdfast::history
