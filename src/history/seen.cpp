// What others see of a history: a snapshot of it, the same as text for other processes, and the
// events of its trace.
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/files.hpp"
#include "core/guard.hpp"
#include "history/engine.hpp"
#include "history/json.hpp"

namespace holdfast::history {

using Kind = history::Transfer::Kind;

namespace {

constexpr const char* kSocketName = "/history.socket";

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::max(0.0, std::chrono::duration<double>(end - begin).count());
}

double seconds_since_unix(std::uint64_t unix_ns, std::uint64_t now) {
  return now > unix_ns ? static_cast<double>(now - unix_ns) * 1e-9 : 0;
}

const char* name_of_kind(Kind kind) {
  constexpr const char* kNames[] = {"save", "flush", "fetch", "restore", "refill"};
  return kNames[static_cast<std::size_t>(kind)];
}

const char* call_name(TraceEvent::Kind kind) {
  switch (kind) {
    case TraceEvent::Kind::save:
      return "save";
    case TraceEvent::Kind::restore:
      return "restore";
    case TraceEvent::Kind::flush:
      return "flush";
    default:
      return "wait";
  }
}

std::string in_words(TraceEvent::Why why, const char* tier) {
  std::string text;
  switch (why) {
    case TraceEvent::Why::none:
      return text;
    case TraceEvent::Why::room:
      append(text, "room in ", tier);
      return text;
    case TraceEvent::Why::copy:
      return "the copies of its save";
    case TraceEvent::Why::fetch:
      append(text, "its fetch into ", tier);
      return text;
    case TraceEvent::Why::flush:
      append(text, "its flush to ", tier);
      return text;
    case TraceEvent::Why::removal:
      return "the end of an earlier checkpoint of this number";
    case TraceEvent::Why::durable:
      append(text, "its arrival in ", tier);
      return text;
  }
  return text;
}

}  // namespace

// --- A snapshot
// ------------------------------------------------------------------------------------

std::string Engine::path_of(Tier kind) const {
  if (stores_[index_of(kind)]) return stores_[index_of(kind)]->path();
  if (kind == Tier::partner) {
    return options_.partner_lender.empty() ? options_.partner_region : options_.partner_lender;
  }
  return kind == Tier::host ? options_.host_region : "";
}

void Engine::add_transfers(HistorySnapshot& snapshot) const {
  const auto name = [&](int tier) {
    return tier == kProgram ? "program" : holdfast::to_string(kind_of(tier));
  };
  const auto now = Clock::now();
  for (const history::Transfer& transfer : core_->catalog.transfers()) {
    HistorySnapshot::Transfer seen;
    seen.kind = name_of_kind(transfer.kind);
    seen.step = transfer.step;
    seen.from = name(transfer.from);
    seen.to = name(transfer.to);
    seen.bytes = transfer.bytes;
    if (transfer.kind == Kind::flush || transfer.kind == Kind::fetch ||
        transfer.kind == Kind::refill) {
      const LaneWork& work = work_of(transfer);
      seen.moved = work.moved;
      seen.seconds = seconds_between(work.begin, now);
    } else if (transfer.kind == Kind::save) {
      const auto record = records_.find(transfer.step);
      if (record != records_.end()) {
        seen.seconds = seconds_since_unix(record->second.info.saved_at_ns, snapshot.unix_ns);
      }
    } else {
      for (const Caller* caller = core_->callers; caller; caller = caller->next()) {
        if (caller->kind() != TraceEvent::Kind::restore || caller->step() != transfer.step)
          continue;
        seen.seconds = seconds_between(caller->begin(), now);
      }
    }
    snapshot.transfers.push_back(seen);
  }
}

void Engine::add_callers(HistorySnapshot& snapshot) const {
  const auto now = Clock::now();
  for (const Caller* caller = core_->callers; caller; caller = caller->next()) {
    HistorySnapshot::Caller seen;
    seen.call = call_name(caller->kind());
    seen.step = caller->step();
    const int tier = caller->tier();
    seen.waits_for = in_words(caller->why(), tier < 0 ? "" : holdfast::to_string(kind_of(tier)));
    seen.seconds = seconds_between(caller->begin(), now);
    snapshot.callers.push_back(std::move(seen));
  }
}

