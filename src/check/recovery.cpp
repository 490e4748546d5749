// Recovers from a crash state: under one schedule, and under all that are not equivalent.
//
// All runs from one state are, together, a function of what they read: the first one is, and what
// it did says which schedule comes next. So what is remembered of a state, and what it must fix,
// rests on all that was read under any schedule.
#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "check/ear.hpp"
#include "check/machine.hpp"
#include "check/race.hpp"
#include "holdfast/cpu/host_observer.hpp"

namespace holdfast::check {

using detail::concat;

namespace {

// Outcomes that are remembered, in what was read for them (16 bytes each): for each history.
constexpr std::size_t kMostReadings = std::size_t{8} << 20;
// Accesses of the host that are made one by one, to see whether hooks announce them, before runs
// are only looked at now and then.
constexpr std::uint64_t kWatchedFaults = 8'192;
// Runs between two looks for stores that nobody heard of.
constexpr std::uint64_t kCleanRuns = 4'096;

std::uint64_t key_of(const History& history) {
  return std::uint64_t{history.started} << 32 | history.acknowledged;
}

// A race was met, or may have been missed.
bool may_race(const RaceDetector& detector) {
  return !detector.complete() || !detector.races().empty();
}

// Looks for races from the first kernel on: until then there is nothing beside the host.
class OnceKernelsRun : public cpu::Listener {
 public:
  OnceKernelsRun(std::optional<RaceDetector>& detector, bool looks)
      : detector_(detector), looks_(looks) {}
  void on_event(const cpu::Event& event) override {
    if (looks_ && !detector_ && event.kind == cpu::EventKind::kernel_begin) detector_.emplace();
    if (detector_) detector_->on_event(event);
  }

