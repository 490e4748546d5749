// What a log has room for, how it makes room, and what it refuses.
#include <algorithm>
#include <numeric>

#include "kv_store/kv_log_medium.hpp"
#include "kv_store/kv_log_test.hpp"
#include "support/share.hpp"

namespace holdfast::test {
namespace {

Keys numbers(std::uint64_t from, std::uint64_t count) {
  Keys keys(count);
  std::iota(keys.begin(), keys.end(), from);
  return keys;
}

class KvLogRoom : public LogForms {
 protected:
  LogOpened create(std::uint64_t capacity, std::uint32_t max_batch, std::uint64_t records = 0) {
    return LogOpened::create(path(), log_options(capacity, max_batch, records, GetParam()));
  }
  // The fewest records that a log for these may have, about.
  static std::uint64_t least_records(std::uint64_t capacity, std::uint32_t max_batch) {
    for (std::uint64_t records = 256;; records += 256) {
      try {
        (void)KvStore::region_bytes(log_options(capacity, max_batch, records));
        return records;
      } catch (const Error&) {
        continue;
      }
    }
  }
};

HOLDFAST_BOTH_FORMS(KvLogRoom);

TEST_P(KvLogRoom, MorePairsThanTheCapacityAreRefusedWithNothingWritten) {
  LogOpened opened = create(1024, 600);
  Map oracle;
  for (std::uint64_t first : {0, 512}) {
    const Keys keys = numbers(first, 512);
    ASSERT_EQ(opened.set(keys, keys).inserted, 512u);
    for (const auto key : keys) oracle[key] = key;
  }
  const LogMedium medium(*opened.region);
  const Words before = medium.copy();
  for (const std::uint64_t count : {1u, 600u}) {
    const Keys keys = numbers(1024 - count + 1, count);
    EXPECT_EQ(error_of([&] { opened.set(keys, keys); }, {"1 new keys", "1024", "capacity"}),
              Errc::no_space);
    EXPECT_EQ(medium.copy(), before);
  }
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  // What is there can be changed, and makes room where it is erased.
  const Keys all = numbers(0, 600);
  EXPECT_EQ(opened.set(all, Keys(600, 7)).updated, 600u);
  for (const auto key : all) oracle[key] = 7;
  const Keys one{3};
  EXPECT_EQ(opened.erase(one).removed, 1u);
  const Keys other{5000};
  EXPECT_EQ(opened.set(other, other).inserted, 1u);
  oracle.erase(3);
  oracle[5000] = 5000;
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  opened.reopen(path());
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

TEST_P(KvLogRoom, BadBatchesChangeNothing) {
  for (const std::uint32_t most : {100u, 3000u}) {  // in one launch, and in several
    LogOpened opened = create(4096, most);
    const LogMedium medium(*opened.region);
    const Keys keys = numbers(0, most / 2);
    opened.set(keys, keys);
    const Words before = medium.copy();
    Keys wrong = numbers(0, most);
    wrong[most / 2] = KvStore::kReservedKey;
    EXPECT_EQ(error_of([&] { opened.set(wrong, wrong); }, {"1 operation", "18446744073709551615"}),
              Errc::invalid_argument);
    EXPECT_EQ(error_of([&] { opened.erase(wrong); }, {"1 operation"}), Errc::invalid_argument);
    wrong = numbers(0, most + 1);
    EXPECT_EQ(error_of([&] { opened.set(wrong, wrong); }, {"max_batch"}), Errc::invalid_argument);
    EXPECT_EQ(medium.copy(), before);
    EXPECT_EQ(opened.store->verify(), "");
    EXPECT_EQ(opened.set(keys, keys).updated, keys.size());
    EXPECT_EQ(opened.set({}, {}).updated, 0u);
    opened.abandon();
    Region::destroy(path());
  }
}

// The last of a key's operations counts, wherever they stand and however many there are.
TEST_P(KvLogRoom, OfEqualKeysInABatchTheLastStays) {
  LogOpened opened = create(64, 5000);
  for (const std::size_t count : {1000u, 5000u}) {
    Keys keys(count), values(count);
    for (std::size_t i = 0; i < count; ++i) keys[i] = i % 3, values[i] = i + count;
    opened.set(keys, values);
    Map expected;
    for (std::size_t i = 0; i < count; ++i) expected[keys[i]] = values[i];
    EXPECT_EQ(opened.contents(), expected);
    opened.reopen(path());
    EXPECT_EQ(opened.contents(), expected);
  }
  EXPECT_EQ(opened.erase(Keys(5000, 1)).removed, 1u);
  EXPECT_EQ(opened.store->stats().records, 2u);
  EXPECT_EQ(opened.store->verify(), "");
}

// As full as it may be: cleaning gains little from each segment, and still the next batch fits.
TEST_P(KvLogRoom, AFullStoreInTheSmallestLogTakesBatchesForEver) {
  std::mt19937_64 random(test_seed());
  constexpr std::uint64_t kCapacity = 4096;
  const std::uint64_t records = least_records(kCapacity, 64);
  EXPECT_LT(records, kCapacity * 13 / 10);
  LogOpened opened = create(kCapacity, 64, records);
  Map oracle;
  for (std::uint64_t first = 0; first < kCapacity; first += 64) {
    const Keys keys = numbers(first, 64);
    ASSERT_EQ(opened.set(keys, keys).inserted, 64u);
    for (const auto key : keys) oracle[key] = key;
  }
  for (std::uint64_t round = 0; round < some_of(300, 100); ++round) {
    Keys keys(1 + random() % 64), values(keys.size());
    for (auto& key : keys) key = random() % kCapacity;
    for (auto& value : values) value = random();
    ASSERT_NO_THROW(opened.set(keys, values)) << round;
    for (std::size_t i = 0; i < keys.size(); ++i) oracle[keys[i]] = values[i];
    if (round % 50 == 49) {
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
      opened.reopen(path());
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
    }
  }
}

// Keys that come and go leave tombstones and used slots behind.
TEST_P(KvLogRoom, KeysThatComeAndGoForEverLeaveRoom) {
  for (const std::uint64_t alive : {std::uint64_t{0}, std::uint64_t{1500}}) {
    SCOPED_TRACE(alive);
    LogOpened opened = create(2048, 500);
    Map oracle;
    const Keys staying = numbers(1 << 30, alive);
    for (std::uint64_t first = 0; first < alive; first += 500) {
      const Keys keys(staying.begin() + static_cast<std::ptrdiff_t>(first),
                      staying.begin() + static_cast<std::ptrdiff_t>(first + 500));
      opened.set(keys, keys);
      for (const auto key : keys) oracle[key] = key;
    }
    const std::uint64_t rounds = some_of(200, 40);
    for (std::uint64_t round = 0; round < rounds; ++round) {
      const Keys keys = numbers(round * 500, 500);
      ASSERT_NO_THROW(opened.set(keys, keys)) << round;
      ASSERT_NO_FATAL_FAILURE(opened.expect_found({keys[0], keys[499]}, [&] {
        return Map{{keys[0], keys[0]}, {keys[499], keys[499]}};
      }()));
      ASSERT_NO_THROW(opened.erase(keys)) << round;
      if (round % 40 == 39) {
        ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
        ASSERT_NO_FATAL_FAILURE(opened.expect_found(keys, oracle));
      }
      if (round + 1 == rounds * 3 / 5) opened.reopen(path());
    }
    opened.abandon();
    Region::destroy(path());
  }
}

// Uniform updates until cleaning is steady.
// Whatever leaves no more pairs than the capacity is taken, in the smallest log that there is for
// them: one at a time, by whole batches, and through erasing all.
// Its tombstones are all in the segment that is written to, which is not cleaned for them.
TEST_P(KvLogRoom, AStoreThatWasEmptiedTakesAsManyKeysAgain) {
  std::mt19937_64 random(test_seed());
  struct Shape {
    std::uint64_t capacity;
    std::uint32_t max_batch;
    std::uint64_t records;
  };
  for (const auto& [capacity, max_batch, records] :
       {Shape{1, 1, 0}, Shape{8, 8, 0}, Shape{100, 100, 0}, Shape{100, 4000, 0},
        Shape{500, 500, 1 << 19}}) {
    SCOPED_TRACE(capacity);
    LogOpened opened = create(capacity, max_batch, records);
    const std::uint64_t rounds = std::max<std::uint64_t>(20, 600 / capacity);
    for (std::uint64_t round = 0; round < rounds; ++round) {
      Keys keys(1 + random() % capacity);
      for (auto& key : keys) key = random() >> 1;
      ASSERT_EQ(opened.set(keys, keys).inserted, keys.size());
      ASSERT_EQ(opened.erase(keys).removed, keys.size());
    }
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds({}));
    opened.abandon();
    Region::destroy(path());
  }
}

// Few keys that come and go leave slots that searches pass by.
TEST_P(KvLogRoom, FewKeysThatComeAndGoAreNeverRefused) {
  std::mt19937_64 random(test_seed());
  for (const std::uint64_t capacity : {8u, 30u, 256u}) {
    SCOPED_TRACE(capacity);
    LogOpened opened = create(capacity, static_cast<std::uint32_t>(4 * capacity));
    Map oracle;
    for (std::uint64_t step = 0; step < some_of(300, 60); ++step) {
      Keys keys, values;
      const bool erases = random() % 2 == 0;
      for (std::uint64_t n = 1 + random() % (4 * capacity); n > 0; --n) {
        const std::uint64_t key = random() % (3 * capacity);
        if (erases) {
          oracle.erase(key);
        } else {
          if (oracle.count(key) == 0 && oracle.size() >= capacity) continue;
          oracle[key] = step;
          values.push_back(step);
        }
        keys.push_back(key);
      }
      if (keys.empty()) continue;
      if (erases) {
        opened.erase(keys);
      } else {
        opened.set(keys, values);
      }
    }
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
    opened.abandon();
    Region::destroy(path());
  }
}

TEST_P(KvLogRoom, AFullStoreInTheSmallestLogNeverRefusesWhatFits) {
  constexpr std::uint64_t kPairs = 1360;
  constexpr std::uint32_t kBatch = 64;
  const std::uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  LogOpened opened = create(kPairs, kBatch, least_records(kPairs, kBatch));
  Map oracle;
  std::uint64_t next = 0;
  const auto set = [&](std::uint64_t count) {
    const Keys keys = numbers(next, count);
    next += count;
    ASSERT_EQ(opened.set(keys, keys).inserted, count);
    for (const auto key : keys) oracle[key] = key;
  };
  const auto any = [&](std::uint64_t count) {
    Keys keys;
    for (const auto& [key, value] : oracle) keys.push_back(key);
    std::shuffle(keys.begin(), keys.end(), random);
    keys.resize(std::min<std::uint64_t>(count, keys.size()));
    return keys;
  };
  const auto erase = [&](const Keys& keys) {
    ASSERT_EQ(opened.erase(keys).removed, keys.size());
    for (const auto key : keys) oracle.erase(key);
  };
  const std::uint64_t churns = some_of(kFewRounds ? 50 : 400, 50);
  for (int round = 0; round < 3; ++round) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", round " + std::to_string(round));
    while (oracle.size() < kPairs) {
      ASSERT_NO_FATAL_FAILURE(set(std::min<std::uint64_t>(kBatch, kPairs - oracle.size())));
    }
    for (std::uint64_t i = 0; i < churns; ++i) {
      const std::uint64_t count = i % 4 == 0 ? kBatch : 1;
      ASSERT_NO_FATAL_FAILURE(erase(any(count)));
      ASSERT_NO_FATAL_FAILURE(set(count));
    }
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
    opened.reopen(path());
    for (std::uint64_t i = 0; i < churns; ++i) {
      const Keys keys = any(1 + random() % kBatch);
      ASSERT_EQ(opened.set(keys, keys).updated, keys.size());
    }
    while (!oracle.empty()) ASSERT_NO_FATAL_FAILURE(erase(any(kBatch)));
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  }
}

