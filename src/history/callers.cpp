#include "history/callers.hpp"

#include <algorithm>

#include "history/engine.hpp"

namespace holdfast::history {

namespace {

TraceEvent::Outcome outcome_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::done:
      return TraceEvent::Outcome::done;
    case Outcome::damaged:
      return TraceEvent::Outcome::damaged;
    case Outcome::failed:
      break;
  }
  return TraceEvent::Outcome::failed;
}

}  // namespace

Caller::Caller(Core& core, Lock& lock, Kind kind, Step step, Clock::time_point begin)
    : core_(core), lock_(lock), begin_(begin), next_(core.callers), place_(&core.callers) {
  event_.kind = kind;
  event_.step = step;
  event_.outcome = TraceEvent::Outcome::failed;
  if (next_) next_->place_ = &next_;
  core.callers = this;
}

Caller::~Caller() {
  if (!lock_.owns_lock()) lock_.lock();
  goes_on();
  if (next_) next_->place_ = place_;
  *place_ = next_;
  if (Trace* const trace = core_.trace.get()) {
    event_.thread = thread_number();
    event_.begin_ns = trace->since_opening(begin_);
    event_.end_ns = trace->now();
    trace->note(event_);
    trace->note_held(core_.catalog, event_.end_ns);
  }
}

TraceEvent Caller::within(Kind kind, Clock::time_point begin, int from, int to) const {
  TraceEvent event;
  event.kind = kind;
  event.step = event_.step;
  event.thread = thread_number();
  event.begin_ns = core_.trace->since_opening(begin);
  event.end_ns = core_.trace->now();
  event.from = static_cast<std::int8_t>(from);
  event.to = static_cast<std::int8_t>(to);
  return event;
}

void Caller::waits(int tier) {
  if (tier < 0) return waits_for(Why::removal, tier);
  if (event_.kind == Kind::save) return waits_for(Why::room, tier);
  const Catalog& catalog = core_.catalog;
  if (catalog.state(event_.step, tier) == State::reading) return waits_for(Why::fetch, tier);
  const auto& transfers = catalog.transfers();
  const bool copied = std::any_of(transfers.begin(), transfers.end(), [&](const Transfer& one) {
    return one.step == event_.step && one.to == tier && one.kind == Transfer::Kind::save;
  });
  waits_for(copied ? Why::copy : Why::flush, tier);
}

void Caller::waits_for(Why why, int tier) {
  if (why_ == why && tier_ == tier) return;
  goes_on();
  why_ = why;
  tier_ = tier;
  part_begin_ = Clock::now();
  if (core_.trace && why == Why::room) room_ = take_census(core_.catalog, tier);
}

void Caller::goes_on() {
  if (why_ == Why::none) return;
  if (core_.trace) {
    TraceEvent event = within(Kind::wait, part_begin_, kProgram, tier_);
    event.why = why_;
    if (why_ == Why::room) event.census = room_;
    core_.trace->note(event);
  }
  why_ = Why::none;
}

void Caller::is_served_from(int tier) {
  if (!core_.trace) return;
  const Catalog& catalog = core_.catalog;
  event_.from = static_cast<std::int8_t>(tier);
  event_.hinted = catalog.is_hinted(event_.step);
  event_.prefetching = catalog.is_prefetching();
  event_.census = tier > 0 ? take_census(catalog, tier - 1) : Census{};
}

void Caller::begins_direct() {
  if (core_.trace) part_begin_ = Clock::now();
}

void Caller::ends_direct(const Transfer& transfer, Outcome outcome) {
  if (!core_.trace) return;
  TraceEvent event = within(Kind::direct, part_begin_, transfer.from, transfer.to);
  event.bytes = transfer.bytes;
  event.outcome = outcome_of(outcome);
  core_.trace->note(event);
}

void Caller::done(const Transfer& transfer) {
  event_.bytes = transfer.bytes;
  event_.from = static_cast<std::int8_t>(transfer.from);
  event_.to = static_cast<std::int8_t>(transfer.to);
  done();
}

void Caller::done() { event_.outcome = TraceEvent::Outcome::done; }

}  // namespace holdfast::history
