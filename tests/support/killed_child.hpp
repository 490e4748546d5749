// Children that are killed amid their work, or die of themselves, and what they told before that.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "holdfast/region.hpp"
#include "support/process.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast::test {

// As a Child of this environment and the folder of arenas, which the test goes on with.
class ChildAt {
 public:
  ChildAt(const std::string& name, const std::string& arenas, Child::Environment environment)
      : arenas_(arenas), child_(name, with(std::move(environment), arenas)) {}
  ~ChildAt() { ::setenv("HOLDFAST_ARENA_DIR", arenas_.c_str(), 1); }
  ChildAt(const ChildAt&) = delete;
  ChildAt& operator=(const ChildAt&) = delete;
  Child* operator->() { return &child_; }

 private:
  static Child::Environment with(Child::Environment environment, const std::string& arenas) {
    environment.emplace_back("HOLDFAST_ARENA_DIR", arenas);
    return environment;
  }
  const std::string arenas_;
  Child child_;
};

// Rounds of kills: `least`, and as many more as it takes until enough was done, since children on a
// busy machine may be killed before they have done anything.
//   for (KillRounds rounds(12); rounds.another(next > 12);) { ... }
class KillRounds {
 public:
  explicit KillRounds(int least) : least_(least) {}
  // Whether there is one more: none behind a failure. Fails the test where `enough` is still not
  // true behind very many.
  bool another(bool enough) {
    if ((enough && round_ + 1 >= least_) || ::testing::Test::HasFailure()) return false;
    if (++round_ < kMost) return true;
    ADD_FAILURE() << kMost << " children were killed, and have not done enough";
    return false;
  }
  // Of the round that is under way, from 0.
  int number() const { return round_; }
  // How long its child may work: longer and longer where `least` rounds were not enough.
  unsigned most_microseconds(unsigned at_first = kKilledWithin) const {
    return at_first * static_cast<unsigned>(1 + std::min(std::max(0, round_ - least_) / 10, 40));
  }
  static constexpr unsigned kKilledWithin = 20'000;

 private:
  static constexpr int kMost = 2000;
  const int least_;
  int round_ = -1;
};

// All that a child has reported before it was killed: some time behind its first message, without
// which the test fails.
template <class Message>
std::vector<Message> told_until_killed(const std::string& name, const std::string& arenas,
                                       const Child::Environment& environment,
                                       std::mt19937_64& random,
                                       unsigned most_microseconds = KillRounds::kKilledWithin) {
  ChildAt child(name, arenas, environment);
  std::vector<Message> all;
  Message told{};
  const bool began = child->read(told);
  EXPECT_TRUE(began) << name << " has told nothing";
  if (!began) return all;
  std::this_thread::sleep_for(std::chrono::microseconds(random() % most_microseconds));
  child->kill();
  do {
    all.push_back(told);
  } while (child->read(told));
  return all;
}

// Whether a child came to its end; else it has killed itself.
inline bool came_to_its_end(const std::string& name, const std::string& arenas,
                            const Child::Environment& environment) {
  ChildAt child(name, arenas, environment);
  const int status = child->wait();
  EXPECT_TRUE(status == 0 || status == 128 + SIGKILL) << name << " ended with " << status;
  return status == 0;
}

// Kills a child at one of its fences after the other, each time with the file at `path` as it is
// now: the first one, and step(fence) behind that the next, until it comes to its end, which it has
// to within `most` fences. Behind each child it is look(fence, finished)'s turn. The child's
// environment has HOLDFAST_TEST_PATH, and HOLDFAST_TEST_FENCES, for its Reaper. Of all these fences
// it is at those of `tried`.
template <class Step, class Look>
void kill_at_fences(const std::string& name, const std::string& path, const std::string& arenas,
                    const Child::Environment& environment, std::uint64_t most, Step&& step,
                    Look&& look, const Every tried = every()) {
  const std::vector<char> image = read_file(path);
  const auto behind = [&](std::uint64_t fence, std::uint64_t steps) {
    for (; steps > 0; --steps) fence += step(fence);
    return fence;
  };
  bool finished = false;
  for (std::uint64_t fence = behind(0, tried.first); !finished; fence = behind(fence, tried.step)) {
    SCOPED_TRACE("fence " + std::to_string(fence));
    Region::destroy(path);
    write_file(path, image);
    Child::Environment all = environment;
    all.emplace_back("HOLDFAST_TEST_PATH", path);
    all.emplace_back("HOLDFAST_TEST_FENCES", std::to_string(fence));
    finished = came_to_its_end(name, arenas, all);
    ASSERT_TRUE(finished || fence < most) << name << " does not come to its end";
    ASSERT_FALSE(::testing::Test::HasFailure());
    ASSERT_NO_FATAL_FAILURE(look(fence, finished));
  }
}
// Steps: all of the first ones, and of the many behind them one in `each`.
inline auto all_below(std::uint64_t first, std::uint64_t each) {
  return [=](std::uint64_t fence) { return fence < first ? 1 : each; };
}

// Numbered batches, of which a child reports each as it begins and once it has returned.
struct ToldBatch {
  std::uint64_t batch;
  bool done;
};
template <class Apply>
void report_batch(std::uint64_t number, Apply&& apply) {
  report(ToldBatch{number, false});
  apply();
  report(ToldBatch{number, true});
}

struct ToldBatches {
  std::uint64_t done;   // the first one that had not returned
  std::uint64_t begun;  // the first one that had not begun
};
inline ToldBatches batches_told(std::uint64_t first, const std::vector<ToldBatch>& told) {
  ToldBatches result{first, first};
  for (const ToldBatch& one : told) {
    result.begun = one.batch + 1;
    if (one.done) result.done = one.batch + 1;
  }
  return result;
}

}  // namespace holdfast::test
