// Explores the crash states of one program, rung by rung.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "check/executions.hpp"
#include "check/explore.hpp"
#include "check/failure.hpp"
#include "check/groups.hpp"
#include "check/machine.hpp"
#include "check/mutate.hpp"
#include "check/robust.hpp"

namespace holdfast::check {

class RaceDetector;

inline History history_of(const CrashPoint& point) { return {point.started, point.acknowledged}; }

// What a crash may leave of an execution, as a number.
std::uint64_t signature(const Order& order);

// What is wrong with a state.
struct Finding {
  std::string message;
  // The state itself; for a crash inside recovery, the first crash.
  std::size_t point = 0;
  Bitset durable;
  std::string schedule;  // of the recovery that fails, as Recovered has it
  // For a crash inside recovery: what the first recovery did, its order, and where it was cut off.
  std::shared_ptr<const Recovery> recovery;
  std::shared_ptr<const Order> order;
  std::size_t nested_point = 0;
  Bitset nested_durable;
};

// Explores one program: as it is, and as any number of mutations make it.
class Checker {
 public:
  Checker(const Program& program, const Options& options);
  ~Checker();

  // The program as it is, or as change() made it. `find_causes`: whether failures are shrunk.
  // Throws what the program's run() throws.
  Report check(bool find_causes);
  Report replay(const std::string& state);
  // For tests: leaves out the rungs before this one, even where they would do.
  void start_at(Rung rung) { first_rung_ = rung; }
  // Says where recover() or verify() reads without being instrumented.
  void add_unseen(Report& report);

  // Adds to the failure of a report a change that mends it, if a simple one does: the program is
  // run with it and checked again. REQUIRES: the report is that of the last check().
  void suggest(Report& report);

  // What the program and its recovery offer for mutation.
  struct Target {
    Mutation mutation;
    Place place;
    std::vector<Site> sites;
    bool in_run = false;
    bool in_recovery = false;
  };
  const std::vector<Target>& targets();
  // From now on the program and its recovery run with the mutation, which may be `none`.
  void change(const Mutation& mutation);
  // Whether any run since met what is changed.
  bool met_change() const { return machine_.met_change(); }
  bool dropped_wait() const { return machine_.dropped_wait(); }
  bool threads_have_talked() const { return machine_.threads_have_talked(); }
  // Whether check() threw because the program's run() did.
  bool run_failed() const { return run_failed_; }
  // The first execution's, and how many are explored behind it.
  void set_schedule(std::uint64_t seed, std::uint64_t schedules) {
    options_.schedule = seed;
    options_.schedules = schedules;
  }

 private:
  friend class Sampler;
  using Clock = std::chrono::steady_clock;
  using CellFilter = std::function<bool(std::uint32_t)>;

  std::vector<Model> models() const;
  void begin_report();
  // Of an execution: its states under one model.
  void start(ModelReport& part);
  void explore(ModelReport& part, const std::string& execution, bool find_causes);
  std::string prefix_of(const std::string& execution) const;
  bool is_spent(const ModelReport& part) const;
  // Those that are called `place`.
  std::vector<Site> sites_at(const std::string& place, const std::vector<Site>& among);
  std::vector<Site> sites_to_add_to(const Mutation& mutation);
  void add_races(const RaceDetector& detector);
  // Says where a GPU may do what no schedule of the executor does, in the program or in recovery.
  void add_weak(const Trace& trace);
  bool out_of_budget() const;
  // One state of the program, and the crashes inside recovery of the groups that `group` takes in.
  Outcome run_state(const Bitset& durable, const CrashPoint& point,
                    std::optional<std::uint32_t> group);
  // The crashes inside recovery, under each of its schedules.
  void run_nested(const Bitset& durable, const CrashPoint& point,
                  std::vector<Recovery>&& recoveries, std::optional<std::uint32_t> group,
                  Outcome& outcome);
  // Those of one, `most` states at most.
  void explore_nested(const Finding& crash, std::optional<std::uint32_t> group, std::uint64_t most,
                      Outcome& outcome);
  // Of a crash inside recovery all moments are looked at, since its threads may run in other
  // orders.
  OrderOptions order_options(Moments moments = Moments::cuts) const;
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
  void finish_report();
  void add_hints(Report& report) const;
  Failure explain(const Finding& finding, bool find_causes);
  // Runs the finding's state again, or one that takes its place, under all schedules of recovery.
  Recovered run_again(const Finding& finding, const Bitset& state, bool watched = true);
  // Throws unsupported if the state does not fail again.
  void confirm(const Finding& finding, const Bitset& state);

  const Program& program_;
  Options options_;
  Machine machine_;
  Places places_;
  std::vector<Target> targets_;
  std::vector<Site> sites_of_failure_;  // of the execution that failed
  bool has_targets_ = false;
  bool run_failed_ = false;
  std::vector<std::uint32_t> ever_read_;  // cells of the program's order, as a set by index
  Groups groups_;

  // Of the current check, over all executions:
  Report report_;
  Clock::time_point begun_;
  std::set<std::pair<Model, std::uint64_t>> seen_;  // what a crash may leave of an execution
  // Of the current execution and model:
  Model model_ = Model::sbrp;
  Trace trace_;
  std::uint64_t part_number_ = 0;  // of an execution's states under a model
  Moments moments_ = Moments::prefixes;
  std::unique_ptr<Order> order_;
  std::unique_ptr<Robustness> robustness_;
  std::vector<Finding> findings_;  // verdict n is findings_[n - 1]
  Rung rung_ = Rung::exhaustive;
  bool complete_ = false;
  std::uint64_t components_ = 0;
  std::uint64_t pairs_ = 0;
  std::uint64_t pairs_tried_ = 0;
  std::uint64_t budget_ = 0;  // of states
  Rung first_rung_ = Rung::exhaustive;
  std::uint64_t states_ = 0;
  std::uint64_t nested_states_ = 0;
  std::uint64_t most_states_ = 0;  // of the current rung
  std::uint64_t most_nested_ = 0;  // of one state of the program
  bool nested_cut_ = false;
  std::optional<Clock::time_point> deadline_;
};

}  // namespace holdfast::check
