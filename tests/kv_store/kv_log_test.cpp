// The layout log of the store against an oracle, through cleaning, and reopened.
#include "kv_store/kv_log_test.hpp"

#include "kv_store/log/rules.hpp"
#include "support/share.hpp"

namespace holdfast::test {
namespace {

std::uint64_t rounds() { return some_of(60, 20); }

class KvLogTest : public LogForms {};
HOLDFAST_BOTH_FORMS(KvLogTest);

TEST_P(KvLogTest, RandomProgramsAgreeWithAMap) {
  const std::uint64_t seed = test_seed();
  LogOpened opened = LogOpened::create(path(), log_options(4096, 1500, 0, GetParam()));
  LogProgram program(seed, 3000, 1500);
  for (std::uint64_t round = 0; round < rounds(); ++round) {
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

TEST_P(KvLogTest, ReopenedAfterAnyBatchItHoldsWhatItHeld) {
  const std::uint64_t seed = test_seed();
  LogOpened opened = LogOpened::create(path(), log_options(1024, 600, 0, GetParam()));
  LogProgram program(seed, 900, 600);
  for (std::uint64_t round = 0; round < rounds(); ++round) {
    SCOPED_TRACE(round);
    ASSERT_NO_FATAL_FAILURE(program.step(opened, 30));
    const KvStore::Stats before = opened.store->stats();
    if (round % 3 == 0) {
      opened.reopen(path());
    } else {
      opened.reopen_killed(path());
    }
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(program.oracle));
    const KvStore::Stats after = opened.store->stats();
    EXPECT_EQ(after.batches, before.batches);
    EXPECT_EQ(after.total.inserted, before.total.inserted);
    EXPECT_EQ(after.total.updated, before.total.updated);
    EXPECT_EQ(after.total.removed, before.total.removed);
    EXPECT_EQ(after.free_segments, before.free_segments);
    EXPECT_FALSE(opened.store->recovery().needed);
    EXPECT_FALSE(after.snapshots_refused);
    EXPECT_EQ(after.snapshots_used, after.snapshots);
  }
}

// Runs over three segments, some of keys that lie together, and erasing: which of the segments that
// begin with one run is older decides what tombstones are still needed (`KvLogRules` asserts it by
// itself). Program 26 once lost that keys were erased; where the order is put back to what it was
// then, other programs do, in about one run in eight.
void erase_and_reopen(const std::string& path, Form form, std::uint64_t seed,
                      std::uint64_t batches) {
  constexpr std::uint64_t kPairs = 5500, kBatch = 500;
  LogOpened opened = LogOpened::create(path, log_options(kPairs, kBatch, 8192, form));
  std::mt19937_64 random(seed);
  Map oracle;
  for (std::uint64_t batch = 0; batch < batches;) {
    for (std::uint64_t more = 1 + random() % 10; more > 0; --more, ++batch) {
      std::uint64_t count = random() % 3 == 0   ? kBatch
                            : random() % 3 == 0 ? 1 + random() % 8
                                                : 1 + random() % kBatch;
      const bool erases = random() % 100 < 20;
      if (erases && random() % 2) count = 1 + count / 4;
      const std::uint64_t range = random() % 3 == 0 ? 1 + random() % (1 + count) : kPairs;
      const std::uint64_t first = random() % kPairs;
      Keys keys, values;
      for (std::uint64_t i = 0; i < count; ++i) {
        keys.push_back(((first + random() % range) % kPairs + 1) * 0x9e3779b97f4a7c15ull);
        values.push_back(random());
      }
      if (erases) {
        opened.erase(keys);
        for (const auto key : keys) oracle.erase(key);
      } else {
        opened.set(keys, values);
        for (std::uint64_t i = 0; i < count; ++i) oracle[keys[i]] = values[i];
      }
    }
    if (random() % 2 == 0) {
      opened.reopen(path);
    } else {
      opened.reopen_killed(path);
    }
    ASSERT_FALSE(opened.store->stats().snapshots_refused);
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  }
  opened.abandon();
  Region::destroy(path);
}

TEST_P(KvLogTest, ErasedKeysStayErasedWhereRunsSpanManySegments) {
  ASSERT_NO_FATAL_FAILURE(erase_and_reopen(path(), GetParam(), 26, 2 * rounds()));
  const std::uint64_t seed = test_seed();
  for (std::uint64_t i = 0; i < some_of(kFewRounds ? 1 : 3); ++i) {
    SCOPED_TRACE("seed " + std::to_string(seed) + " and " + std::to_string(i));
    ASSERT_NO_FATAL_FAILURE(
        erase_and_reopen(path(), GetParam(), seed + i, some_of(kFewRounds ? 120 : 360, 60)));
  }
}

}  // namespace
}  // namespace holdfast::test
