// All executions of a litmus test, one operation of one thread at a time.
#pragma once

#include <cstdint>
#include <functional>

#include "check/litmus.hpp"
#include "check/trace.hpp"

namespace holdfast::check {

struct ExecutionOptions {
  Model model = Model::sbrp;  // says which fences wait
  // Leaves out executions whose crash states others have, too. Without it, every interleaving.
  bool reduce = true;
  std::uint64_t max_executions = 200'000;
};

// Calls visit(trace) for each execution, until it returns false; returns how many there were. One
// in which threads wait forever is an execution, too. Throws unsupported if there are more than
// max_executions, invalid_argument if a thread waits for a value that never comes.
std::uint64_t for_each_execution(const LitmusTest& test, const ExecutionOptions& options,
                                 const std::function<bool(const Trace&)>& visit);

}  // namespace holdfast::check
