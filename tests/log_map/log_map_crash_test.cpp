// A log map that is killed at any moment, and at fences and stores of its kernels.
#include "log_map/log_map_test.hpp"
#include "support/killed_child.hpp"
#include "support/share.hpp"

namespace holdfast::test {
namespace {

constexpr std::size_t kBatch = 150;
constexpr std::uint64_t kMostKeys = 400;
constexpr std::uint32_t kBytes = 64;
// So small a log that it is cleaned behind nearly every batch.
LogMap::Options shape() { return log_map_options(kMostKeys, kBytes, kBatch, 2048); }
NumberedBatch numbered(std::uint64_t n) { return {n, kBatch, kMostKeys, kBytes}; }

TEST(LogMapChild, DISABLED_RunsUntilKilled) {
  const LogMapOpened opened = LogMapOpened::open(from_environment("HOLDFAST_TEST_PATH"));
  for (std::uint64_t n = std::stoull(from_environment("HOLDFAST_TEST_BATCH"));; ++n) {
    if (from_environment("HOLDFAST_TEST_GROWS") == "1" && n % 3 == 0) {
      opened.map->reserve(kMostKeys + 20 * std::min<std::uint64_t>(n, 200));
    }
    report_batch(n, [&] { numbered(n).apply(opened); });
  }
}

class LogMapCrash : public Scratch {
 protected:
  void kill_rounds(bool grows);
};

void LogMapCrash::kill_rounds(bool grows) {
  std::mt19937_64 random(test_seed());
  std::uint64_t most = kMostKeys;  // pairs that there was room for
  LogMapOpened::create(path(), shape()).abandon();
  Oracle oracle;
  std::uint64_t next = 0;
  const std::uint64_t least = some_of(12, 6);
  for (KillRounds rounds(some_of(12, 3)); rounds.another(next >= least);) {
    SCOPED_TRACE(rounds.number());
    const ToldBatches told = batches_told(
        next, told_until_killed<ToldBatch>("LogMapChild.DISABLED_RunsUntilKilled", arenas(),
                                           {{"HOLDFAST_TEST_PATH", path()},
                                            {"HOLDFAST_TEST_GROWS", grows ? "1" : "0"},
                                            {"HOLDFAST_TEST_BATCH", std::to_string(next)}},
                                           random, rounds.most_microseconds()));
    LogMapOpened opened = LogMapOpened::open(path());
    ASSERT_GE(opened.map->stats().capacity, most);
    most = opened.map->stats().capacity;
    const std::uint64_t has = opened.map->stats().index.batches;
    ASSERT_GE(has, told.done) << "an acknowledged batch is lost";
    ASSERT_LE(has, told.begun);
    for (; next < has; ++next) numbered(next).apply(oracle);
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
    opened.abandon();
  }
  EXPECT_EQ(most > kMostKeys, grows);
}

TEST_F(LogMapCrash, KilledAtAnyMomentItHoldsWholeBatches) { kill_rounds(false); }
TEST_F(LogMapCrash, KilledAtAnyMomentAGrowingMapHoldsWholeBatches) { kill_rounds(true); }

// A creation that is cut off is none, and can be made again.
TEST(LogMapChild, DISABLED_CreatesUntilKilled) {
  Region region = Region::open(from_environment("HOLDFAST_TEST_PATH"));
  for (std::uint64_t n = 0;; ++n) {
    report(n);
    (void)LogMap::create(region, "map", shape());
    LogMap::remove(region, "map");
  }
}

TEST_F(LogMapCrash, KilledInItsCreationItIsWholeOrAbsent) {
  std::mt19937_64 random(test_seed());
  RegionOptions options;
  options.size = LogMap::region_bytes(shape()) + (4 << 20);
  Region::create(path(), options).abandon();
  for (std::uint64_t round = 0; round < some_of(10, 3); ++round) {
    SCOPED_TRACE(round);
    (void)told_until_killed<std::uint64_t>("LogMapChild.DISABLED_CreatesUntilKilled", arenas(),
                                           {{"HOLDFAST_TEST_PATH", path()}}, random);
    Region region = Region::open(path());
    try {
      LogMap map = LogMap::open(region, "map");
      EXPECT_EQ(map.size(), 0u);
      EXPECT_EQ(map.verify(), "");
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Errc::not_found) << error.what();
      LogMap map = LogMap::create(region, "map", shape());
      EXPECT_EQ(map.verify(), "");
    }
    LogMap::remove(region, "map");
    EXPECT_TRUE(region.objects().empty());
    region.abandon();
  }
}

// ---- Damage -------------------------------------------------------------------------------------

// Bits of the log that flip: the map is refused, or as it was.
TEST_F(LogMapCrash, ADamagedLogIsRefusedOrSaysNothingElse) {
  std::mt19937_64 random(test_seed());
  LogMapOpened opened = LogMapOpened::create(path(), shape());
  Oracle oracle;
  for (std::uint64_t n = 0; n < 6; ++n) {
    numbered(n).apply(opened);
    numbered(n).apply(oracle);
  }
  opened.map.reset();
  int refused = 0;
  const ObjectInfo records = opened.region->object("map.index.records");
  auto* const bytes = static_cast<std::uint8_t*>(opened.region->address(records));
  for (std::uint64_t round = 0; round < some_of(60, 15); ++round) {
    std::size_t bit = random() % (records.bytes() * 8);
    while (bytes[bit / 8] == 0) bit = random() % (records.bytes() * 8);
    SCOPED_TRACE(bit);
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
    try {
      LogMap map = LogMap::open(*opened.region, "map");
      const LogMapOpened again{nullptr, std::make_unique<LogMap>(std::move(map))};
      ASSERT_EQ(again.contents(), oracle);
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Errc::damaged) << error.what();
      ++refused;
    }
    bytes[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8);
  }
  EXPECT_GT(refused, 0);
  opened.map = std::make_unique<LogMap>(LogMap::open(*opened.region, "map"));
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

}  // namespace
}  // namespace holdfast::test