HistorySnapshot Engine::snapshot(bool of_any_phase) {
  Lock lock = of_any_phase ? Lock(core_->mutex) : open_lock();
  const Core& core = *core_;
  HistorySnapshot snapshot;
  snapshot.unix_ns = unix_now_ns();
  snapshot.pid = static_cast<std::uint64_t>(::getpid());
  snapshot.phase = core.closed ? "closed" : core.closing ? "closing" : "open";
  if (core.broken) {
    try {
      core.check_whole();
    } catch (const std::exception& error) {
      snapshot.phase = error.what();
    }
  }
  for (const Tier kind : kinds_) {
    const int tier = tier_of(kind);
    const bool cache = core.catalog.is_cache(tier);
    const std::uint64_t storage_bytes =
        kind == Tier::disk ? options_.disk_bytes : options_.remote_bytes;
    snapshot.tiers.push_back({kind, cache ? core.catalog.space(tier).capacity() : storage_bytes,
                              core.catalog.used(tier), 0, path_of(kind)});
  }
  for (const auto& [step, record] : records_) {
    if (!core.catalog.knows(step)) continue;
    HistorySnapshot::Checkpoint seen{
        step, record.info.bytes, record.info.saved_at_ns, !core.catalog.contains(step), {}};
    for (const Tier kind : kinds_) {
      const State state = core.catalog.state(step, tier_of(kind));
      if (state == State::absent) continue;
      seen.copies.push_back({kind, to_string(state)});
      ++snapshot.tiers[static_cast<std::size_t>(tier_of(kind))].checkpoints;
    }
    snapshot.checkpoints.push_back(std::move(seen));
  }
  for (const auto& [place, step] : core.catalog.hints()) snapshot.hints.push_back(step);
  snapshot.prefetching = core.catalog.is_prefetching();
  add_transfers(snapshot);
  add_callers(snapshot);
  if (core.trace) {
    snapshot.traced = core.trace->noted();
    snapshot.trace_dropped = core.trace->dropped();
  }
  return snapshot;
}

// --- For other processes
// ---------------------------------------------------------------------------

// A folder on a file system without sockets is no reason not to have a history.
void Engine::start_status_server() {
  const auto answer = [this] { return to_json(snapshot(true)); };
  if (!options_.status.empty()) {
    status_.emplace(options_.status, false, answer);
  } else if (const auto& disk = stores_[index_of(Tier::disk)]) {
    try {
      status_.emplace(disk->path() + kSocketName, true, answer);
    } catch (const Error&) {
      status_.reset();
    }
  }
}

// --- The trace
// -------------------------------------------------------------------------------------

void Engine::start_trace() {
  if (options_.trace.empty()) return;
  std::vector<Trace::TierName> names;
  for (const Tier kind : kinds_) {
    const int tier = tier_of(kind);
    const bool cache = core_->catalog.is_cache(tier);
    names.push_back({kind, cache                ? core_->catalog.space(tier).capacity()
                           : kind == Tier::disk ? options_.disk_bytes
                                                : options_.remote_bytes});
  }
  core_->trace = std::make_unique<Trace>(options_.trace, options_.trace_events, std::move(names));
}

Engine::LaneWork& Engine::work_of(const history::Transfer& transfer) {
  const bool flush = transfer.kind == Kind::flush;
  return work_[flush ? 0 : 1][flush ? transfer.from : transfer.to];
}
const Engine::LaneWork& Engine::work_of(const history::Transfer& transfer) const {
  return const_cast<Engine*>(this)->work_of(transfer);
}

namespace {

std::uint16_t message_for(Trace& trace, const std::exception_ptr& error) {
  if (!error) return TraceEvent::kNoMessage;
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return trace.keep_message(exception.what());
  } catch (...) {
    return trace.keep_message("an unknown exception");
  }
}

}  // namespace

void Engine::trace_lane(const history::Transfer& transfer, Outcome outcome,
                        const std::exception_ptr& error) {
  Trace& trace = *core_->trace;
  const LaneWork& work = work_of(transfer);
  TraceEvent event;
  event.kind =
      transfer.kind == Kind::flush ? TraceEvent::Kind::flushing : TraceEvent::Kind::fetching;
  event.begin_ns = trace.since_opening(work.begin);
  event.end_ns = trace.now();
  event.step = transfer.step;
  event.bytes = transfer.bytes;
  event.paused_ns = work.paused_ns;
  event.from = static_cast<std::int8_t>(transfer.from);
  event.to = static_cast<std::int8_t>(transfer.to);
  event.message = message_for(trace, error);
  using Ends = TraceEvent::Outcome;
  event.outcome = outcome == Outcome::done      ? Ends::done
                  : outcome == Outcome::damaged ? Ends::damaged
                  : error                       ? Ends::failed
                                                : Ends::given_up;
  trace.note(event);
}

void Engine::trace_copy(const Arrival& arrival, const std::exception_ptr& error) {
  Trace& trace = *core_->trace;
  TraceEvent event;
  event.kind = TraceEvent::Kind::copy;
  event.begin_ns = arrival.queued_ns;
  event.end_ns = trace.now();
  event.step = arrival.transfer.step;
  event.bytes = arrival.transfer.bytes;
  event.to = static_cast<std::int8_t>(arrival.transfer.to);
  event.message = message_for(trace, error);
  event.outcome = error ? TraceEvent::Outcome::failed : TraceEvent::Outcome::done;
  trace.note(event);
}

void Engine::trace_moment(TraceEvent::Kind kind, Step step, int from, std::uint64_t bytes) {
  TraceEvent event;
  event.kind = kind;
  event.begin_ns = event.end_ns = core_->trace->now();
  event.step = step;
  event.bytes = bytes;
  event.from = static_cast<std::int8_t>(from);
  event.thread = thread_number();
  core_->trace->note(event);
}

std::vector<TraceEvent> Engine::traced() {
  const Lock lock(core_->mutex);
  return core_->trace ? core_->trace->events() : std::vector<TraceEvent>{};
}

}  // namespace holdfast::history
