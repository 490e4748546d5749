// The schedule is a function of its seed.
#include "cpu/schedule.hpp"

#include <cstdlib>
#include <set>
#include <vector>

#include "cpu/support.hpp"

namespace holdfast::test {
namespace {

std::vector<unsigned> trace_of(std::uint64_t seed, unsigned blocks, unsigned threads) {
  const ScheduleScope scope(with_seed(seed));
  constexpr unsigned kRounds = 5;
  std::vector<unsigned> trace(blocks * threads * kRounds);
  unsigned cursor = 0;
  Stream stream;
  launch(stream, blocks, threads, leave_trace, kRounds, &cursor, trace.data());
  stream.synchronize();
  EXPECT_EQ(cursor, trace.size());
  return trace;
}

TEST(Schedule, TheSameSeedGivesTheSameRun) {
  std::mt19937_64 random(test_seed());
  std::set<std::vector<unsigned>> seen;
  for (int i = 0; i < 10; ++i) {
    const std::uint64_t seed = random() | 1;
    const std::vector<unsigned> trace = trace_of(seed, 6, 40);
    EXPECT_EQ(trace, trace_of(seed, 6, 40)) << "seed " << seed;
    EXPECT_TRUE(seen.insert(trace).second) << "another seed gave the same run as " << seed;
  }
}

TEST(Schedule, SeedZeroGoesInIndexOrder) {
  const std::vector<unsigned> trace = trace_of(0, 6, 40);
  for (std::size_t i = 0; i < trace.size(); ++i) ASSERT_EQ(trace[i], i / 5);
}

TEST(Schedule, SeedsInterleaveThreadsAndBlocks) {
  std::set<unsigned> blocks_early;
  bool threads_mix = false;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const std::vector<unsigned> trace = trace_of(seed, 4, 2);
    for (int i = 0; i < 4; ++i) blocks_early.insert(trace[static_cast<std::size_t>(i)] / 2);
    for (std::size_t i = 2; i < trace.size(); ++i) {
      threads_mix |= trace[i] == trace[i - 2] && trace[i] != trace[i - 1];
    }
  }
  EXPECT_TRUE(threads_mix);
  EXPECT_GE(blocks_early.size(), 3u);
}

TEST(Schedule, SeedsReachBothOutcomesOfARace) {
  std::set<unsigned> outcomes;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const ScheduleScope scope(with_seed(seed));
    unsigned flag = 0, outcome = 7;
    Stream stream;
    launch(stream, 2, 1, race, &flag, &outcome);
    stream.synchronize();
    outcomes.insert(outcome);
  }
  EXPECT_EQ(outcomes, (std::set<unsigned>{0, 1}));
}

TEST(Schedule, RefusesWhatCanNotBe) {
  const auto refused = [](auto change) {
    cpu::Schedule schedule;
    change(schedule);
    try {
      cpu::set_schedule(schedule);
    } catch (const Error& error) {
      return error.code() == Errc::invalid_argument;
    }
    return false;
  };
  EXPECT_TRUE(refused([](cpu::Schedule& s) { s.resident_blocks = 0; }));
  EXPECT_TRUE(refused([](cpu::Schedule& s) { s.resident_blocks = 5000; }));
  EXPECT_TRUE(refused([](cpu::Schedule& s) { s.livelock_rounds = 0; }));
  EXPECT_TRUE(refused([](cpu::Schedule& s) { s.stack_bytes = 100; }));
}

// REQUIRES: a process of its own, since the environment is read once (gtest_discover_tests).
TEST(Schedule, StartsFromTheEnvironment) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  setenv("HOLDFAST_CPU_SEED", "77", 1);
  setenv("HOLDFAST_CPU_STACK", "0x40000", 1);
  EXPECT_EXIT(
      {
        const cpu::Schedule schedule = cpu::schedule();
        std::exit(schedule.seed == 77 && schedule.stack_bytes == 0x40000 ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
  setenv("HOLDFAST_CPU_SEED", "many", 1);
  EXPECT_EXIT(
      {
        try {
          cpu::schedule();
        } catch (const Error&) {
          std::exit(3);
        }
      },
      ::testing::ExitedWithCode(3), "");
  unsetenv("HOLDFAST_CPU_SEED");
  unsetenv("HOLDFAST_CPU_STACK");
}

}  // namespace
}  // namespace holdfast::test