 private:
  std::optional<RaceDetector>& detector_;
  bool looks_;
};

}  // namespace

// One run of recovery.
struct Machine::Run {
  Schedules* schedules = nullptr;  // who decides the turns; null: nobody does
  Trace* trace = nullptr;          // where to record it, or null
  std::string wrong;
  bool failed_to_run = false;  // it could not be explored
  bool has_others = false;     // not all schedules are equivalent to this one
  bool by_chance = false;      // something ran beside: which one of them it was, time decided
};

RecoverySchedules Machine::recovery_schedules() const {
  RecoverySchedules result = recovery_schedules_;
  // What host code that is not instrumented reads is not seen in an exploration.
  if (explored_unseen_ && watch_always_) result.complete = false;
  return result;
}

void Machine::begin(std::span<const Level> levels) {
  footprint_.begin(levels.empty() ? nullptr : levels[0].order,
                   levels.size() < 2 ? nullptr : levels[1].order);
}

const Recovered* Machine::known(const History& history) {
  const auto tree = outcomes_.find(key_of(history));
  if (tree == outcomes_.end()) return nullptr;
  return tree->second.find([&](std::uint64_t what) { return footprint_.value_of(what); },
                           [&](std::uint64_t what) { footprint_.replay(what); });
}

void Machine::remember(const History& history, const Recovered& result) {
  if (footprint_.variable() != variable_) return;  // not all that matters was noted
  auto& tree = outcomes_[key_of(history)];
  if (tree.size() > kMostReadings) tree.clear();
  tree.insert(footprint_.readings(), result);
}

Recovered Machine::run(std::span<const Level> levels, const History& history,
                       const RunOptions& options) {
  if (runs_ - clean_runs_ >= kCleanRuns) {
    clean_runs_ = runs_;
    check_clean();
  }
  restore(levels);
  if (footprint_.variable() != variable_) {
    variable_ = footprint_.variable();
    outcomes_.clear();
  }
  begin(levels);
  const Recovered* const before = known(history);
  if (before != nullptr && options.recoveries == nullptr) {
    ++memoised_;
    Recovered result = *before;
    if (result.wrong.empty() && options.judge) result.wrong = options.judge();
    return result;
  }
  begin(levels);  // what was looked up on the way may never be read
  const bool fresh = before == nullptr;
  Footprint::Noted all;
  Recovered result = run_anew(levels, history, options, all);
  if (!all.known.empty()) footprint_.show(all);
  // A judge judges each run by what it alone has read, which is not kept.
  const bool may_keep = !options.judge || (all.known.empty() && result.wrong.empty());
  if (fresh && may_keep) remember(history, result);
  return result;
}

// `all`: what was read, if there was more than one run.
Recovered Machine::run_anew(std::span<const Level> levels, const History& history,
                            const RunOptions& options, Footprint::Noted& all) {
  Recovered result;
  Recovery recovery;
  Run run;
  if (options.recoveries != nullptr) run.trace = &recovery.trace;
  run_once(levels, history, options, run);
  if (run.by_chance && most_schedules_ > 0) {
    Footprint::Noted first;
    footprint_.add_to(first);
    if (run_others(levels, history, options, all, result)) return result;
    all = std::move(first);  // no other could be run
    result.wrong = std::move(run.wrong);
    if (options.recoveries != nullptr) options.recoveries->push_back(std::move(recovery));
    return result;
  }
  result.wrong = std::move(run.wrong);
  if (options.recoveries != nullptr) options.recoveries->push_back(std::move(recovery));
  if (!result.wrong.empty() || !run.has_others) return result;
  footprint_.add_to(all);
  run_others(levels, history, options, all, result);
  return result;
}

// The first run has shown that there are others. It is equivalent to one of those. Returns whether
// one at least was run.
bool Machine::run_others(std::span<const Level> levels, const History& history,
                         const RunOptions& options, Footprint::Noted& all, Recovered& result) {
  Schedules schedules;
  const bool keeps_first = options.recoveries != nullptr && !options.recoveries->empty();
  bool more = true;
  while (more && result.wrong.empty() && schedules.made() < most_schedules_) {
    restore(levels);
    begin(levels);
    schedules.begin();
    Recovery recovery;
    Run run;
    run.schedules = &schedules;
    if (options.recoveries != nullptr) run.trace = &recovery.trace;
    run_once(levels, history, options, run);
    footprint_.add_to(all);
    if (run.failed_to_run) break;
    const bool redundant = schedules.redundant();
    recovery.schedule = schedules.name();
    more = schedules.end();
    if (redundant) continue;
    result.wrong = std::move(run.wrong);
    if (!result.wrong.empty()) result.schedule = recovery.schedule;
    const bool is_known = keeps_first && !more && schedules.made() == 1;
    if (options.recoveries != nullptr && !is_known) {
      options.recoveries->push_back(std::move(recovery));
    }
  }
  recovery_schedules_.most = std::max(recovery_schedules_.most, schedules.made());
  const bool all_made = !more && !schedules.was_cut();
  if (!all_made && result.wrong.empty()) recovery_schedules_.complete = false;
  return schedules.made() > 0;
}

Recovered Machine::run_named(std::span<const Level> levels, const History& history,
                             const std::string& schedule, const RunOptions& options) {
  restore(levels);
  begin(levels);
  Recovery recovery;
  Run run;
  if (options.recoveries != nullptr) run.trace = &recovery.trace;
  Schedules schedules;
  if (!schedule.empty()) {
    schedules.begin_named(schedule);
    run.schedules = &schedules;
  }
  run_once(levels, history, options, run);
  if (!schedule.empty() && (run.failed_to_run || schedules.name() != schedule)) {
    throw OptionError(concat("'r", schedule,
                             "@' names no schedule of recovery from this state: take the "
                             "whole state from a report, such as 12:345.350/r102@3:7"));
  }
  if (options.recoveries != nullptr) {
    recovery.schedule = schedule;
    options.recoveries->push_back(std::move(recovery));
  }
  return {std::move(run.wrong), schedule};
}

Recovered Machine::run_unwatched(std::span<const Level> levels, const History& history,
                                 const std::string& schedule, const RunOptions& options) {
  watch_never_ = true;
  Recovered result = run_named(levels, history, schedule, options);
  watch_never_ = false;
  return result;
}

void Machine::run_once(std::span<const Level> levels, const History& history,
                       const RunOptions& options, Run& run) {
  ++runs_;
  recorder_.begin(run.trace, &footprint_);
  const bool watched = can_watch_host() && !watch_never_ &&
                       (watch_always_ || watch_faults_ < kWatchedFaults + runs_);
  std::optional<HostWatch> watch;
  if (!watched) {
    unwatched_ = true;
  } else {
    watch.emplace(recorder_, footprint_, range_);
  }
  recover(levels, run, watch ? &*watch : nullptr);
  const bool goes_on =
      !run.failed_to_run && (run.schedules == nullptr || !run.schedules->redundant());
  if (goes_on && run.wrong.empty() && program_.verify) {
    run.wrong = verify(levels, history, run, watch ? &*watch : nullptr);
  }
  if (watch) {
    watch->end();
    watch_faults_ += watch->faults();
    judge(*watch);
  }
  if (goes_on && run.wrong.empty() && options.judge) run.wrong = options.judge();
}

void Machine::recover(std::span<const Level> levels, Run& run, HostWatch* watch) {
  cpu::Listener& listener = watch != nullptr ? static_cast<cpu::Listener&>(*watch) : recorder_;
  // Threads that tell each other nothing and do not race have one execution, up to equivalence.
  std::optional<RaceDetector> detector;
  if (seeks_races_ && !recovery_schedules_.have_raced) detector.emplace();
  Ear ear(listener, detector ? &*detector : nullptr, census_);
  std::optional<cpu::Exploration> exploration;
  if (run.schedules != nullptr) {
    explored_unseen_ = true;
    exploration.emplace(*run.schedules);
  }
  try {
    const Recording recording(ear, mutator_.get());
    const cpu::HostObserver observer(region_.base(), region_.size());
    const Vigil::Call call(vigil_, "recover()", levels, run.schedules);
    if (exploration) {
      exploration->run([&] { program_.recover(region_); });
    } else {
      program_.recover(region_);
    }
  } catch (const std::exception& error) {
    run.wrong = concat("recover() failed: ", error.what());
    const auto* const known = dynamic_cast<const Error*>(&error);
    run.failed_to_run = exploration && known != nullptr && known->code() == Errc::unsupported;
  }
  exploration.reset();
  if (const auto lost = cpu::take_lost_error(); lost && run.wrong.empty()) {
    run.wrong = concat("recover() failed: its stream ended with an error: ", lost->what());
  }
  check_alone();
  if (run.wrong.empty() && recorder_.stray()) run.wrong = "recover() " + describe_stray();
  recorder_.end_trace();
  if (run.schedules != nullptr && run.schedules->was_lost()) run.failed_to_run = true;
  if (run.failed_to_run) return;
  have_talked_ = have_talked_ || ear.heard_talk();
  if (detector && (ear.heard_choices() || run.schedules != nullptr)) {
    recovery_schedules_.have_raced = may_race(*detector);
  }
  if (run.schedules == nullptr && ear.heard_turns()) {
    run.has_others = true;
    run.by_chance = ear.heard_beside();
    if (most_schedules_ == 0) recovery_schedules_.complete = false;
  }
  if (run.trace != nullptr && mutator_ != nullptr) mutator_->change(*run.trace);
  if (run.trace != nullptr && census_ != nullptr) census_->add_pairs(*run.trace);
}

std::string Machine::verify(std::span<const Level> levels, const History& history, const Run& run,
                            HostWatch* watch) {
  cpu::Listener& listener = watch != nullptr ? static_cast<cpu::Listener&>(*watch) : recorder_;
  // It is not explored: what comes of its kernels must not depend on who is first.
  std::optional<RaceDetector> detector;
  OnceKernelsRun race(detector, seeks_races_ && !recovery_schedules_.have_raced);
  Ear ear(listener, &race, nullptr);
  const Recording recording(ear, nullptr);
  std::string wrong;
  Vigil::Call call(vigil_, "verify()", levels, run.schedules);
  for (std::uint64_t item = 0; item < program_.items && wrong.empty(); ++item) {
    call.go_on();
    recorder_.set_actor(Recorder::kItemActor | item);
    if (watch != nullptr) watch->set_actor(Recorder::kItemActor | item);
    try {
      const cpu::HostObserver observer(region_.base(), region_.size());
      wrong = program_.verify(region_, history, item);
      if (robust_) wrong.clear();
    } catch (const std::exception& error) {
      wrong = concat("verify() failed: ", error.what());
    }
    if (!wrong.empty() && program_.items > 1) wrong = concat("item ", item, ": ", wrong);
  }
  recorder_.no_actor();
  check_alone();
  if (wrong.empty() && recorder_.stray()) wrong = "verify() " + describe_stray();
  if (ear.heard_turns()) recovery_schedules_.complete = false;
  if (detector && may_race(*detector)) recovery_schedules_.have_raced = true;
  return wrong;
}

// What recover() or verify() does, it has done when it returns, and by itself.
void Machine::check_alone() {
  if (cpu::stranger_was_met()) {
    refuse_recovery(
        "lets a thread of its own launch kernels or talk to others: the checker explores "
        "what the thread that calls it does alone");
  }
  if (cpu::work_is_pending()) {
    refuse_recovery("returns while a stream has work that nobody has waited for: synchronize() it");
  }
}

// A read that no hook announced is noted from here on. Where there were runs before that might have
// made it unseen, or where it is a store, what was explored means nothing.
void Machine::judge(const HostWatch& watch) {
  const std::optional<UnseenAccess> unseen = watch.unseen();
  if (!unseen) return;
  if (!unseen->is_store && !unseen->by_other && (watch_always_ || !unwatched_)) {
    if (!watch_always_) unseen_.pc = unseen->pc;
    watch_always_ = true;
    return;
  }
  const std::string what = concat(unseen->is_store ? "stores to " : "reads ",
                                  name_of(unseen->address), " unseen", at_line({unseen->pc}));
  if (object_at(unseen->address) == nullptr) {
    refuse_recovery(concat(what,
                           ": it allocates, removes or commits, and what the region itself stores "
                           "is not explored; do so in set_up()"));
  }
  if (unseen->by_other) {
    refuse_recovery(concat(what,
                           ", by another thread or a function of a stream: the checker hears "
                           "kernels, copies and the thread that calls recover() and verify() "
                           "alone. Do it there"));
  }
  refuse_recovery(
      concat(what,
             ": that code is not instrumented, so that the checker explores less than it "
             "says. Name its file in holdfast_kernels(), or ",
             unseen->is_store ? "store in a kernel" : "read through check::read()"));
}

void Machine::refuse_recovery(const std::string& what) const {
  throw Error(Errc::unsupported,
              concat("check: recover() or verify() of program '", program_.name, "' ", what));
}

// What nobody heard of, no later state takes back.
void Machine::check_clean() {
  restore({});
  if (const auto address = find_difference(base_)) {
    refuse_recovery(concat("stores to ", name_of(*address),
                           " unheard: the checker hears kernels, copies and instrumented code of "
                           "the thread that calls recover() and verify() alone. Do it there"));
  }
}

}  // namespace holdfast::check
