#include "check/executions.hpp"

#include "check/happens.hpp"

namespace holdfast::check {

Executions::Executions(Machine& machine, const Options& /*options*/) : machine_(machine) {}

std::optional<Trace> Executions::next() {
  while (!over_) {
    schedules_.begin();
    Trace trace = machine_.record(schedules_);
    const bool redundant = schedules_.redundant();
    if (!redundant) name_ = schedules_.name();
    over_ = !schedules_.end();
    if (!redundant) return late_host(trace);
  }
  return std::nullopt;
}

bool Executions::complete() const { return over_ && !schedules_.was_cut(); }

double Executions::share() const {
  const double share = schedules_.share();
  return complete() || share < 1 ? share : 0.999;  // a loop was cut: all but that
}

Trace Executions::replay(std::string_view name) {
  Schedules one;
  one.begin_named(name);
  return late_host(machine_.record(one));
}

}  // namespace holdfast::check
