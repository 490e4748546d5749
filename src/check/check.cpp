// The checker's public functions.
#include "holdfast/check.hpp"

#include "check/checker.hpp"
#include "holdfast/cpu/host_observer.hpp"

namespace holdfast::check {

using detail::concat;

void note_read(const void* address, std::size_t bytes) { cpu::note_read(address, bytes); }

bool can_see_host() noexcept { return can_watch_host(); }

const char* to_string(Mutation::Kind kind) noexcept {
  constexpr const char* kNames[] = {"none", "drop", "narrow", "weaken", "swap", "persist", "widen"};
  return kNames[static_cast<int>(kind)];
}

const char* to_string(Rung rung) noexcept {
  constexpr const char* kNames[] = {"exhaustive", "components", "sampled", "replay"};
  return kNames[static_cast<int>(rung)];
}

const char* to_string(Verdict verdict) noexcept {
  constexpr const char* kNames[] = {"passed", "failed", "racy"};
  return kNames[static_cast<int>(verdict)];
}

const char* to_string(CauseKind kind) noexcept {
  constexpr const char* kNames[] = {"missing_order", "narrow_scope",      "barrier_only",
                                    "torn_store",    "lost_acknowledged", "not_idempotent",
                                    "not_atomic",    "not_a_crash_matter"};
  return kNames[static_cast<int>(kind)];
}

const char* to_string(Mutant::Fate fate) noexcept {
  constexpr const char* kNames[] = {"caught", "redundant", "survived"};
  return kNames[static_cast<int>(fate)];
}

std::string to_string(const Place& place) {
  if (place.file.empty()) return place.function.empty() ? "an unknown place" : place.function;
  return concat(place.file.substr(place.file.rfind('/') + 1), ":", place.line,
                place.context.empty() ? "" : concat(" (in ", place.context, ")"));
}

Report check(const Program& program, const Options& options) {
  Checker checker(program, options);
  Report report = options.replay.empty() ? checker.check(options.mutation, true)
                                         : checker.replay(options.replay);
  if (options.races && options.replay.empty()) checker.find_races(report);
  if (options.replay.empty()) checker.suggest(report);
  checker.add_unseen(report);
  return report;
}

std::vector<Mutant> check_mutants(const Program& program, const Options& options) {
  Options own = options;
  own.worker = 0;  // the mutants are shared out, not their states
  own.workers = 1;
  Checker checker(program, own);
  std::vector<Mutant> result;
  const auto targets = checker.targets();
  for (std::size_t i = options.worker; i < targets.size(); i += options.workers) {
    const Checker::Target& target = targets[i];
    Mutant mutant;
    mutant.mutation = target.mutation;
    mutant.place = target.place;
    mutant.in_recovery = target.in_recovery;
    if (!target.in_recovery && checker.changes_nothing(target.mutation)) {
      mutant.fate = Mutant::Fate::redundant;
    } else {
      mutant.report = checker.check(target.mutation, false);
      const bool all = mutant.report.complete && mutant.report.rung != Rung::sampled &&
                       (mutant.report.nested_complete || !options.nested);
      mutant.fate = mutant.report.verdict == Verdict::failed ? Mutant::Fate::caught
                    : all                                    ? Mutant::Fate::redundant
                                                             : Mutant::Fate::survived;
    }
    result.push_back(std::move(mutant));
  }
  return result;
}

}  // namespace holdfast::check
