// A change that mends a failure: only where it was tried.
#include <algorithm>
#include <utility>

#include "check/checker.hpp"

namespace holdfast::check {

using detail::concat;

namespace {

// What a second check of the program may cost.
constexpr std::uint64_t kMostStates = 20'000;

// The simple change that the cause calls for; Kind::none if there is none.
std::pair<Mutation, std::string> patch_for(const Failure& failure, const std::string& lost,
                                           const std::string& fix) {
  Mutation patch;
  switch (failure.cause) {
    case CauseKind::missing_order:
    case CauseKind::barrier_only:
    case CauseKind::lost_acknowledged:
      if (failure.lost.place.line == 0 || failure.lost.thread == "host") break;
      patch.kind = Mutation::Kind::persist;
      patch.place = lost;
      return {patch, concat("put persist() behind the store at ", lost)};
    case CauseKind::narrow_scope:
      if (failure.fix.line == 0) break;
      patch.kind = Mutation::Kind::widen;
      patch.place = fix;
      patch.scope = Scope::device;
      return {patch, concat("make the scope at ", fix, " Scope::device")};
    default:
      break;
  }
  return {patch, ""};
}

}  // namespace

void Checker::suggest(Report& report) {
  if (report.failures.empty() || options_.mutation.kind != Mutation::Kind::none) return;
  Failure& failure = report.failures[0];
  // As sites are named: without the kernel's own line, which the words may have.
  const auto bare = [](Place place) {
    place.context.clear();
    return to_string(place);
  };
  const auto [patch, words] = patch_for(failure, bare(failure.lost.place), bare(failure.fix));
  if (patch.kind == Mutation::Kind::none) return;
  std::vector<Site> sites = sites_at(patch.place, sites_of_failure_);
  if (sites.empty()) return;
  const Options before = options_;
  options_.max_states = std::min(options_.max_states, kMostStates);
  options_.worker = 0;
  options_.workers = 1;
  machine_.change(patch, std::move(sites));
  const Report again = check(false);
  machine_.change({}, {});
  options_ = before;
  if (!again.failures.empty() || again.races.size() > report.races.size()) return;
  const bool all = again.complete && (again.nested_complete || !options_.nested);
  failure.suggestion = concat(words, " (tried: no failure found in ", again.states, " states, ",
                              all ? "all that recovery can tell apart)" : "not all there are)");
}

}  // namespace holdfast::check