TEST_P(KvLogRoom, AmplificationIsBoundedWhereHalfOrThreeQuartersAreLive) {
  const std::uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  const auto batch = static_cast<std::uint32_t>(some_of(2048, 1024));
  const std::uint64_t pairs = 32 * batch;
  // Of so small a log headers are 2 % of each segment, and free room for a batch 2 to 3 % of all.
  const std::pair<unsigned, double> bounds[] = {{50, 1.4}, {75, 2.7}};
  const Every tried = every(1, std::size(bounds), seed);
  for (std::uint64_t i = tried.first; i < std::size(bounds); i += tried.step) {
    const auto& [live_percent, most] = bounds[i];
    SCOPED_TRACE(live_percent);
    LogOpened opened = create(pairs, batch, pairs * 100 / live_percent);
    for (std::uint64_t first = 0; first < pairs; first += batch) {
      const Keys keys = numbers(first, batch);
      opened.set(keys, keys);
    }
    double amplification = 0;
    for (int half = 0; half < 2; ++half) {
      const KvStore::Stats before = opened.store->stats();
      for (int round = 0; round < 45; ++round) {
        Keys keys(batch);
        for (auto& key : keys) key = random() % pairs;
        opened.set(keys, keys);
      }
      const KvStore::Stats after = opened.store->stats();
      amplification = static_cast<double>(after.bytes_stored - before.bytes_stored) /
                      (16.0 * static_cast<double>(after.batch_records - before.batch_records));
    }
    std::printf("%u %% live: write amplification %.2f\n", live_percent, amplification);
    EXPECT_GT(amplification, 1.0);
    EXPECT_LE(amplification, most);
    EXPECT_LE(opened.store->stats().space_amplification(), 100.0 / live_percent + 0.1);
    EXPECT_EQ(opened.store->verify(), "");
    opened.abandon();
    Region::destroy(path());
  }
}

