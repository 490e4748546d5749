// The log map against an oracle: batches of all sizes from all kinds of memory, reopened as it was
// closed and as it was killed.
#include "log_map/log_map_test.hpp"

#include <set>

#include "support/share.hpp"

namespace holdfast::test {
namespace {

class LogMapTest : public Scratch {};

struct ValuesOf {
  std::uint32_t bytes;
  Form form;
};
class LogMapOfValues : public Scratch, public ::testing::WithParamInterface<ValuesOf> {};
INSTANTIATE_TEST_SUITE_P(Values, LogMapOfValues,
                         ::testing::Values(ValuesOf{4, Form::whole}, ValuesOf{20, Form::whole},
                                           ValuesOf{128, Form::whole}, ValuesOf{4096, Form::whole},
                                           ValuesOf{48, Form::fingerprints}),
                         [](const auto& info) {
                           return std::to_string(info.param.bytes) +
                                  (info.param.form == Form::whole ? "_whole" : "_fingerprints");
                         });

TEST_P(LogMapOfValues, RandomProgramsAgreeWithAMap) {
  const std::uint64_t seed = test_seed();
  const auto [bytes, form] = GetParam();
  LogMapOpened opened = LogMapOpened::create(path(), log_map_options(1500, bytes, 1200, 0, form));
  std::mt19937_64 random(seed);
  Oracle oracle;
  for (std::uint64_t round = 0; round < some_of(40, 12); ++round) {
    SCOPED_TRACE(round);
    const std::size_t count = random() % 3 == 0 ? 1 + random() % 4 : 1 + random() % 1200;
    const NumberedBatch batch(random(), count, random() % 4 == 0 ? 1 + count / 3 : 1500, bytes);
    const bool asks = random() % 2 != 0;
    std::vector<MapStatus> status(count + 1, MapStatus::refused);
    const LogMap::Result done = batch.apply(opened, asks ? status.data() : nullptr);
    if (asks) {
      ASSERT_NO_FATAL_FAILURE(batch.expect_status(status, oracle));
    }
    ASSERT_EQ(status[asks ? count : 0], MapStatus::refused) << "stored to what nobody gave";
    ASSERT_NO_FATAL_FAILURE(expect_equal(done, batch.apply(oracle)));
    ASSERT_NO_FATAL_FAILURE(opened.expect_found(batch.keys, oracle));
    if (random() % 4 != 0) continue;
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
    if (random() % 2 == 0) {
      opened.abandon();
    } else {
      opened.kill();
    }
    opened = LogMapOpened::open(path(), form);
    EXPECT_FALSE(opened.map->recovery().needed);
  }
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

// Every place is taken many times over.
TEST_F(LogMapTest, PlacesComeFreeAndAreTakenAgain) {
  LogMapOpened opened = LogMapOpened::create(path(), log_map_options(100, 32, 50, 4096));
  Oracle oracle;
  for (std::uint64_t n = 0; n < 60; ++n) {
    SCOPED_TRACE(n);
    const NumberedBatch batch(n, 50, 100, 32);
    batch.apply(opened);
    batch.apply(oracle);
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  }
  EXPECT_GT(opened.map->stats().index.batches * 50, 10 * opened.map->stats().places);
}

template <class Buffer>
void expect_takes_from(const std::string& path) {
  constexpr std::size_t kCount = 3000;
  constexpr std::size_t kBytes = 64;
  LogMapOpened opened = LogMapOpened::create(path, log_map_options(5000, kBytes, kCount));
  const NumberedBatch batch(4, kCount, 4000, kBytes);
  Oracle oracle;
  batch.apply(oracle);
  const Buffer keys(8 * kCount), rows(batch.rows.size()), out(batch.rows.size()), found(kCount);
  Stream stream;
  copy_async(stream, keys.data(), batch.keys.data(), keys.size());
  copy_async(stream, rows.data(), batch.rows.data(), rows.size());
  stream.synchronize();
  const auto* const words = reinterpret_cast<const std::uint64_t*>(keys.data());
  opened.map->insert_or_assign(words, rows.data(), kCount);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  opened.map->find(words, out.data(), reinterpret_cast<std::uint8_t*>(found.data()), kCount);
  Rows read(out.size());
  std::vector<std::uint8_t> there(kCount);
  copy_async(stream, read.data(), out.data(), read.size());
  copy_async(stream, there.data(), found.data(), there.size());
  stream.synchronize();
  EXPECT_EQ(there, std::vector<std::uint8_t>(kCount, 1));
  for (std::size_t i = 0; i < kCount; ++i) {
    const Row row(read.begin() + i * kBytes, read.begin() + (i + 1) * kBytes);
    ASSERT_EQ(row, oracle[batch.keys[i]]) << i;
  }
  // Some of the batch, from there, and what became of it to there: half of the keys are erased.
  std::vector<std::uint64_t> erased;
  for (std::uint64_t key = 0; key < 2000; ++key) erased.push_back(key);
  for (const std::uint64_t key : erased) oracle.erase(key);
  opened.erase(erased);
  const Oracle before = oracle;
  const NumberedBatch inserts(10, kCount, 4000, kBytes);
  copy_async(stream, keys.data(), inserts.keys.data(), keys.size());
  copy_async(stream, rows.data(), inserts.rows.data(), rows.size());
  stream.synchronize();
  const Buffer told(kCount);
  opened.map->insert(words, rows.data(), kCount, reinterpret_cast<MapStatus*>(told.data()));
  inserts.apply(oracle);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  std::vector<MapStatus> status(kCount);
  copy_async(stream, status.data(), told.data(), kCount);
  stream.synchronize();
  ASSERT_NO_FATAL_FAILURE(inserts.expect_status(status, before));
  std::uint64_t all = 0;
  for (const std::uint64_t key : std::set(inserts.keys.begin(), inserts.keys.end())) {
    all += oracle.count(key);
  }
  EXPECT_EQ(opened.map->erase(words, kCount).erased, all);
}

TEST_F(LogMapTest, TakesBatchesFromDeviceMemory) {
  expect_takes_from<DeviceBuffer<std::byte>>(path());
}
TEST_F(LogMapTest, TakesBatchesFromPinnedMemory) {
  expect_takes_from<PinnedBuffer<std::byte>>(path());
}

// Addresses of rows that are no multiples of what is stored at once.
TEST_F(LogMapTest, TakesRowsFromAnyAddress) {
  LogMapOpened opened = LogMapOpened::create(path(), log_map_options(100, 32, 100));
  const NumberedBatch batch(4, 60, 80, 32);
  const PinnedBuffer<std::byte> rows(batch.rows.size() + 4);
  std::memcpy(rows.data() + 4, batch.rows.data(), batch.rows.size());
  opened.map->insert_or_assign(batch.keys.data(), rows.data() + 4, batch.keys.size());
  Oracle oracle;
  batch.apply(oracle);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

// Nothing is stored where all are left out, and the log does not grow.
TEST_F(LogMapTest, ABatchThatChangesNothingIsNone) {
  LogMapOpened opened = LogMapOpened::create(path(), log_map_options(100, 16, 100));
  const NumberedBatch batch(4, 60, 40, 16);
  Oracle oracle;
  std::vector<MapStatus> status(60);
  const LogMap::Result none =
      opened.map->assign(batch.keys.data(), batch.rows.data(), 60, status.data());
  EXPECT_EQ(none.inserted + none.assigned + none.erased, 0u);
  EXPECT_EQ(status, std::vector<MapStatus>(60, MapStatus::absent));
  EXPECT_EQ(opened.map->stats().index.batches, 0u);
  batch.apply(opened);
  batch.apply(oracle);
  const LogMap::Result kept =
      opened.map->insert(batch.keys.data(), batch.rows.data() + 16, 59, status.data());
  EXPECT_EQ(kept.inserted + kept.assigned + kept.erased, 0u);
  status.resize(59);
  EXPECT_EQ(status, std::vector<MapStatus>(59, MapStatus::kept));
  EXPECT_EQ(opened.map->stats().index.batches, 1u);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

// A full map takes inserts of what it has, and a batch that no room is left for changes nothing.
TEST_F(LogMapTest, AFullMapKeepsWhatItHas) {
  LogMapOpened opened = LogMapOpened::create(path(), log_map_options(40, 16, 100));
  Keys keys(40);
  for (std::uint64_t key = 0; key < 40; ++key) keys[key] = key;
  const Row rows = row_of(1, 41 * 16);
  opened.put(keys, rows);
  Oracle oracle = opened.contents();
  EXPECT_EQ(opened.map->insert(keys.data(), rows.data() + 16, 40).inserted, 0u);
  keys.push_back(40);
  EXPECT_THROW(opened.map->insert(keys.data(), rows.data(), 41), Error);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  EXPECT_EQ(opened.map->assign(keys.data(), rows.data(), 41).assigned, 40u);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

TEST_F(LogMapTest, AKeyThatABatchErasesTwiceComesFreeOnce) {
  LogMapOpened opened = LogMapOpened::create(path(), log_map_options(100, 16, 100));
  const NumberedBatch batch(4, 60, 40, 16);
  batch.apply(opened);
  Oracle oracle;
  batch.apply(oracle);
  const Keys twice{batch.keys[0], batch.keys[0], batch.keys[1], batch.keys[0], 1000, 1000};
  for (const std::uint64_t key : twice) oracle.erase(key);
  opened.erase(twice);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

// Whatever a batch leaves to do, it does without the region.
TEST_F(LogMapTest, TheRegionMayBeClosedBehindABatch) {
  for (const Form form : {Form::whole, Form::fingerprints}) {
    for (std::uint64_t n = 0; n < some_of(20, 2); ++n) {
      LogMapOpened opened = LogMapOpened::create(path(), log_map_options(3000, 32, 3000, 0, form));
      Oracle oracle;
      for (std::uint64_t batch = 4; batch < 6; ++batch) {
        NumberedBatch(batch, 2900, 2900, 32).apply(opened);
        NumberedBatch(batch, 2900, 2900, 32).apply(oracle);
      }
      opened.kill();
      opened = LogMapOpened::open(path(), form);
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
      opened.abandon();
      Region::destroy(path());
    }
  }
}

TEST_F(LogMapTest, TwoMapsOfARegionAreApart) {
  const LogMap::Options shape = log_map_options(300, 16, 100);
  RegionOptions options;
  options.size = 2 * LogMap::region_bytes(shape);
  Region region = Region::create(path(), options);
  LogMap one = LogMap::create(region, "one", shape);
  LogMap two = LogMap::create(region, "two", shape);
  const Keys keys{1, 2, 3};
  const Row a = row_of(1, 48), b = row_of(2, 48);
  one.insert_or_assign(keys.data(), a.data(), 3);
  two.insert_or_assign(keys.data(), b.data(), 3);
  EXPECT_EQ(one.erase(keys.data(), 1).erased, 1u);
  Row read(48);
  std::uint8_t found[3];
  two.find(keys.data(), read.data(), found, 3);
  EXPECT_EQ(read, b);
  EXPECT_EQ(one.size(), 2u);
  EXPECT_EQ(two.size(), 3u);
}

}  // namespace
}  // namespace holdfast::test
