// Tries one crash state of the program, and the crashes inside its recovery.
#include <cstring>
#include <set>
#include <unordered_set>
#include <utility>

#include "check/checker.hpp"

namespace holdfast::check {

OrderOptions Checker::order_options(Moments moments) const {
  OrderOptions result;
  result.model = model_;
  result.moments = moments;
  result.axioms.barrier_alone = options_.barrier_orders;
  return result;
}

std::uint64_t signature(const Order& order) {
  std::uint64_t result = 0;
  const auto add = [&](std::uint64_t value) {
    result = (result ^ value) * 0xff51afd7ed558ccdu;
    result ^= result >> 32;
  };
  for (std::uint32_t i = 0; i < order.writes().size(); ++i) {
    const Write& write = order.writes()[i];
    add(write.address);
    add(write.size);
    std::uint64_t value = 0;
    std::memcpy(&value, order.trace().bytes.data() + write.value, write.size);
    add(value);
    add(order.down(i).hash());
  }
  for (const CrashPoint& point : order.points()) {
    add(point.executed);
    add(point.durable.hash());
    add(std::uint64_t{point.started} << 32 | point.acknowledged);
  }
  return result;
}

Outcome Checker::run_state(const Bitset& durable, const CrashPoint& point,
                           std::optional<std::uint32_t> group) {
  ++states_;
  const auto number = static_cast<std::size_t>(&point - order_->points().data());
  const Level level{order_.get(), &durable, number};
  std::vector<Recovery> recoveries;
  RunOptions run;
  if (options_.nested) run.recoveries = &recoveries;
  if (options_.robust) run.judge = [&] { return not_robust(durable, point); };
  const Recovered result = machine_.run({&level, 1}, history_of(point), run);
  machine_.note_flows(groups_);
  Outcome outcome{machine_.footprint().reads(0), 0};
  if (!result.wrong.empty()) {
    outcome.verdict =
        note({result.wrong, number, durable, result.schedule, nullptr, nullptr, 0, {}});
  } else if (options_.nested) {
    run_nested(durable, point, std::move(recoveries), group, outcome);
  }
  return outcome;
}

void Checker::run_nested(const Bitset& durable, const CrashPoint& point,
                         std::vector<Recovery>&& recoveries, std::optional<std::uint32_t> group,
                         Outcome& outcome) {
  const std::uint64_t before = nested_states_;
  std::set<std::uint64_t> seen;  // what a crash may leave of a recovery
  for (Recovery& one : recoveries) {
    if (machine_.threads_have_talked()) add_weak(one.trace);
    Finding crash;
    crash.point = static_cast<std::size_t>(&point - order_->points().data());
    crash.durable = durable;
    crash.recovery = std::make_shared<const Recovery>(std::move(one));
    crash.order = std::make_shared<const Order>(crash.recovery->trace, order_options());
    if (crash.order->writes().empty() || !seen.insert(signature(*crash.order)).second) continue;
    explore_nested(crash, group, most_nested_ - std::min(most_nested_, nested_states_ - before),
                   outcome);
    if (outcome.verdict != 0) return;
  }
}

void Checker::explore_nested(const Finding& crash, std::optional<std::uint32_t> group,
                             std::uint64_t most, Outcome& outcome) {
  const Order& order = *crash.order;
  const History history = history_of(order_->points()[crash.point]);
  std::unordered_set<std::uint32_t> known(outcome.reads.begin(), outcome.reads.end());
  const std::uint64_t before = nested_states_;

  Explorer explorer(order, [&](const Bitset& again, const CrashPoint& where) {
    ++states_;
    ++nested_states_;
    const auto number = static_cast<std::size_t>(&where - order.points().data());
    const Level levels[] = {{order_.get(), &crash.durable, crash.point, &crash.recovery->schedule},
                            {&order, &again, number}};
    const Recovered result = machine_.run(levels, history);
    machine_.note_flows(groups_);
    // What only the second recovery reads is part of what the first state must fix, too.
    for (const std::uint32_t cell : machine_.footprint().reads(0)) {
      if (known.insert(cell).second) outcome.reads.push_back(cell);
    }
    Outcome nested{machine_.footprint().reads(1), 0};
    if (!result.wrong.empty()) {
      Finding finding = crash;
      finding.message = result.wrong;
      finding.schedule = result.schedule;
      finding.nested_point = number;
      finding.nested_durable = again;
      nested.verdict = note(std::move(finding));
    }
    return nested;
  });
  explorer.on_state([&](const StateSeen& seen) {
    if (seen.outcome.verdict != 0) outcome.verdict = seen.outcome.verdict;
    return seen.outcome.verdict == 0;
  });
  explorer.stop_when([&] { return out_of_budget() || nested_states_ - before >= most; });
  const bool complete = explorer.explore(filter_for(order, group));
  if (!complete && outcome.verdict == 0) nested_cut_ = true;
}

}  // namespace holdfast::check
