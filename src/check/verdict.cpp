// What a report amounts to.
#include <algorithm>
#include <array>

#include "holdfast/check.hpp"
#include "holdfast/error.hpp"

namespace holdfast::check {

using detail::concat;

namespace {

void add_up(Report& report) {
  report.rung = Rung::exhaustive;
  report.complete = report.nested_complete = !report.models.empty();
  report.states = report.nested_states = report.runs = report.memoised = 0;
  for (const ModelReport& model : report.models) {
    report.rung = std::max(report.rung, model.rung);
    report.complete = report.complete && model.complete;
    report.nested_complete = report.nested_complete && model.nested_complete;
    report.states += model.states;
    report.nested_states += model.nested_states;
    report.runs += model.runs;
    report.memoised += model.memoised;
  }
}

std::string schedules_limit(const Report& report) {
  const std::string made =
      concat(report.schedules, report.schedules == 1 ? " schedule" : " schedules");
  if (report.schedules_share <= 0) return concat(made, " of unknown many");
  const auto percent = report.schedules_share * 100;
  return concat(made, ", about ", percent < 1 ? "less than 1" : concat(static_cast<int>(percent)),
                " % of all");
}

std::string recovery_limit(const Report& report) {
  if (report.recovery_raced) return "recovery or verify() has a race, or one may have been missed";
  if (report.recovery_schedules < 2) return "1 schedule of recovery for each state";
  return concat("up to ", report.recovery_schedules, " schedules of recovery for each state");
}

std::vector<std::string> limits_of(const Report& report) {
  std::vector<std::string> limits;
  const auto has = [&](Model model) {
    return std::any_of(report.models.begin(), report.models.end(),
                       [&](const ModelReport& one) { return one.model == model; });
  };
  for (const auto& [model, other] :
       {std::pair(Model::sbrp, Model::epoch), std::pair(Model::epoch, Model::sbrp)}) {
    if (has(model) && !has(other)) limits.push_back(concat("only model ", to_string(model)));
  }
  if (report.rung == Rung::replay) {
    limits.emplace_back("one state");
    return limits;
  }
  if (!report.schedules_complete) limits.push_back(schedules_limit(report));
  for (const ModelReport& model : report.models) {
    const std::string under = concat(" under ", to_string(model.model));
    if (model.rung == Rung::sampled) {
      limits.push_back(concat(model.states, " states", under, ", with ", model.pairs_tried, " of ",
                              model.pairs, " pairs of persists in both orders"));
    } else if (!model.complete) {
      limits.push_back(concat(model.states, " states of unknown many", under));
    } else if (!model.nested_complete) {
      limits.push_back(concat("crashes inside recovery not to the end", under));
    }
  }
  if (!report.recovery_complete) limits.push_back(recovery_limit(report));
  if (report.shares < report.share_of) {
    limits.push_back(concat("the share of ", report.shares, " of ", report.share_of, " workers"));
  }
  if (!report.races_sought) limits.emplace_back("races were not looked for");
  if (report.barrier_orders) limits.emplace_back("barriers were taken to order persists");
  return limits;
}

}  // namespace

void conclude(Report& report) {
  add_up(report);
  report.limits = limits_of(report);
  report.verdict = !report.failures.empty()       ? Verdict::failed
                   : !report.races.empty()        ? Verdict::racy
                   : !report.void_reasons.empty() ? Verdict::void_
                   : !report.limits.empty()       ? Verdict::none_found
                                                  : Verdict::passed;
}

}  // namespace holdfast::check
