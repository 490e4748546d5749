// What a history did, event by event, in memory that is taken when it is opened: for the file that
// `holdfast history timeline` draws.
//
// An event is noted when it has ended, with its beginning, so that a begin without an end cannot
// be. The ring holds the last `limit` of them; what was overwritten is counted. Noting one takes no
// memory and no lock of its own.
//
// Tests: history_trace_test (the events of scripted runs, under failures, too).
// Thread safety: none; the history's mutex is over it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "history/catalog.hpp"
#include "holdfast/history.hpp"

namespace holdfast::history {

using Clock = std::chrono::steady_clock;

// Checkpoints of one tier, by what stands against their eviction.
struct Census {
  std::uint32_t moving = 0;     // being written, read in, or read by a transfer
  std::uint32_t unflushed = 0;  // no slower tier has them
  std::uint32_t ready = 0;      // fetched ahead, and not restored
  std::uint32_t evictable = 0;
  bool operator==(const Census&) const = default;
};
// Of storage, which evicts nothing, all are 0.
Census take_census(const Catalog& catalog, int tier);

struct TraceEvent {
  enum class Kind : std::uint8_t {
    // Calls, for which the program is blocked.
    save,
    restore,
    flush,   // flush() and close()
    ticket,  // Ticket::wait()
    // Within a call.
    wait,    // for `why`
    direct,  // bytes that move between the program's arrays and storage
    // Behind the program's back.
    copy,      // of a save, on the program's stream
    flushing,  // a lane's transfer to a slower tier
    fetching,  // a lane's transfer to a faster tier
    // Moments.
    evicted,
    discarded,  // left a tier, since nobody will restore it
    hint,
    prefetch_start,
    held,  // `bytes` are taken of tier `to` from now on
  };
  enum class Outcome : std::uint8_t { done, failed, damaged, given_up };
  enum class Why : std::uint8_t {
    none,
    room,     // in tier `to`
    copy,     // the save of the checkpoint is still being copied, into tier `to`
    fetch,    // it is being fetched, into tier `to`
    flush,    // it is being flushed, into tier `to`
    removal,  // what had the number before is being removed
    durable,  // until it is in tier `to`, or everything is on the last one
  };
  static constexpr std::int8_t kNone = -1;  // no tier: the program's arrays
  static constexpr std::uint16_t kNoMessage = 0xffff;

  std::int64_t begin_ns = 0, end_ns = 0;  // since the history was opened
  Step step = 0;
  std::uint64_t bytes = 0;
  std::int64_t paused_ns = 0;  // of a lane, which gave way to what was more urgent
  std::uint32_t thread = 0;    // of calls, and within them
  Kind kind = Kind::save;
  std::int8_t from = kNone, to = kNone;  // numbers of tiers
  Outcome outcome = Outcome::done;
  Why why = Why::none;
  bool hinted = false, prefetching = false;  // when a restore began
  std::uint16_t message = kNoMessage;
  // Of the tier whose room a save waits for; of the next faster tier than the one that serves a
  // restore.
  Census census{};
};
const char* to_string(TraceEvent::Kind kind) noexcept;
const char* to_string(TraceEvent::Outcome outcome) noexcept;
const char* to_string(TraceEvent::Why why) noexcept;

// The number of the calling thread, small, from 1, for its life.
std::uint32_t thread_number() noexcept;

class Trace {
 public:
  struct TierName {
    Tier tier;
    std::uint64_t capacity;  // bytes; 0: no limit
  };
  // Throws invalid_argument: a path that cannot become a trace's (already_exists: a file that is
  // none; not_found, permission: of its folder), a limit of none or of more than kMostEvents.
  Trace(const std::string& path, std::uint64_t limit, std::vector<TierName> tiers);
  static constexpr std::uint64_t kMostEvents = std::uint64_t{1} << 26;

  std::int64_t since_opening(Clock::time_point moment) const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(moment - opened_).count();
  }
  std::int64_t now() const { return since_opening(Clock::now()); }

  void note(const TraceEvent& event) noexcept {
    ring_[static_cast<std::size_t>(noted_ % ring_.size())] = event;
    ++noted_;
  }
  // The bytes that are taken of each tier, where they have changed.
  void note_held(const Catalog& catalog, std::int64_t now) noexcept;
  // What an event's `message` is for; kNoMessage where there is no memory, or were many.
  std::uint16_t keep_message(const std::string& text) noexcept;

  std::uint64_t noted() const { return noted_; }
  std::uint64_t dropped() const { return noted_ > ring_.size() ? noted_ - ring_.size() : 0; }
  std::vector<TraceEvent> events() const;  // by their ends, as far as they are left
  const std::vector<std::string>& messages() const { return messages_; }

  // Writes the file (docs/format.md, "Traces of histories") in place of an older trace. Throws io,
  // no_space, permission; the older one is whole then.
  void write() const;

 private:
  const std::string path_;
  const std::vector<TierName> tiers_;
  const Clock::time_point opened_;
  const std::uint64_t opened_unix_ns_;
  std::vector<TraceEvent> ring_;
  std::uint64_t noted_ = 0;
  std::vector<std::uint64_t> held_;  // by tier, as noted last
  std::vector<std::string> messages_;
};

}  // namespace holdfast::history
