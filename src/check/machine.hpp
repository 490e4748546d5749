// Runs a program under check: once as it is, then recovery on one crash state after another.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "check/groups.hpp"
#include "check/host_watch.hpp"
#include "check/level.hpp"
#include "check/mutate.hpp"
#include "check/recorder.hpp"
#include "check/schedules.hpp"
#include "check/vigil.hpp"
#include "holdfast/check.hpp"
#include "holdfast/cpu/chooser.hpp"
#include "holdfast/cpu/executor.hpp"

namespace holdfast::check {

// What recovery did under one schedule of it.
struct Recovery {
  std::string schedule;  // its name; empty: the one that kernels have in any test
  Trace trace;
};

// What came of a crash state, under all schedules of recovery that are not equivalent.
struct Recovered {
  std::string wrong;     // empty, or what is wrong after the first that fails
  std::string schedule;  // the name of that one
};

// What run() is to do beside.
struct RunOptions {
  // Where to add what recover() did under each schedule that was run, or null.
  std::vector<Recovery>* recoveries = nullptr;
  // What else is wrong, by what the run at hand has read; or null.
  std::function<std::string()> judge{};
};

// How many schedules of recovery there were.
struct RecoverySchedules {
  std::uint64_t most = 1;   // from one state
  bool complete = true;     // all of them, from every state
  bool have_raced = false;  // a race was met or may have been missed: which none of them decides
};

// Thread safety: one in a process at a time.
class Machine {
 public:
  // Makes the region and sets it up. Throws unsupported if this build delivers no events.
  Machine(const Program& program, const Options& options);
  ~Machine();
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;

  // From now on kernels run with the schedule of this seed.
  void set_schedule(std::uint64_t seed);
  // From now on the program and its recovery run as `mutation` changes them, `sites` being where
  // its place is.
  void change(const Mutation& mutation, std::vector<Site> sites);
  // Throws unsupported if something has stored to an object since, and no event told of it: a crash
  // state was not what it should have been.
  void check_clean();
  // Whether the change was met since.
  bool met_change() const { return mutator_ == nullptr || mutator_->met(); }
  // What states are called from now on, before the point: their execution and model.
  void name_states(std::string prefix) { vigil_.set_execution(std::move(prefix)); }
  bool dropped_wait() const { return mutator_ != nullptr && mutator_->dropped_wait(); }
  // Who hears what the program does as it is recorded, or null.
  void let_hear(cpu::Listener* also) { also_ = also; }
  // Who gathers what there is to change, in all runs; or null.
  void let_gather(Census* census) { census_ = census; }

  // Runs the program, from what set_up() left, and records it. Throws what run() throws.
  Trace record();
  // The same with kernels, streams and the host in the turns that `chooser` decides.
  Trace record(cpu::Chooser& chooser);
  // Whether what was recorded last might have gone another way: threads ran at once, or the host
  // ran beside what it had queued.
  bool had_choices() const { return had_choices_; }
  // Whether time decided which way it went: the host or streams ran beside each other.
  bool went_by_chance() const { return went_by_chance_; }
  // Of all recoveries since change().
  RecoverySchedules recovery_schedules() const;
  // Whether threads of a kernel told one another something by atomics, volatile accesses, releases
  // and acquires, in any run since change(): weak memory may make more of it than was run.
  bool threads_have_talked() const { return have_talked_; }

  // Puts the crash state into the region, recovers and verifies; and where recovery's threads tell
  // each other something, or the host or streams run beside them, does so again under each schedule
  // that is not equivalent, up to the first that fails. Afterwards footprint() tells what was read
  // of the levels' cells under all of them.
  // Without `recoveries`, a state in which everything that is read has been met before is not run
  // again: recovery under all its schedules is a function of what it reads.
  Recovered run(std::span<const Level> levels, const History& history,
                const RunOptions& options = {});
  // The same under the one schedule of that name. Throws invalid_argument where there is none.
  Recovered run_named(std::span<const Level> levels, const History& history,
                      const std::string& schedule, const RunOptions& options = {});
  // Under the schedule of that name, or the first; nobody watches the host.
  Recovered run_unwatched(std::span<const Level> levels, const History& history,
                          const std::string& schedule, const RunOptions& options);
  // How often recovery really ran.
  std::uint64_t runs() const { return runs_; }
  // How often it did not have to.
  std::uint64_t memoised() const { return memoised_; }
  // Where recover() or verify() read persistent memory unannounced, which is now noted at a price;
  // null: nowhere so far.
  const Site* unseen() const { return watch_always_ ? &unseen_ : nullptr; }

