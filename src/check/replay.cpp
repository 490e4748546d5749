// Tries again one state that a report named, and explains what fails.
#include <utility>

#include "check/checker.hpp"

namespace holdfast::check {

using detail::concat;

Report Checker::replay(const std::string& text) {
  const ReplayName name = parse_replay(text);
  const std::vector<StateName> parts = parse_state(name.state, text);
  if (name.model && options_.model && *name.model != *options_.model) {
    throw OptionError(concat("--replay is '", text, "', a state under ", to_string(*name.model),
                             ", but --model is ", to_string(*options_.model),
                             ": leave --model out, or give the state's"));
  }
  if (name.model) options_.model = name.model;
  if (!options_.model) options_.model = Model::sbrp;
  begin_report();
  report_.races_sought = false;
  Executions executions(machine_, options_);
  trace_ = executions.again(name.execution);
  moments_ = executions.moments();
  ModelReport& part = report_.models.front();
  start(part);
  Finding finding;
  finding.point = parts[0].point;
  finding.durable = state_of(*order_, parts[0]);
  finding.schedule = parts[0].schedule;
  const CrashPoint& point = order_->points()[finding.point];
  machine_.name_states(text.substr(0, text.size() - name.state.size()));
  const Level level{order_.get(), &finding.durable, finding.point, &parts[0].schedule};
  std::vector<Recovery> recoveries;
  RunOptions run;
  run.recoveries = &recoveries;
  if (options_.robust) run.judge = [&] { return not_robust(finding.durable, point); };
  finding.message = machine_.run_named({&level, 1}, history_of(point), finding.schedule, run).wrong;
  ++states_;
  if (parts.size() > 1) {
    finding.recovery = std::make_shared<const Recovery>(std::move(recoveries.front()));
    finding.order = std::make_shared<const Order>(finding.recovery->trace, order_options());
    finding.nested_point = parts[1].point;
    finding.nested_durable = state_of(*finding.order, parts[1]);
    finding.schedule = parts[1].schedule;
    const Level levels[] = {
        level,
        {finding.order.get(), &finding.nested_durable, finding.nested_point, &parts[1].schedule}};
    finding.message = machine_.run_named(levels, history_of(point), finding.schedule).wrong;
    ++states_;
    ++nested_states_;
  }
  if (!finding.message.empty()) {
    Failure& failure = report_.failures.emplace_back(explain(finding, true));
    const std::size_t prefix = text.size() - name.state.size();
    failure.state = text.substr(0, prefix) + failure.state;
    failure.model = model_;
    part.failed = true;
  }
  part.rung = Rung::replay;
  part.nested_complete = false;
  part.states = states_;
  part.nested_states = nested_states_;
  part.runs = machine_.runs();
  part.memoised = machine_.memoised();
  report_.schedules = 1;
  finish_report();
  return report_;
}

Recovered Checker::run_again(const Finding& finding, const Bitset& state, bool watched) {
  ++states_;
  const bool nested = finding.order != nullptr;
  const CrashPoint& point = order_->points()[finding.point];
  const std::string* const first = nested ? &finding.recovery->schedule : nullptr;
  const Level levels[] = {{order_.get(), nested ? &finding.durable : &state, finding.point, first},
                          {finding.order.get(), &state, finding.nested_point}};
  RunOptions run;
  if (options_.robust && !nested) run.judge = [&] { return not_robust(state, point); };
  const std::span<const Level> all{levels, nested ? 2u : 1u};
  if (!watched) return machine_.run_unwatched(all, history_of(point), finding.schedule, run);
  return machine_.run(all, history_of(point), run);
}

// It fails once more, and not because its pages are protected.
void Checker::confirm(const Finding& finding, const Bitset& state) {
  if (options_.robust || !run_again(finding, state, false).wrong.empty()) return;
  throw Error(
      Errc::unsupported,
      concat("check: a crash state of program '", program_.name, "' fails (", finding.message,
             ") and passes when it is recovered from again: recover() or verify() hands persistent "
             "memory to a system call, such as read(), write() or fread(), which watched pages "
             "refuse: let it go through a buffer; or they keep something from one call to the "
             "next, where a crash keeps the region alone"));
}

Failure Checker::explain(const Finding& finding, bool find_causes) {
  Failure failure;
  failure.message = printable(finding.message);
  failure.nested = finding.order != nullptr;
  const Order& order = failure.nested ? *finding.order : *order_;
  const std::size_t point = failure.nested ? finding.nested_point : finding.point;
  const Bitset& durable = failure.nested ? finding.nested_durable : finding.durable;
  const auto name = [&](const Bitset& state, const std::string& schedule) {
    const std::string own = name_state(order, {point, {}, schedule}, state);
    if (!failure.nested) return own;
    const StateName first{finding.point, {}, finding.recovery->schedule};
    return concat(name_state(*order_, first, finding.durable), "/", own);
  };
  failure.state = name(durable, finding.schedule);
  if (!find_causes) return failure;
  confirm(finding, durable);

  const Fails fails = [&](const Bitset& state) { return !run_again(finding, state).wrong.empty(); };
  const Cause cause =
      find_cause({&order, point, durable}, order_options(failure.nested ? Moments::cuts : moments_),
                 failure.nested, fails);
  if (!(cause.smallest == durable)) {  // which may fail in another way, and under another schedule
    const Recovered again = run_again(finding, cause.smallest);
    failure.message = printable(again.wrong);
    failure.state = name(cause.smallest, again.schedule);
  }
  describe(failure, cause, order, point, machine_, places_);
  return failure;
}

}  // namespace holdfast::check
