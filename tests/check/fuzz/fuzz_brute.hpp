// A second checker, as simple as can be: every legal crash state of every crash point, and inside
// each recovery once more, really recovered from and looked at.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "check/fuzz/fuzz_case.hpp"
#include "check/order.hpp"
#include "check/recorder.hpp"
#include "holdfast/cpu/executor.hpp"

namespace holdfast::test {

// Of the checker it uses what records a trace and what orders it (src/check/order.hpp, which the
// litmus tests and their reference stand for), and nothing that chooses, restores, remembers or
// groups states. Thread safety: one in a process at a time, and no Checker beside it.
class BruteForce {
 public:
  BruteForce(std::shared_ptr<const FuzzCase> fuzz, check::Model model, std::uint64_t schedule);
  ~BruteForce();
  BruteForce(const BruteForce&) = delete;
  BruteForce& operator=(const BruteForce&) = delete;

  // All that items saw, after any crash and any second crash inside recovery. Nothing if that takes
  // more than `most` crash states.
  std::optional<std::set<Observation>> explore(std::uint64_t most);
  // What the items saw in one state, as Failure::state names it.
  std::set<Observation> replay(const std::string& state);

  std::uint64_t states() const { return states_; }  // that were met
  std::uint64_t runs() const { return runs_; }      // of recovery

 private:
  using Image = std::string;  // the bytes of the case's object
  check::Trace recover(const Image& image, const check::History& history,
                       std::set<Observation>& seen);
  Image image_of(Image image, const check::Order& order, const check::Bitset& durable) const;
  bool explore_nested(const Image& image, const check::Trace& recovery,
                      const check::History& history, std::set<Observation>& seen,
                      std::set<std::pair<Image, std::uint64_t>>& done);

  std::set<Observation>* told_ = nullptr;
  check::Model model_;
  cpu::Schedule schedule_before_;
  check::Program program_;
  Region region_;
  char* memory_ = nullptr;  // of the case's object
  Image base_;
  check::Trace trace_;
  std::unique_ptr<check::Order> order_;
  std::uint64_t most_ = 0;
  std::uint64_t states_ = 0;
  std::uint64_t runs_ = 0;
};

}  // namespace holdfast::test