TEST_P(KvLogRoom, ABatchMaySpanManySegments) {
  const std::uint64_t count = some_of(20'000, 4'000);
  LogOpened opened = create(some_of(1 << 15, 1 << 13), static_cast<std::uint32_t>(count));
  ASSERT_EQ(opened.store->stats().segment_records, 256u);
  const Keys keys = numbers(0, count);
  Map expected;
  for (const auto key : keys) expected[key] = key;
  for (int round = 0; round < 6; ++round) ASSERT_NO_THROW(opened.set(keys, keys));
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(expected));
  opened.reopen(path());
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(expected));
  EXPECT_EQ(opened.erase(keys).removed, count);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({}));
}

TEST_P(KvLogRoom, ACommittedImageHoldsTheLog) {
  Map expected;
  {
    LogOpened opened = create(8192, 1000);
    for (int round = 0; round < 12; ++round) {
      const Keys keys = numbers(round * 300, 1000);
      opened.set(keys, Keys(1000, round));
      for (const auto key : keys) expected[key] = round;
    }
    opened.region->commit();
    opened.abandon();
  }
  std::filesystem::remove(only_file(arenas()));  // as a reboot does
  LogOpened opened = LogOpened::open(path(), last_commit(), GetParam());
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(expected));
  opened.region->commit();
  // For reading, in a private copy.
  const LogOpened reader = LogOpened::open(path(), for_reading(), GetParam());
  ASSERT_NO_FATAL_FAILURE(reader.expect_holds(expected));
  EXPECT_EQ(error_of([&] { reader.erase({1}); }), Errc::unsupported);
}

}  // namespace
}  // namespace holdfast::test
