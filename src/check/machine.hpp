// Runs a program under check: once as it is, then recovery on one crash state after another.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "check/groups.hpp"
#include "check/host_watch.hpp"
#include "check/mutate.hpp"
#include "check/order.hpp"
#include "check/recorder.hpp"
#include "holdfast/check.hpp"
#include "holdfast/cpu/chooser.hpp"
#include "holdfast/cpu/executor.hpp"

namespace holdfast::check {

// A crash state: that of the first order, and on top of it, what recovery's own writes left at a
// crash in the second.
struct Level {
  const Order* order = nullptr;
  const Bitset* durable = nullptr;
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
  // Whether the change was met since.
  bool met_change() const { return mutator_ == nullptr || mutator_->met(); }
  // Who hears what the program does as it is recorded, or null.
  void let_hear(cpu::Listener* also) { also_ = also; }
  // Who gathers what there is to change, in all runs; or null.
  void let_gather(Census* census) { census_ = census; }

  // Runs the program, from what set_up() left, and records it. Throws what run() throws.
  Trace record();
  // The same with kernels, streams and the host in the turns that `chooser` decides.
  Trace record(cpu::Chooser& chooser);
  // Whether what was recorded last, or any recovery so far, might have gone another way: threads
  // ran at once, or the host ran beside what it had queued. Threads of recovery do not count where
  // they tell each other nothing and have no race: then all orders of them are equivalent.
  bool had_choices() const { return had_choices_; }
  bool recovery_had_choices() const { return recovery_had_choices_; }
  // Whether threads of a kernel told one another something by atomics, volatile accesses, releases
  // and acquires, in any run since change(): weak memory may make more of it than was run.
  bool threads_have_talked() const { return have_talked_; }

  // Puts the crash state into the region, recovers and verifies. Returns what is wrong, or an
  // empty string. Afterwards footprint() tells what was read of the levels' cells.
  // `recovery`: where to record recover(), or null.
  // Without it, a state in which everything that is read has been met before is not run again:
  // recovery is a function of what it reads.
  std::string run(std::span<const Level> levels, const History& history, Trace* recovery);
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
  // "object+offset" of an address in the region.
  std::string name_of(std::uint64_t address) const;

 private:
  class Recording;
  class Ear;
  class RecordedSession;
  template <class Around>
  Trace record_as(const Around& around);
  void restore(std::span<const Level> levels);
  std::string run_anew(const History& history, Trace* recovery);
  std::string recover_and_verify(const History& history, Trace* recovery, HostWatch* watch);
  void judge(const HostWatch& watch);
  const std::string* known(const History& history);
  void remember(const History& history, const std::string& wrong);

  const Program& program_;
  cpu::Schedule schedule_before_;
  std::unique_ptr<Mutator> mutator_;
  cpu::Listener* also_ = nullptr;
  Census* census_ = nullptr;
  bool had_choices_ = false;
  bool recovery_had_choices_ = false;
  bool have_talked_ = false;
  Region region_;
  bool robust_;  // what verify() says does not count
  bool seeks_races_;
  PersistentRange range_;
  std::vector<std::byte> base_;        // the region as set_up() left it
  std::vector<std::uint32_t> placed_;  // words that the last state put into the region
  Footprint footprint_;
  Recorder recorder_;
  std::map<std::uint64_t, DecisionTree<std::string>> outcomes_;  // by history
  std::size_t variable_ = 0;  // words that may differ, when these were recorded
  std::uint64_t runs_ = 0;
  std::uint64_t memoised_ = 0;
  // Runs in which unannounced accesses would be seen are slow: all at first, later some, and all
  // again once there was one.
  std::uint64_t watch_faults_ = 0;
  bool watch_always_ = false;
  bool unwatched_ = false;  // there was a run without
  Site unseen_;
};

}  // namespace holdfast::check
