// The executions of a program that are not equivalent, one after another.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "check/machine.hpp"

namespace holdfast::check {

// A state of Options::replay: the execution ("s7@"; empty: that of Options::schedule), the model
// ("epoch@"; nothing: sbrp, or the one that was asked for), and the state under it.
struct ReplayName {
  std::string execution;
  std::optional<Model> model;
  std::string state;
};
ReplayName parse_replay(const std::string& text);

class Executions {
 public:
  Executions(Machine& machine, const Options& options);

  // Runs the program under the next schedule and records it; nothing: there are no more. Throws
  // what the program's run() throws.
  std::optional<Trace> next();
  // The execution that name() named. Throws invalid_argument where the text names none.
  Trace again(const std::string& name);

  // The last execution, as a prefix of the names of its states; empty for schedule 0.
  std::string name() const;
  bool complete() const { return complete_; }         // all have been made
  double share() const { return complete_ ? 1 : 0; }  // of all; 0: unknown
  std::uint64_t made() const { return made_; }

 private:
  Machine& machine_;
  std::uint64_t seed_;
  std::uint64_t made_ = 0;
  bool complete_ = false;
};

}  // namespace holdfast::check
