// The layout log of the store against an oracle, through cleaning, and reopened.
#include "kv_store/kv_log_test.hpp"

#include <cstdlib>

#include "kv_store/log/rules.hpp"

namespace holdfast::test {
namespace {

// $HOLDFAST_TEST_ROUNDS: fewer, for a run under a sanitizer.
unsigned rounds() {
  const char* const given = std::getenv("HOLDFAST_TEST_ROUNDS");
  return given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 0)) : 60;
}

class KvLogTest : public Scratch {};

TEST_F(KvLogTest, RandomProgramsAgreeWithAMap) {
  const std::uint64_t seed = test_seed();
  LogOpened opened = LogOpened::create(path(), log_options(4096, 1500));
  LogProgram program(seed, 3000, 1500);
  for (unsigned round = 0; round < rounds(); ++round) {
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(program.step(opened));
    ASSERT_NO_FATAL_FAILURE(opened.expect_found(program.asked, program.oracle));
    if (round % 5 == 0) {
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(program.oracle));
    }
  }
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(program.oracle));
  EXPECT_EQ(opened.store->stats().batches, rounds());
  if (rounds() < 60) return;
  EXPECT_GT(opened.store->stats().copied_records, 0u) << "nothing was cleaned";
}

TEST_F(KvLogTest, ReopenedAfterAnyBatchItHoldsWhatItHeld) {
  const std::uint64_t seed = test_seed();
  LogOpened opened = LogOpened::create(path(), log_options(1024, 600));
  LogProgram program(seed, 900, 600);
  for (unsigned round = 0; round < rounds(); ++round) {
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(program.step(opened, 30));
    const KvStore::Stats before = opened.store->stats();
    opened.reopen(path());
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(program.oracle));
    const KvStore::Stats after = opened.store->stats();
    EXPECT_EQ(after.batches, before.batches);
    EXPECT_EQ(after.total.inserted, before.total.inserted);
    EXPECT_EQ(after.total.updated, before.total.updated);
    EXPECT_EQ(after.total.removed, before.total.removed);
    EXPECT_EQ(after.free_segments, before.free_segments);
    EXPECT_FALSE(opened.store->recovery().needed);
  }
}

}  // namespace
}  // namespace holdfast::test
