// Explores the crash states of one program, rung by rung.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "check/explore.hpp"
#include "check/failure.hpp"
#include "check/groups.hpp"
#include "check/machine.hpp"
#include "check/mutate.hpp"
#include "check/robust.hpp"

namespace holdfast::check {

// What is wrong with a state.
struct Finding {
  std::string message;
  // The state itself; for a crash inside recovery, the first crash.
  std::size_t point = 0;
  Bitset durable;
  // For a crash inside recovery: what recovery did, its order, and where it was cut off.
  std::shared_ptr<const Trace> recovery;
  std::shared_ptr<const Order> order;
  std::size_t nested_point = 0;
  Bitset nested_durable;
};

// A program that has been recorded, ready for any number of mutations.
class Checker {
 public:
  Checker(const Program& program, const Options& options);
  ~Checker();

  // The program as it is, or with `mutation`. `find_causes`: whether failures are shrunk.
  Report check(const Mutation& mutation, bool find_causes);
  Report replay(const std::string& state);
  // Runs the program once more and adds its races to the report.
  void find_races(Report& report);
  // Says where recover() or verify() reads without being instrumented.
  void add_unseen(Report& report);

  // Adds to the failure of a report a change that mends it, if a simple one does: it is made in
  // what was recorded, and that is checked again.
  void suggest(Report& report);

  // What the program and its recovery offer for mutation.
  struct Target {
    Mutation mutation;
    Place place;
    bool in_run = false;
    bool in_recovery = false;
  };
  std::vector<Target> targets();
  // Whether the mutation leaves the order of the program's own persists as it is.
  bool changes_nothing(const Mutation& mutation);

 private:
  friend class Sampler;
  using Clock = std::chrono::steady_clock;
  using CellFilter = std::function<bool(std::uint32_t)>;

  void start(const Mutation& mutation);
  bool out_of_budget() const;
  // One state of the program, and the crashes inside recovery of the groups that `group` takes in.
  Outcome run_state(const Bitset& durable, const CrashPoint& point,
                    std::optional<std::uint32_t> group);
  void run_nested(const Bitset& durable, const CrashPoint& point, const Trace& recovery,
                  std::optional<std::uint32_t> group, Outcome& outcome);
  std::unique_ptr<Explorer> make_explorer(std::optional<std::uint32_t> group);
  CellFilter filter_for(const Order& order, std::optional<std::uint32_t> group) const;
  std::uint32_t note(Finding finding);
  // What is wrong with what recovery read in a state of the program; empty unless that is asked
  // for.
  std::string not_robust(const Bitset& durable, const CrashPoint& point) const;
  // The number of a half word, as Groups counts.
  std::uint32_t half_of(std::uint64_t address) const {
    return static_cast<std::uint32_t>((address - machine_.range().begin) / 4);
  }

  bool explore_all(std::uint64_t most);
  void look_around();
  bool explore_groups();
  void climb();
  void fill_report(Report& report);
  void add_hints(Report& report) const;
  Failure explain(const Finding& finding, bool find_causes);

  const Program& program_;
  Options options_;
  Machine machine_;
  Places places_;
  Trace recorded_;
  std::vector<std::uint32_t> ever_read_;  // cells of the program's order, as a set by index
  Groups groups_;

  // Of the current check:
  Mutation mutation_;
  Trace trace_;
  std::unique_ptr<Order> order_;
  std::unique_ptr<Robustness> robustness_;
  std::vector<Finding> findings_;  // verdict n is findings_[n - 1]
  Report report_;
  std::uint64_t states_ = 0;
  std::uint64_t nested_states_ = 0;
  std::uint64_t most_states_ = 0;  // of the current rung
  std::uint64_t most_nested_ = 0;  // of one state of the program
  bool nested_cut_ = false;
  bool stop_at_findings_ = true;
  Clock::time_point begun_;
};

}  // namespace holdfast::check
