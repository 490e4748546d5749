// What there is to mutate in a program, and the hunt for races.
#include <algorithm>
#include <map>

#include "check/checker.hpp"
#include "check/race.hpp"

namespace holdfast::check {

std::vector<Checker::Target> Checker::targets() {
  start({});
  std::vector<Target> result;
  std::map<std::string, Site> site_of;
  const auto add = [&](const Trace& trace, bool recovery) {
    for (const Site& site : trace.sites) site_of.emplace(places_.name(site), site);
    for (const Mutation& mutation : mutations_of(trace, places_)) {
      const auto known = std::find_if(result.begin(), result.end(), [&](const Target& target) {
        return target.mutation.kind == mutation.kind && target.mutation.place == mutation.place &&
               target.mutation.scope == mutation.scope;
      });
      Target& target = known != result.end() ? *known : result.emplace_back();
      target.mutation = mutation;
      target.place = places_.place(site_of.at(mutation.place));
      (recovery ? target.in_recovery : target.in_run) = true;
    }
  };
  add(recorded_, false);
  // Recovery does different things after different crashes: look at it after some of them.
  const std::size_t points = order_->points().size();
  const std::size_t step = std::max<std::size_t>(1, points / 16);
  for (std::size_t number = 0; number < points; number += step) {
    const CrashPoint& point = order_->points()[number];
    for (const Bitset& durable : {point.durable, Bitset::below(point.executed)}) {
      const Level level{order_.get(), &durable};
      Trace recovery;
      machine_.run({&level, 1}, {point.started, point.acknowledged}, &recovery);
      machine_.note_flows(groups_);
      add(recovery, true);
    }
  }
  return result;
}

void Checker::find_races(Report& report) {
  RaceDetector detector;
  machine_.observe(detector);
  for (const Race& race : detector.races()) {
    report.races.push_back(
        {to_string(race), places_.place(race.first.site), places_.place(race.second.site)});
  }
  if (!report.races.empty() && report.verdict == Verdict::passed) report.verdict = Verdict::racy;
}

bool Checker::changes_nothing(const Mutation& mutation) {
  start({});
  OrderOptions options;
  options.model = options_.model;
  options.axioms.barrier_alone = options_.barrier_orders;
  const Trace changed = mutate(recorded_, mutation, places_);
  const Order other(changed, options);
  const auto& a = order_->writes();
  const auto& b = other.writes();
  if (a.size() != b.size() || order_->points().size() != other.points().size()) return false;
  for (std::uint32_t i = 0; i < a.size(); ++i) {
    if (a[i].address != b[i].address || a[i].value != b[i].value) return false;
    if (!(order_->down(i) == other.down(i))) return false;
  }
  for (std::size_t i = 0; i < order_->points().size(); ++i) {
    const CrashPoint& mine = order_->points()[i];
    const CrashPoint& theirs = other.points()[i];
    if (mine.executed != theirs.executed || !(mine.durable == theirs.durable) ||
        mine.started != theirs.started || mine.acknowledged != theirs.acknowledged) {
      return false;
    }
  }
  return true;
}

}  // namespace holdfast::check
