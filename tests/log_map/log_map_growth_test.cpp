// A log map that is given more room while it is open: it has all that it had, wherever that is cut
// off.
#include <algorithm>
#include <string>

#include "log_map/log_map_test.hpp"
#include "support/object_names.hpp"
#if defined(HOLDFAST_BACKEND_CPU)
#include "support/failing_memory.hpp"
#include "support/share.hpp"
#endif

namespace holdfast::test {
namespace {

constexpr std::uint32_t kBatch = 150;
constexpr std::uint64_t kCapacity = 400;

class LogMapGrowth : public Scratch, public ::testing::WithParamInterface<std::uint32_t> {
 protected:
  LogMapOpened filled(std::uint64_t batches) {
    LogMapOpened opened =
        LogMapOpened::create(path(), log_map_options(kCapacity, GetParam(), kBatch));
    for (; next < batches; ++next) step(opened);
    return opened;
  }
  void step(const LogMapOpened& opened) {
    const NumberedBatch batch(1000 * seed + next, kBatch, kCapacity, GetParam());
    expect_equal(batch.apply(opened), batch.apply(oracle));
  }
  void run(const LogMapOpened& opened, int batches) {
    for (int i = 0; i < batches; ++i, ++next) step(opened);
  }
  const std::vector<std::string> whole_names{"map.header",          "map.index.commit",
                                             "map.index.header",    "map.index.records",
                                             "map.index.snapshots", "map.values"};
  const std::uint64_t seed = test_seed();
  std::uint64_t next = 0;
  Oracle oracle;
};
// Values whose places are larger than they are, and as large.
INSTANTIATE_TEST_SUITE_P(ValueBytes, LogMapGrowth, ::testing::Values(20, 64));

TEST_P(LogMapGrowth, HasAllThatItHadAndRoomForMore) {
  LogMapOpened opened = filled(9);
  const LogMap::Stats before = opened.map->stats();
  opened.map->reserve(3000);
  EXPECT_EQ(names_in(*opened.region), whole_names);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  const LogMap::Stats now = opened.map->stats();
  EXPECT_EQ(now.capacity, 3000u);
  EXPECT_EQ(now.places, 3000u + kBatch);
  EXPECT_EQ(now.index.batches, before.index.batches);
  run(opened, 6);
  for (std::uint64_t key = 1'000'000; oracle.size() + kBatch + kCapacity <= 3000; key += kBatch) {
    Keys keys(kBatch);
    Rows rows;
    for (std::size_t i = 0; i < kBatch; ++i) {
      keys[i] = key + i;
      const Row row = oracle[keys[i]] = row_of(keys[i], GetParam());
      rows.insert(rows.end(), row.begin(), row.end());
    }
    opened.put(keys, rows);
  }
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  opened.kill();
  opened = LogMapOpened::open(path());
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  run(opened, 6);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

TEST_P(LogMapGrowth, HistoriesGoOnBehindIt) {
  LogMapOpened opened = filled(3);
  std::mt19937_64 random(seed);
  std::uint64_t capacity = kCapacity;
  for (int round = 0; round < 8; ++round) {
    SCOPED_TRACE(round);
    if (random() % 3 != 0) capacity += random() % 300;
    const std::uint64_t records = random() % 2 == 0 ? 0 : 4 * (capacity + kBatch) + random() % 4096;
    opened.map->reserve(capacity, records);
    EXPECT_GE(opened.map->stats().capacity, capacity);
    EXPECT_GE(opened.map->stats().index.log_records, records);
    run(opened, static_cast<int>(random() % 6));
    if (random() % 2 == 0) {
      opened.kill();
      opened = LogMapOpened::open(path());
    }
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  }
}

TEST_P(LogMapGrowth, WhatIsRefusedChangesNothing) {
  LogMapOpened opened = filled(5);
  const auto refused = [&](Errc code, const std::vector<std::string>& said, auto&& call) {
    EXPECT_EQ(error_of(call, said), code);
    EXPECT_EQ(names_in(*opened.region), whole_names);
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  };
  refused(Errc::invalid_argument, {"'map'", "capacity"},
          [&] { opened.map->reserve((std::uint64_t{1} << 29) + 1); });
  refused(Errc::no_space, {"'map'", "max_size"}, [&] { opened.map->reserve(10'000'000); });
  refused(Errc::no_space, {"'map'", "max_size"}, [&] { opened.map->reserve(0, 100'000'000); });
  opened.map->reserve(kCapacity);
  run(opened, 3);
  for (const char* const part :
       {"header", "records", "snapshots", "commit", "map.header", "map.values"}) {
    const std::string name = std::string("map.index.grown.") + part;
    opened.region->allocate<std::uint64_t>(name, 7, Tracking::marked)[3] = 9;
    EXPECT_EQ(error_of([&] { opened.map->reserve(1000); }, {name}), Errc::already_exists);
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
    EXPECT_EQ(opened.region->find<std::uint64_t>(name)[3], 9u);
    opened.region->remove(name);
  }
  EXPECT_EQ(error_of(
                [&] {
                  LogMap::create(*opened.region, "map.index.grown.map",
                                 log_map_options(10, GetParam(), 10));
                },
                {".index.grown"}),
            Errc::invalid_argument);
}

TEST_P(LogMapGrowth, ALongNameDoesNotGrow) {
  LogMap::Options shape = log_map_options(kCapacity, GetParam(), kBatch);
  RegionOptions options;
  options.size = LogMap::region_bytes(shape);
  Region region = Region::create(path(), options);
  const std::string longest(39, 'n'), growing(32, 'n');
  LogMap map = LogMap::create(region, longest, shape);
  EXPECT_EQ(error_of([&] { map.reserve(1000); }, {"32"}), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { map.reserve(0, 100'000); }, {"32"}), Errc::invalid_argument);
  map.reserve(kCapacity, 1);  // it has as much
  EXPECT_EQ(map.stats().capacity, kCapacity);
  LogMap::remove(region, longest);
  map = LogMap::create(region, growing, shape);
  map.reserve(1000);
  EXPECT_EQ(map.stats().capacity, 1000u);
  EXPECT_EQ(map.verify(), "");
}

#if defined(HOLDFAST_BACKEND_CPU)  // where memory can be made to fail

TEST_P(LogMapGrowth, WhereMemoryRunsOutTheMapIsAsItWas) {
  LogMapOpened opened = filled(5);
  EXPECT_EQ(opened.map->verify(), "");  // and waits for what the last batch has left to do
  std::uint64_t capacity = kCapacity;
  int failures = 0, tries = 0;
  bool failed = true;
  const Every tried = every(1, 32, seed);
  for (std::uint64_t which = tried.first; failed && !HasFailure(); which += tried.step) {
    SCOPED_TRACE(which);
    const Starved starved =
        starve(which, Fails::once, [&] { opened.map->reserve(capacity + 100); });
    failed = starved.reached;
    if (!starved.threw) capacity += 100;
    failures += starved.threw;
    EXPECT_EQ(names_in(*opened.region), whole_names);
    EXPECT_EQ(opened.map->stats().capacity, capacity);
    if (tries++ % 5 != 0) continue;
    run(opened, 1);
    // Behind it: what a batch leaves to do has ended, and is no part of what fails.
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  }
  EXPECT_GT(failures, static_cast<int>(30 / tried.step));
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

// Memory that is gone from an allocation on: what stands then is what a kill there would leave.
TEST_P(LogMapGrowth, CutOffAnywhereTheMapIsOneOrTheOther) {
  LogMapOpened opened = filled(5);
  std::uint64_t capacity = kCapacity;
  int was = 0, is = 0, remains = 0;
  bool failed = true;
  const Every tried = every(1, 32, seed);
  for (std::uint64_t which = tried.first; failed && !HasFailure(); which += tried.step) {
    SCOPED_TRACE(which);
    failed = starve(which, Fails::from_there, [&] { opened.map->reserve(capacity + 100); }).reached;
    remains += names_in(*opened.region) != whole_names;
    opened.kill();
    opened = LogMapOpened::open(path());
    const bool grew = opened.map->stats().capacity == capacity + 100;
    ++(grew ? is : was);
    if (grew) capacity += 100;
    EXPECT_EQ(opened.map->stats().capacity, capacity);
    EXPECT_EQ(names_in(*opened.region), whole_names);
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  }
  EXPECT_GT(was, 0);
  EXPECT_GT(is, 0);
  EXPECT_GT(remains, 0);
}

// Of the log alone, and of log and places.
TEST_P(LogMapGrowth, WhatACutOffOneLeftGoesWithTheMap) {
  std::size_t most = 0;  // objects that there were
  const Every tried = every(7, 28, seed);
  for (std::uint64_t which = tried.first; most < whole_names.size() + 6; which += tried.step) {
    ASSERT_LT(which, 3000u);
    LogMapOpened opened = filled(1);
    EXPECT_EQ(opened.map->verify(), "");
    (void)starve(which, Fails::from_there, [&] { opened.map->reserve(2 * kCapacity); });
    most = std::max(most, names_in(*opened.region).size());
    opened.map.reset();
    LogMap::remove(*opened.region, "map");
    ASSERT_TRUE(names_in(*opened.region).empty());
    opened.region->close();
    Region::destroy(path());
    oracle.clear();
    next = 0;
  }
}

#endif

}  // namespace
}  // namespace holdfast::test
