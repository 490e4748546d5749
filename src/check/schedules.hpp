// Enumerates the schedules of a program that are not equivalent, by running it again and again.
//
// Stateless model checking with dynamic partial-order reduction by source sets and sleep sets
// (Abdulla, Aronis, Jonsson, Sagonas: "Source sets", POPL '14 and JACM '17): every class of
// equivalent executions (happens.hpp) is run at least once. Optimal reduction, with wakeup trees,
// would run each exactly once; source sets sometimes begin an execution that turns out to be
// equivalent to an earlier one (redundant() says so). They keep one set of threads at each step in
// place of a tree of sequences, and where threads fight for words by atomics nearly all runs are
// of new classes, so the trees would save next to nothing there.
//
// Why classes suffice for crash states: a crash stops the program at a prefix of some execution.
// The prefixes of all executions of a class are its consistent cuts, and Order with Moments::cuts
// finds the states of all these at once. So neither durable points nor persists nor the host's
// marks are steps of a schedule: they commute with what other threads do, and the cuts account for
// the orders in which they may come. Steps are what threads can tell each other by, alone.
#pragma once

#include <csignal>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "holdfast/cpu/chooser.hpp"

namespace holdfast::check {

class Schedules : public cpu::Chooser {
 public:
  enum class Reduction : std::uint8_t {
    source_sets,
    none,  // every interleaving of the steps: for tests
  };
  explicit Schedules(Reduction reduction = Reduction::source_sets) : reduction_(reduction) {}

  // Call begin(), run the program with this as its chooser, call end(): which says whether there is
  // a further schedule. Throws unsupported from choose() where a program did not do the same again.
  void begin();
  bool end();
  // Runs one schedule by its name, apart from the enumeration, in place of begin() and end().
  // Throws invalid_argument for what is no name; choose() throws it where the name does not fit.
  void begin_named(std::string_view name);

  // Of the run that has just been made. Equivalent to an earlier one:
  bool redundant() const { return redundant_; }
  // Its choices: at each step with more than one actor that could go on, the index of the one that
  // did, in base 36, with a _ before it for each whole 36; without the zeros at the end. "-": none.
  std::string name() const;
  // The same for the handler of a signal: gives the characters to add(), and needs no memory. False
  // at a moment when it cannot be told.
  template <class Add>
  bool spell(Add&& add) const;
  std::size_t steps() const { return depth_; }

  std::uint64_t made() const { return made_; }  // runs that were not redundant
  std::uint64_t redundant_runs() const { return wasted_; }
  // The program did not do the same again, or the name did not fit it: choose() has thrown.
  bool was_lost() const { return was_lost_; }
  bool was_cut() const { return was_cut_; }  // a loop was held back: not all can have been made
  // How much of the tree of schedules the runs so far make up, estimated: each step's weight is
  // shared out, by how many steps each has still before it, among the actors that are to be tried
  // there or may turn out to be, since they meet the one that was chosen somewhere, perhaps through
  // others. That is exact where all steps are dependent and no run has more of them than another. 1
  // at the end.
  double share() const;

  std::size_t choose(std::span<const cpu::Step> steps) override;
  void only_read() override;
  void order(cpu::Actor before, cpu::Actor after) override;
  void meet(std::span<const cpu::Actor> actors) override;
  void cut() override { was_cut_ = true; }

 private:
  // By column: how many of its actor's steps. Of a kernel's threads few ever have a choice: those
  // that take a step have a column.
  using Clock = std::vector<std::uint32_t>;
  static constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  static constexpr char kMore = '_';

  struct Sleeper {
    std::uint32_t actor;
    bool wrote;
  };
  struct Pending {
    std::uint32_t actor;
    bool blocked;
    bool writes;
    std::uint64_t address, size;
    std::uint32_t left = 1;  // steps that the actor had still before it, in the last run
  };
  // One step of the schedule, and what was to be chosen from there.
  struct Node {
    std::vector<Pending> steps;
    std::size_t chosen = 0;
    bool wrote = false;
    std::vector<std::uint32_t> backtrack;  // to be tried, those that were tried among them
    std::vector<Sleeper> slept;            // need not be tried: at first those from the node before
    Clock clock;                           // what comes before the step, and itself
    std::uint32_t turn = 0;                // which one of its actor's steps it is, from 1
    std::uint32_t column = 0;              // of its actor
    const Pending& step() const { return steps[chosen]; }
  };

  std::uint32_t number_of(cpu::Actor actor);
  Clock& past_of(std::uint32_t actor);
  std::uint32_t column_of(std::uint32_t actor);
  static bool conflict(const Node& node, const Pending& step, bool writes);
  static void join(Clock& clock, const Clock& other);
  static bool covers(const Clock& clock, const Node& node) {
    return node.column < clock.size() && clock[node.column] >= node.turn;
  }
  void fill(Node& node, std::span<const cpu::Step> steps);
  bool same(const Node& node, std::span<const cpu::Step> steps);
  std::size_t pick(Node& node);
  std::size_t next_wanted();
  void inherit_sleep(Node& node);
  void finish_step();
  void count_left();
  std::uint32_t circle_of(std::uint32_t actor) const;
  void reverse(std::size_t index, const Node& last, const Clock& clock);
  [[noreturn]] void lost();

  const Reduction reduction_;
  std::vector<Node> nodes_;
  std::size_t depth_ = 0;     // steps taken in this run
  std::size_t replayed_ = 0;  // of these, so many are as in the run before
  bool step_open_ = false;    // the last step's effect is not known yet
  bool redundant_ = false;
  bool named_ = false;
  bool was_cut_ = false;
  bool was_lost_ = false;
  volatile std::sig_atomic_t moving_ = 0;  // nodes_ may be elsewhere
  std::string wanted_;
  std::size_t wanted_at_ = 0;
  std::unordered_map<cpu::Actor, std::uint32_t> numbers_;
  std::vector<Clock> pasts_;                                  // by actor
  std::unordered_map<std::uint32_t, std::uint32_t> columns_;  // by actor
  std::vector<std::uint32_t> meets_;  // by actor: one for all of those that meet
  std::uint64_t made_ = 0;
  std::uint64_t wasted_ = 0;
  bool over_ = false;
};

template <class Add>
bool Schedules::spell(Add&& add) const {
  if (moving_ != 0) return false;
  std::size_t zeros = 0;  // that come before the next digit, if one comes
  bool any = false;
  const auto put = [&](char c) {
    for (; zeros > 0; --zeros) add('0');
    add(c);
    any = true;
  };
  for (std::size_t i = 0; i < depth_; ++i) {
    const Node& node = nodes_[i];
    std::size_t able = 0;
    std::size_t index = 0;
    for (std::size_t other = 0; other < node.steps.size(); ++other) {
      if (other == node.chosen) index = able;
      able += !node.steps[other].blocked;
    }
    if (able <= 1) continue;
    for (std::size_t more = index / kDigits.size(); more > 0; --more) put(kMore);
    if (index % kDigits.size() == 0) {
      ++zeros;
    } else {
      put(kDigits[index % kDigits.size()]);
    }
  }
  if (!any) add('-');
  return true;
}

}  // namespace holdfast::check
