#include "check/executions.hpp"

#include <charconv>

namespace holdfast::check {

using detail::concat;

ReplayName parse_replay(const std::string& text) {
  ReplayName name;
  name.state = text;
  for (std::size_t at = name.state.find('@'); at != std::string::npos; at = name.state.find('@')) {
    const std::string part = name.state.substr(0, at + 1);
    name.state.erase(0, at + 1);
    if (part == concat(to_string(Model::sbrp), "@")) {
      name.model = Model::sbrp;
    } else if (part == concat(to_string(Model::epoch), "@")) {
      name.model = Model::epoch;
    } else {
      name.execution += part;
    }
  }
  return name;
}

Executions::Executions(Machine& machine, const Options& options)
    : machine_(machine), seed_(options.schedule) {}

std::optional<Trace> Executions::next() {
  if (made_ != 0) return std::nullopt;
  machine_.set_schedule(seed_);
  Trace trace = machine_.record();
  made_ = 1;
  complete_ = !machine_.had_choices();
  return trace;
}

Trace Executions::again(const std::string& name) {
  if (!name.empty()) {
    const char* const end = name.data() + name.size() - 1;
    std::uint64_t seed = 0;
    const auto [at, error] = std::from_chars(name.data() + 1, end, seed);
    if (name.front() != 's' || error != std::errc() || at != end || *end != '@') {
      throw Error(Errc::invalid_argument,
                  concat("'", name, "' names no execution of this program: take the whole state ",
                         "from a report, such as s7@12:345.350"));
    }
    seed_ = seed;
  }
  machine_.set_schedule(seed_);
  made_ = 1;
  return machine_.record();
}

std::string Executions::name() const { return seed_ == 0 ? "" : concat("s", seed_, "@"); }

}  // namespace holdfast::check
