#include "check/executions.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "check/failure.hpp"
#include "check/happens.hpp"

namespace holdfast::check {

using detail::concat;

ReplayName parse_replay(const std::string& text) {
  ReplayName name;
  name.state = text;
  const auto take = [&](std::string& part) {
    const std::size_t at = name.state.find('@');
    if (at == std::string::npos) bad_form(text);
    part = name.state.substr(0, at + 1);
    name.state.erase(0, at + 1);
  };
  const auto begins_with = [&](Model model) {
    return name.state.rfind(concat(to_string(model), "@"), 0) == 0;
  };
  const auto take_model = [&](Model model) {
    if (name.model || !begins_with(model)) return;
    std::string part;
    take(part);
    name.model = model;
  };
  const bool has_model = begins_with(Model::sbrp) || begins_with(Model::epoch);
  const char first = name.state.empty() ? '\0' : name.state.front();
  if (!has_model && (first == 's' || first == 'x')) take(name.execution);
  take_model(Model::sbrp);
  take_model(Model::epoch);
  return name;
}

Executions::Executions(Machine& machine, const Options& options)
    : machine_(machine), seed_(options.schedule), most_(options.schedules) {}

Trace Executions::first() {
  machine_.set_schedule(seed_);
  if (before_run_) before_run_();
  Trace trace = machine_.record();
  begun_ = true;
  over_ = !machine_.had_choices();
  return trace;
}

std::optional<Trace> Executions::next() {
  if (!begun_) {
    Trace trace = first();
    if (over_ || most_ == 0 || !machine_.went_by_chance()) return trace;
    spare_ = std::move(trace);
  }
  while (!over_ && !given_up_ && schedules_.made() < most_) {
    if (before_run_) before_run_();
    schedules_.begin();
    std::optional<Trace> trace;
    try {
      trace = machine_.record(schedules_);
    } catch (const Error& error) {
      if (error.code() != Errc::unsupported) throw;
      given_up_ = true;
      break;
    }
    const bool redundant = schedules_.redundant();
    if (!redundant) name_ = schedules_.name();
    over_ = !schedules_.end();
    if (redundant) continue;
    explored_ = true;
    spare_.reset();
    return late_host(*trace);
  }
  return std::exchange(spare_, std::nullopt);
}

Trace Executions::again(const std::string& name) {
  const std::string_view text = name;
  if (text.starts_with('x') && text.ends_with('@')) {
    name_ = text.substr(1, text.size() - 2);
    explored_ = true;
    Schedules one;
    one.begin_named(name_);
    const Trace trace = machine_.record(one);
    if (one.name() == name_) return late_host(trace);
    throw OptionError(concat("'", name,
                             "' names no execution of this program: take the whole state from ",
                             "a report, such as x102@12:345.350"));
  }
  if (!name.empty()) {
    const char* const end = name.data() + name.size() - 1;
    std::uint64_t seed = 0;
    const auto [at, error] = std::from_chars(name.data() + 1, end, seed);
    const bool is_one = error == std::errc() && name == concat("s", seed, "@");
    if (!is_one || at != end) {
      throw OptionError(concat("'", name, "' names no execution of this program: take the whole ",
                               "state from a report, such as s7@12:345.350"));
    }
    seed_ = seed;
  }
  return first();
}

std::string Executions::name() const {
  if (explored_) return concat("x", name_, "@");
  return seed_ == 0 ? "" : concat("s", seed_, "@");
}

bool Executions::complete() const { return over_ && !given_up_ && !schedules_.was_cut(); }

double Executions::share() const {
  if (complete()) return 1;
  if (given_up_ || schedules_.made() == 0) return 0;
  return std::min(schedules_.share(), 0.999);  // a loop was cut: all but that
}

std::uint64_t Executions::made() const {
  return std::max<std::uint64_t>(schedules_.made(), begun_ ? 1 : 0);
}

}  // namespace holdfast::check