  const Footprint& footprint() const { return footprint_; }
  // Whether runs note who learnt what. What was remembered before is forgotten: it noted nothing.
  void follow_flows(bool follow) {
    if (follow) outcomes_.clear();
    footprint_.follow_flows(follow);
  }
  // Moves to `groups` what all runs since the last time have noted of who learnt what.
  void note_flows(Groups& groups) {
    footprint_.flows().take(
        [&](const auto& learnt, const auto& told) { groups.add(learnt, told); });
    if (footprint_.flows().races()) groups.give_up();
  }
  // How many words were found to differ from run to run; grows.
  std::size_t variable() const { return footprint_.variable(); }
  PersistentRange range() const { return range_; }
  // What the range held when run() began.
  std::span<const std::byte> before() const { return base_; }
  // "object+offset" of an address in the region.
  std::string name_of(std::uint64_t address) const;

 private:
  class RecordedSession;
  struct Run;
  template <class Around>
  Trace record_as(const Around& around);
  void check_end_of_run(const Trace& trace);
  std::optional<std::uint64_t> find_unrecorded(const Trace& trace) const;
  void restore(std::span<const Level> levels);
  void begin(std::span<const Level> levels);
  Recovered run_anew(std::span<const Level> levels, const History& history,
                     const RunOptions& options, Footprint::Noted& all);
  bool run_others(std::span<const Level> levels, const History& history, const RunOptions& options,
                  Footprint::Noted& all, Recovered& result);
  void run_once(std::span<const Level> levels, const History& history, const RunOptions& options,
                Run& run);
  void recover(std::span<const Level> levels, Run& run, HostWatch* watch);
  std::string verify(std::span<const Level> levels, const History& history, const Run& run,
                     HostWatch* watch);
  void check_alone();
  std::string describe_stray() const;
  static std::string at_line(const Site& site);
  void judge(const HostWatch& watch);
  [[noreturn]] void refuse_run(const std::string& what) const;
  [[noreturn]] void refuse_recovery(const std::string& what) const;
  // A byte of an object that is not as in `expected`, which is as large as the region.
  std::optional<std::uint64_t> find_difference(std::span<const std::byte> expected) const;
  const ObjectInfo* object_at(std::uint64_t address) const;  // null: the bytes are the region's own
  const Recovered* known(const History& history);
  void remember(const History& history, const Recovered& result);

  const Program& program_;
  Vigil vigil_;  // before anything else handles signals
  cpu::Schedule schedule_before_;
  std::unique_ptr<Mutator> mutator_;
  cpu::Listener* also_ = nullptr;
  Census* census_ = nullptr;
  bool had_choices_ = false;
  bool went_by_chance_ = false;
  RecoverySchedules recovery_schedules_;
  bool explored_unseen_ = false;  // a schedule of recovery was run while nobody watched the host
  bool have_talked_ = false;
  Region region_;
  bool robust_;  // what verify() says does not count
  bool seeks_races_;
  std::uint64_t most_schedules_;  // of recovery, beside the first
  PersistentRange range_;
  std::vector<std::byte> base_;        // the region as set_up() left it
  std::vector<ObjectInfo> objects_;    // its objects
  std::vector<std::uint32_t> placed_;  // words that the last state put into the region
  Footprint footprint_;
  Recorder recorder_;
  std::map<std::uint64_t, DecisionTree<Recovered>> outcomes_;  // by history
  std::size_t variable_ = 0;  // words that may differ, when these were recorded
  std::uint64_t runs_ = 0;
  std::uint64_t memoised_ = 0;
  std::uint64_t clean_runs_ = 0;  // before check_clean() was last called
  // Runs in which unannounced accesses would be seen are slow: all at first, later some, and all
  // again once there was one.
  std::uint64_t watch_faults_ = 0;
  bool watch_always_ = false;
  bool watch_never_ = false;
  bool unwatched_ = false;  // there was a run without
  Site unseen_;
};

}  // namespace holdfast::check
