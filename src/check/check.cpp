// The checker's public functions.
#include "holdfast/check.hpp"

#include "check/checker.hpp"
#include "holdfast/cpu/host_observer.hpp"

namespace holdfast::check {

using detail::concat;

void note_read(const void* address, std::size_t bytes) { cpu::note_read(address, bytes); }

bool can_see_host() noexcept { return can_watch_host(); }

const char* to_string(Mutation::Kind kind) noexcept {
  constexpr const char* kNames[] = {"none", "drop",  "narrow",  "weaken",
                                    "swap", "early", "persist", "widen"};
  return kNames[static_cast<int>(kind)];
}

const char* to_string(Scope scope) noexcept {
  constexpr const char* kNames[] = {"block", "device", "system"};
  return kNames[static_cast<int>(scope)];
}

std::string to_string(const Mutation& mutation) {
  const bool has_scope =
      mutation.kind == Mutation::Kind::narrow || mutation.kind == Mutation::Kind::widen;
  return concat(to_string(mutation.kind), has_scope ? "=" : "",
                has_scope ? to_string(mutation.scope) : "", "@", mutation.place);
}

const char* to_string(Rung rung) noexcept {
  constexpr const char* kNames[] = {"exhaustive", "components", "sampled", "replay"};
  return kNames[static_cast<int>(rung)];
}

const char* to_string(Verdict verdict) noexcept {
  constexpr const char* kNames[] = {"passed", "failed", "no failure found", "racy", "void"};
  return kNames[static_cast<int>(verdict)];
}

const char* to_string(CauseKind kind) noexcept {
  constexpr const char* kNames[] = {"missing_order", "narrow_scope",      "barrier_only",
                                    "torn_store",    "lost_acknowledged", "not_idempotent",
                                    "not_atomic",    "not_a_crash_matter"};
  return kNames[static_cast<int>(kind)];
}

const char* to_string(Mutant::Fate fate) noexcept {
  constexpr const char* kNames[] = {"killed", "not needed", "not killed"};
  return kNames[static_cast<int>(fate)];
}

const char* to_string(Mutant::Killer killer) noexcept {
  constexpr const char* kNames[] = {"none", "state", "race", "executor"};
  return kNames[static_cast<int>(killer)];
}

std::string to_string(const Place& place) {
  if (place.file.empty()) return place.function.empty() ? "an unknown place" : place.function;
  return concat(place.file.substr(place.file.rfind('/') + 1), ":", place.line,
                place.context.empty() ? "" : concat(" (in ", place.context, ")"));
}

Report check(const Program& program, const Options& options) {
  Checker checker(program, options);
  checker.change(options.mutation);
  Report report = options.replay.empty() ? checker.check(true) : checker.replay(options.replay);
  if (options.replay.empty()) checker.suggest(report);
  checker.add_unseen(report);
  return report;
}

}  // namespace holdfast::check
