// Runs a program under check: once as it is, then recovery on one crash state after another.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "check/groups.hpp"
#include "check/order.hpp"
#include "check/recorder.hpp"
#include "holdfast/check.hpp"
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

  // Runs the program and records it.
  Trace record();

  // Runs the program once more, for another listener.
  void observe(cpu::Listener& listener);

  // Puts the crash state into the region, recovers and verifies. Returns what is wrong, or an
  // empty string. Afterwards footprint() tells what was read of the levels' cells.
  // `recovery`: where to record recover(), or null.
  // Without it, a state in which everything that is read has been met before is not run again:
  // recovery is a function of what it reads.
  std::string run(std::span<const Level> levels, const History& history, Trace* recovery);
  // How often recovery really ran.
  std::uint64_t runs() const { return runs_; }

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
  void restore(std::span<const Level> levels);
  std::string run_anew(const History& history, Trace* recovery);
  const std::string* known(const History& history);
  void remember(const History& history, const std::string& wrong);

  const Program& program_;
  cpu::Schedule schedule_before_;
  Region region_;
  PersistentRange range_;
  std::vector<std::byte> base_;        // the region as set_up() left it
  std::vector<std::uint32_t> placed_;  // words that the last state put into the region
  Footprint footprint_;
  Recorder recorder_;
  std::map<std::uint64_t, DecisionTree<std::string>> outcomes_;  // by history
  std::size_t variable_ = 0;  // words that may differ, when these were recorded
  std::uint64_t runs_ = 0;
};

}  // namespace holdfast::check
