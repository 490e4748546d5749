// What there is to mutate in a program, and the races that were found in it.
#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "check/checker.hpp"
#include "check/race.hpp"
#include "check/robustness.hpp"

namespace holdfast::check {

using detail::concat;

namespace {

void add_once(std::vector<std::string>& reasons, const std::string& why) {
  if (std::find(reasons.begin(), reasons.end(), why) == reasons.end()) reasons.push_back(why);
}

}  // namespace

const std::vector<Checker::Target>& Checker::targets() {
  if (std::exchange(has_targets_, true)) return targets_;
  machine_.change({}, {});
  const auto add = [&](const Census& census, bool recovery) {
    std::vector<Site> sites;
    for (const Census::Change& change : census.changes()) sites.push_back(change.site);
    places_.look_up(sites);
    for (const Census::Change& change : census.changes()) {
      const Mutation mutation{change.kind, places_.name(change.site), change.scope};
      if (mutation.place.empty()) continue;
      auto known = std::find_if(targets_.begin(), targets_.end(),
                                [&](const Target& target) { return target.mutation == mutation; });
      if (known == targets_.end()) {
        known = targets_.insert(known, {mutation, places_.place(change.site), {}, false, false});
      }
      if (std::find(known->sites.begin(), known->sites.end(), change.site) == known->sites.end()) {
        known->sites.push_back(change.site);
      }
      (recovery ? known->in_recovery : known->in_run) = true;
    }
  };
  Census of_run;
  machine_.let_gather(&of_run);
  Options first = options_;
  first.schedule = 0;
  begin_report();
  trace_ = std::move(*Executions(machine_, first).next());
  add(of_run, false);
  // Recovery does different things after different crashes: look at it after some of them.
  Census of_recovery;
  machine_.let_gather(&of_recovery);
  start(report_.models.front());
  machine_.name_states(prefix_of(""));
  const std::size_t points = order_->points().size();
  const std::size_t step = std::max<std::size_t>(1, points / 16);
  for (std::size_t number = 0; number < points; number += step) {
    const CrashPoint& point = order_->points()[number];
    for (const Bitset& durable : {point.durable, Bitset::below(point.executed)}) {
      const Level level{order_.get(), &durable, number};
      std::vector<Recovery> recoveries;  // since what is recorded is looked through for pairs
      RunOptions run;
      run.recoveries = &recoveries;
      machine_.run({&level, 1}, history_of(point), run);
      machine_.note_flows(groups_);
    }
  }
  machine_.let_gather(nullptr);
  add(of_recovery, true);
  return targets_;
}

std::vector<Site> Checker::sites_at(const std::string& place, const std::vector<Site>& among) {
  std::vector<Site> sites;
  std::copy_if(among.begin(), among.end(), std::back_inserter(sites),
               [&](const Site& site) { return places_.name(site) == place; });
  return sites;
}

// Where what persist and widen add to would change anything.
std::vector<Site> Checker::sites_to_add_to(const Mutation& mutation) {
  const Trace trace = machine_.record();
  std::vector<bool> fits(trace.sites.size());
  for (const Op& op : trace.ops) {
    const bool kernel = op.thread != kHostThread && op.thread != kCopyThread;
    const bool stores =
        op.kind == OpKind::write || op.kind == OpKind::update || op.kind == OpKind::release;
    const bool scoped = op.strong || op.kind == OpKind::fence || op.kind == OpKind::release ||
                        op.kind == OpKind::acquire;
    const bool widens = scoped && op.scope < mutation.scope;
    if (kernel && (mutation.kind == Mutation::Kind::widen ? widens : stores)) fits[op.site] = true;
  }
  std::vector<Site> sites;
  for (std::size_t site = 0; site < fits.size(); ++site) {
    if (fits[site]) sites.push_back(trace.sites[site]);
  }
  places_.look_up(sites);
  return sites;
}

void Checker::change(const Mutation& mutation) {
  if (mutation.kind == Mutation::Kind::none) return machine_.change(mutation, {});
  std::set<std::string> there;  // what could be changed so
  const auto offer = [&](const std::string& place) {
    there.insert(to_string(Mutation{mutation.kind, place, mutation.scope}));
  };
  if (mutation.kind == Mutation::Kind::persist || mutation.kind == Mutation::Kind::widen) {
    const std::vector<Site> all = sites_to_add_to(mutation);
    std::vector<Site> sites = sites_at(mutation.place, all);
    if (!sites.empty()) return machine_.change(mutation, std::move(sites));
    for (const Site& site : all) offer(places_.name(site));
  } else {
    for (const Target& target : targets()) {
      if (target.mutation == mutation) return machine_.change(mutation, target.sites);
      if (target.mutation.kind != mutation.kind) continue;
      there.insert(to_string(target.mutation));
    }
  }
  std::string list;
  for (const std::string& one : there) list += concat(list.empty() ? "" : ", ", one);
  throw OptionError(concat("there is nothing at '", mutation.place, "' for ", to_string(mutation),
                           there.empty()
                               ? concat("; nor is there elsewhere in program '", program_.name, "'")
                               : concat(": there is ", list)));
}

void Checker::add_races(const RaceDetector& detector) {
  for (const Race& race : detector.races()) {
    RaceReport report{to_string(race), places_.place(race.first.site),
                      places_.place(race.second.site)};
    // Addresses differ from one execution to another: the places tell races apart.
    const bool known =
        std::any_of(report_.races.begin(), report_.races.end(), [&](const RaceReport& other) {
          return to_string(other.first) == to_string(report.first) &&
                 to_string(other.second) == to_string(report.second);
        });
    if (!known) report_.races.push_back(std::move(report));
  }
  if (!detector.complete()) {
    add_once(report_.void_reasons,
             "races may have been missed: there were too many accesses to tell");
  }
}

void Checker::add_weak(const Trace& trace) {
  for (const WeakReason& reason : find_weak(trace)) {
    std::string why = to_string(reason, trace);
    if (!reason.gave_up) {
      const auto place = [&](std::uint32_t op) {
        return to_string(places_.place(trace.sites[trace.ops[op].site]));
      };
      why = concat(place(reason.first), " and ", place(reason.second), ": ", why);
    }
    add_once(report_.void_reasons, why);
  }
}

}  // namespace holdfast::check
