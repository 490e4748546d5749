// A log that is given more room while it is open: it has all that it had, wherever that is cut off.
#include <algorithm>
#include <string>

#include "kv_store/kv_log_test.hpp"
#include "support/object_names.hpp"
#if defined(HOLDFAST_BACKEND_CPU)
#include "support/failing_memory.hpp"
#include "support/share.hpp"
#endif

namespace holdfast::test {
namespace {

constexpr std::uint32_t kBatch = 300;
constexpr std::uint64_t kCapacity = 700;

class KvLogGrowth : public LogForms {
 protected:
  // `batches` of a program, of which one in four erases.
  LogOpened filled(int batches) {
    LogOpened opened = LogOpened::create(path(), log_options(kCapacity, kBatch, 4096, GetParam()));
    for (int i = 0; i < batches; ++i) program.step(opened);
    return opened;
  }
  static void expect_counts(const KvStore::Stats& now, const KvStore::Stats& before) {
    EXPECT_EQ(now.batches, before.batches);
    EXPECT_EQ(now.total.inserted, before.total.inserted);
    EXPECT_EQ(now.total.updated, before.total.updated);
    EXPECT_EQ(now.total.removed, before.total.removed);
  }

  const std::uint64_t seed = test_seed();
  LogProgram program{seed, kCapacity, kBatch};
};
HOLDFAST_BOTH_FORMS(KvLogGrowth);

TEST_P(KvLogGrowth, HasAllThatItHadAndRoomForMore) {
  LogOpened opened = filled(25);
  const KvStore::Stats before = opened.store->stats();
  opened.store->reserve(5000);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(program.oracle));
  expect_counts(opened.store->stats(), before);
  EXPECT_EQ(opened.store->stats().capacity, 5000u);
  EXPECT_EQ(opened.store->stats().bytes_stored, 0u);
  opened.expect_found(program.asked, program.oracle);
  EXPECT_FALSE(has_remains(*opened.region));
  opened.reopen_killed(path());
  expect_counts(opened.store->stats(), before);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(program.oracle));
  // As many as it was made for, by whole batches.
  Map all = program.oracle;
  for (std::uint64_t key = 10'000; all.size() + kBatch <= 5000; key += kBatch) {
    Keys keys(kBatch);
    for (std::size_t i = 0; i < kBatch; ++i) all[keys[i] = key + i] = key;
    opened.set(keys, Keys(kBatch, key));
  }
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(all));
  opened.reopen(path());
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(all));
}

TEST_P(KvLogGrowth, HistoriesGoOnBehindIt) {
  LogOpened opened = filled(5);
  std::mt19937_64 random(seed);
  std::uint64_t capacity = kCapacity;
  for (int round = 0; round < (kFewRounds ? 4 : 12); ++round) {
    SCOPED_TRACE(round);
    capacity += random() % 400;
    const std::uint64_t records = random() % 2 == 0 ? 0 : 4 * (capacity + kBatch) + random() % 4096;
    opened.store->reserve(capacity, records);
    EXPECT_GE(opened.store->stats().capacity, capacity);
    EXPECT_GE(opened.store->stats().log_records, records);
    for (std::uint64_t steps = random() % 12; steps > 0; --steps) {
      ASSERT_NO_FATAL_FAILURE(program.step(opened));
    }
    if (random() % 3 == 0) opened.reopen(path());
    if (random() % 3 == 0) opened.reopen_killed(path());
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(program.oracle));
  }
}

TEST_P(KvLogGrowth, OfAnEmptyLog) {
  LogOpened opened = filled(0);
  opened.store->reserve(2000);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({}));
  for (int i = 0; i < 5; ++i) ASSERT_NO_FATAL_FAILURE(program.step(opened));
  opened.reopen_killed(path());
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(program.oracle));
  // And of one that has had pairs.
  for (const auto& [key, value] : program.oracle) opened.store->erase(&key, 1);
  const KvStore::Stats before = opened.store->stats();
  EXPECT_GT(before.total.inserted, 0u);
  opened.store->reserve(4000);
  expect_counts(opened.store->stats(), before);
  opened.reopen_killed(path());
  expect_counts(opened.store->stats(), before);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({}));
}

TEST_P(KvLogGrowth, WhatHasAsMuchStaysAsItIs) {
  LogOpened opened = filled(3);
  const std::uint64_t records = opened.store->stats().log_records;
  const std::uint64_t at = opened.region->object("kvs.records").offset;
  opened.store->reserve(0);
  opened.store->reserve(kCapacity);
  opened.store->reserve(1, records);
  EXPECT_EQ(opened.region->object("kvs.records").offset, at);
  // Of the same capacity with a longer log, and of a larger one with a log that is no shorter.
  opened.store->reserve(kCapacity, 2 * records);
  EXPECT_EQ(opened.store->stats().capacity, kCapacity);
  EXPECT_GE(opened.store->stats().log_records, 2 * records);
  opened.store->reserve(kCapacity + 1);
  EXPECT_EQ(opened.store->stats().capacity, kCapacity + 1);
  EXPECT_GE(opened.store->stats().log_records, 2 * records);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(program.oracle));
}

