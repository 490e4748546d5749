// Runs litmus tests: all executions, all crash points, all crash states.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "check/litmus.hpp"
#include "check/litmus_ptx.hpp"
#include "check/order.hpp"

namespace holdfast::check {

struct LitmusOptions {
  bool sbrp = true;
  bool epoch = true;
  bool brute = false;  // try every crash state, too, and compare
  Axioms axioms{};
  bool reduce = true;  // see ExecutionOptions
  std::uint64_t max_executions = 200'000;
  std::uint64_t max_runs = 20'000'000;  // of recovery, for each test and engine
};

// What recovery read, value by value, up to where it stopped.
using LitmusOutcome = std::vector<std::uint64_t>;

struct LitmusOutcomes {
  std::set<LitmusOutcome> all;
  bool reached = false;  // the condition held in one of them
  std::uint64_t executions = 0;
  std::uint64_t persists = 0;      // of the execution that has most
  std::uint64_t runs = 0;          // of recovery
  std::uint64_t runs_of_most = 0;  // those for executions of more than 12 persists
};

// Every crash state of every point of every execution. Both throw as for_each_execution(), and
// unsupported at more than max_runs.
LitmusOutcomes run_brute(const LitmusTest& test, Model model, const LitmusOptions& options = {});
// Those that recovery can tell apart.
LitmusOutcomes run_lazy(const LitmusTest& test, Model model, const LitmusOptions& options = {});

// The bytes of persistent memory, from persistent_range(test).begin, in a crash state.
std::vector<std::byte> image_of(const LitmusTest& test, const Order& order, const Bitset& durable);

struct LitmusResult {
  std::string name;
  std::string comment;
  std::string file;
  std::uint32_t line = 0;
  Model model = Model::sbrp;
  std::optional<Memory> memory;  // of a test without a crash, in place of the model
  bool expected = false;         // allowed
  bool found = false;            // reached
  std::uint64_t executions = 0;
  std::uint64_t persists = 0;
  std::uint64_t outcomes = 0;
  std::uint64_t lazy_runs = 0;
  std::optional<std::uint64_t> brute_runs;  // crash states, each tried
  bool engines_agree = true;
  double milliseconds = 0;

  bool passed() const { return expected == found && engines_agree; }
  const char* model_name() const { return memory ? to_string(*memory) : to_string(model); }
};

struct LitmusReport {
  std::vector<LitmusResult> results;
  std::size_t tests = 0;

  std::size_t failures() const;
  bool passed() const { return failures() == 0; }
};

// Of a folder: all its .litmus files, by name. Throws not_found if there is none.
std::vector<LitmusTest> load_litmus(const std::vector<std::string>& paths);

LitmusReport run_litmus(const std::vector<LitmusTest>& tests, const LitmusOptions& options = {});
LitmusReport run_litmus(const std::vector<std::string>& paths, const LitmusOptions& options = {});

std::string to_json(const LitmusReport& report);
std::string to_table(const LitmusReport& report);

}  // namespace holdfast::check