TEST_P(KvLogGrowth, IsThereAfterACommitAndWhatWasBeforeUntilThen) {
  LogOpened opened = filled(8);
  opened.region->commit();
  opened.store->reserve(3000);
  opened.abandon();
  opened = LogOpened::open(path(), last_commit(), GetParam());
  EXPECT_EQ(opened.store->stats().capacity, kCapacity);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(program.oracle));
  opened.store->reserve(3000);
  opened.region->commit();
  opened.abandon();
  opened = LogOpened::open(path(), last_commit(), GetParam());
  EXPECT_EQ(opened.store->stats().capacity, 3000u);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(program.oracle));
}

TEST_P(KvLogGrowth, WhatIsRefusedChangesNothing) {
  LogOpened opened = filled(6);
  const auto objects = names_in(*opened.region);
  const auto refused = [&](Errc code, const std::vector<std::string>& said, auto&& call) {
    EXPECT_EQ(error_of(call, said), code);
    EXPECT_EQ(names_in(*opened.region), objects);
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(program.oracle));
  };
  refused(Errc::invalid_argument, {"capacity"},
          [&] { opened.store->reserve((std::uint64_t{1} << 29) + 1); });
  refused(Errc::invalid_argument, {"records"},
          [&] { opened.store->reserve(0, std::uint64_t{1} << 40); });
  refused(Errc::no_space, {"kvs", "max_size"},
          [&] { opened.store->reserve(10'000'000, 40'000'000); });
  for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(program.step(opened));
  opened.region->commit();
  opened.abandon();
  opened = LogOpened::open(path(), for_reading(), GetParam());
  EXPECT_EQ(error_of([&] { opened.store->reserve(5000); }), Errc::unsupported);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(program.oracle));
}

// Who has put an object of its own where the new log would be made keeps it.
TEST_P(KvLogGrowth, AnObjectOfAnothersInTheWay) {
  LogOpened opened = filled(6);
  for (const char* const part : {"header", "records", "snapshots", "commit"}) {
    const std::string name = std::string("kvs.grown.") + part;
    opened.region->allocate<std::uint64_t>(name, 7, Tracking::marked)[3] = 9;
    EXPECT_EQ(error_of([&] { opened.store->reserve(5000); }, {name}), Errc::already_exists);
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(program.oracle));
    opened.reopen(path());
    EXPECT_EQ(opened.region->find<std::uint64_t>(name)[3], 9u);
    opened.region->remove(name);
  }
  opened.store->reserve(5000);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(program.oracle));
}

#if defined(HOLDFAST_BACKEND_CPU)  // where memory can be made to fail

TEST_P(KvLogGrowth, WhereMemoryRunsOutTheStoreIsAsItWas) {
  int failures = 0, tries = 0;
  bool failed = true;
  LogOpened opened = filled(6);
  std::uint64_t capacity = kCapacity;
  const Every tried = every(1, 32, seed);
  for (std::uint64_t which = tried.first; failed && !HasFailure(); which += tried.step) {
    SCOPED_TRACE(which);
    const Starved starved =
        starve(which, Fails::once, [&] { opened.store->reserve(capacity + 100); });
    failed = starved.reached;
    if (!starved.threw) capacity += 100;
    failures += starved.threw;
    EXPECT_FALSE(has_remains(*opened.region));
    EXPECT_EQ(opened.store->stats().capacity, capacity);
    if (tries++ % 5 != 0) continue;
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(program.oracle));
    ASSERT_NO_FATAL_FAILURE(program.step(opened));
  }
  EXPECT_GT(failures, static_cast<int>(20 / tried.step));
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(program.oracle));
}

// Memory that is gone from an allocation on: what stands then is what a kill there would leave.
TEST_P(KvLogGrowth, CutOffAnywhereTheStoreIsOneOrTheOther) {
  LogOpened opened = filled(6);
  std::uint64_t capacity = kCapacity;
  int was = 0, is = 0, remains = 0;
  bool failed = true;
  const Every tried = every(1, 32, seed);
  for (std::uint64_t which = tried.first; failed && !HasFailure(); which += tried.step) {
    SCOPED_TRACE(which);
    failed =
        starve(which, Fails::from_there, [&] { opened.store->reserve(capacity + 100); }).reached;
    remains += has_remains(*opened.region);
    opened.reopen_killed(path());
    const bool grew = opened.store->stats().capacity == capacity + 100;
    ++(grew ? is : was);
    if (grew) capacity += 100;
    EXPECT_EQ(opened.store->stats().capacity, capacity);
    EXPECT_FALSE(has_remains(*opened.region));
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(program.oracle));
  }
  EXPECT_GT(was, 0);
  EXPECT_GT(is, 0);
  EXPECT_GT(remains, 0);
}

TEST_P(KvLogGrowth, WhatACutOffOneLeftGoesWithTheStore) {
  bool found = false;
  const Every tried = every(1, 32, seed);
  for (std::uint64_t which = tried.first; !found; which += tried.step) {
    ASSERT_LT(which, 2000u);
    LogOpened opened = filled(2);
    (void)starve(which, Fails::from_there, [&] { opened.store->reserve(2 * kCapacity); });
    found = has_remains(*opened.region);
    opened.store.reset();
    KvStore::remove(*opened.region);
    EXPECT_TRUE(names_in(*opened.region).empty());
    opened.region->close();
    Region::destroy(path());
    program.oracle.clear();
  }
}

#endif

}  // namespace
}  // namespace holdfast::test
