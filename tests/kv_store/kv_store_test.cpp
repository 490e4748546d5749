// The store against an independent oracle, and against crashes.
#include "holdfast/kv_store.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "holdfast/undo_log.hpp"
#include "kv_store/rules.hpp"
#include "support/killed_child.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"
#ifdef HOLDFAST_INTERCEPT
#include "support/reaper.hpp"
#endif

namespace holdfast {
namespace {

using kv::ordering_pays;
using kv::wants_copy;
using test::error_of;
using test::Every;
using test::every;
using test::some_of;
using BatchResult = KvStore::BatchResult;
using Cache = KvStore::Cache;
using Order = KvStore::Order;
using Keys = std::vector<std::uint64_t>;

// How a store is made and its batches laid out.
struct Variant {
  const char* name;
  Order order = Order::ordered;
  Cache cache = Cache::off;
  LogLayout log = LogLayout::coalesced;
};

void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }

// The region lives on the heap: a store keeps a reference to it.
struct Opened {
  std::unique_ptr<Region> region;
  std::unique_ptr<KvStore> store;

  static Opened create(const std::string& path, const KvStore::Options& shape) {
    RegionOptions options;
    options.size = KvStore::region_bytes(shape);
    auto region = std::make_unique<Region>(Region::create(path, options));
    auto store = std::make_unique<KvStore>(KvStore::create(*region, shape));
    return {std::move(region), std::move(store)};
  }
  static Opened open(const std::string& path, Cache cache = Cache::automatic,
                     const OpenOptions& options = {}) {
    auto region = std::make_unique<Region>(Region::open(path, options));
    auto store = std::make_unique<KvStore>(KvStore::open(*region, cache));
    return {std::move(region), std::move(store)};
  }
  // As a process that is killed between two batches.
  void abandon() const { region->abandon(); }
  std::map<std::uint64_t, std::uint64_t> contents() const {
    const std::uint64_t records = store->scan(nullptr, nullptr, 0);
    Keys keys(records), values(records);
    store->scan(keys.data(), values.data(), records);
    std::map<std::uint64_t, std::uint64_t> result;
    for (std::size_t i = 0; i < records; ++i) result[keys[i]] = values[i];
    return result;
  }
  // Lookups answer what `expected` says.
  void expect_found(const Keys& keys,
                    const std::map<std::uint64_t, std::uint64_t>& expected) const {
    Keys values(keys.size());
    std::vector<std::uint8_t> found(keys.size());
    store->get(keys.data(), values.data(), found.data(), keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto pair = expected.find(keys[i]);
      ASSERT_EQ(found[i] != 0, pair != expected.end()) << "key " << keys[i];
      ASSERT_EQ(values[i], pair == expected.end() ? 0 : pair->second) << "key " << keys[i];
    }
  }
};

class StoreTest : public test::Scratch, public ::testing::WithParamInterface<Variant> {
 protected:
  Opened create(std::uint64_t capacity, std::uint32_t max_batch) {
    Opened opened = Opened::create(path(), {capacity, max_batch, GetParam().cache, GetParam().log});
    opened.store->set_order(GetParam().order);
    EXPECT_EQ(opened.store->stats().cached, GetParam().cache == Cache::on);
    EXPECT_EQ(opened.store->stats().log, GetParam().log);
    return opened;
  }
};

INSTANTIATE_TEST_SUITE_P(
    Variants, StoreTest,
    ::testing::Values(Variant{"ordered"}, Variant{"unordered", Order::unordered},
                      Variant{"ordered_cached", Order::ordered, Cache::on},
                      Variant{"unordered_cached", Order::unordered, Cache::on},
                      Variant{"conventional", Order::ordered, Cache::off, LogLayout::conventional},
                      Variant{"unordered_conventional_cached", Order::unordered, Cache::on,
                              LogLayout::conventional}),
    [](const auto& info) { return info.param.name; });

TEST_P(StoreTest, RandomBatchesAgreeWithAMap) {
  std::mt19937_64 random(test::test_seed());
  Opened opened = create(64 * 1024, 1500);
  std::map<std::uint64_t, std::uint64_t> oracle;
  const std::uint64_t rounds = some_of(30, 10);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::size_t count = 1 + random() % 1500;
    Keys keys(count), values(count);
    for (auto& key : keys) key = random() % 3000;  // many keys twice in a batch
    for (auto& value : values) value = random();
    std::set<std::uint64_t> distinct(keys.begin(), keys.end());
    std::uint64_t known = 0;
    for (const auto key : distinct) known += oracle.count(key);
    if (round % 3 == 2) {
      const BatchResult result = opened.store->erase(keys.data(), count);
      EXPECT_EQ(result.removed, known);
      for (const auto key : keys) oracle.erase(key);
    } else {
      const BatchResult result = opened.store->set(keys.data(), values.data(), count);
      EXPECT_EQ(result.inserted, distinct.size() - known);
      EXPECT_EQ(result.updated, known);
      EXPECT_EQ(result.evicted, 0u);
      for (std::size_t i = 0; i < count; ++i) oracle[keys[i]] = values[i];
    }
    ASSERT_EQ(opened.contents(), oracle) << "round " << round;
    ASSERT_EQ(opened.store->verify(), "");

    ASSERT_NO_FATAL_FAILURE(opened.expect_found(keys, oracle));
  }
  EXPECT_EQ(opened.store->stats().batches, rounds);
}

TEST_P(StoreTest, AFullBucketEvictsAndCounts) {
  std::mt19937_64 random(test::test_seed());
  Opened opened = create(64, 500);  // eight buckets
  std::map<std::uint64_t, std::uint64_t> latest;
  for (int round = 0; round < 8; ++round) {
    Keys keys(500), values(500);
    for (auto& key : keys) key = random() % 400;
    for (auto& value : values) value = random();
    for (std::size_t i = 0; i < keys.size(); ++i) latest[keys[i]] = values[i];
    opened.store->set(keys.data(), values.data(), keys.size());
    for (const auto& [key, value] : opened.contents()) {
      // What an eviction took and brought back within a batch has its latest value too.
      ASSERT_EQ(value, latest.at(key));
    }
    ASSERT_EQ(opened.store->verify(), "");
  }
  const KvStore::Stats stats = opened.store->stats();
  EXPECT_EQ(stats.records, 64u);
  EXPECT_GT(stats.total.evicted, 0u);
  EXPECT_EQ(stats.total.inserted - stats.total.evicted - stats.total.removed, stats.records);
}

TEST_P(StoreTest, AllOfABatchMayMeetInOneBucket) {
  Opened opened = create(8, 1024);  // one bucket
  Keys keys(1024), values(1024);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = i % 5, values[i] = i;
  const BatchResult result = opened.store->set(keys.data(), values.data(), keys.size());
  EXPECT_EQ(result.inserted, 5u);
  for (const auto& [key, value] : opened.contents()) EXPECT_EQ(value, 1019 + (key + 1) % 5);
  EXPECT_EQ(opened.store->erase(keys.data(), 3).removed, 3u);
  EXPECT_EQ(opened.contents().size(), 2u);
}

// Runs of one key, shorter and longer than a block of threads, among keys that evict one another,
// against the same operations in batches of one.
TEST_P(StoreTest, RunsOfAKeyAreAsItsOperationsOneByOne) {
  std::mt19937_64 random(test::test_seed());
  const Opened together = create(8, 2000);  // one bucket
  const KvStore::Options shape{8, 1, GetParam().cache, GetParam().log};
  const Opened one_by_one = Opened::create(path("one_by_one"), shape);
  // Of a share one run that is longer than a block is enough.
  const std::uint64_t most = some_of(1200, 200);
  for (std::uint64_t round = 0; round < some_of(2); ++round) {
    Keys keys(40), values;
    for (auto& key : keys) key = random() % 12;
    while (keys.size() < most) {
      constexpr std::size_t kLengths[] = {1, 1, 1, 2, 7, 8, 9, 300, 700};
      const std::size_t length = kLengths[random() % (most < 700 ? 8 : 9)];
      keys.insert(keys.end(), std::min(length, 2000 - keys.size()), random() % 12);
    }
    for (std::size_t i = 0; i < keys.size(); ++i) values.push_back(random());
    together.store->set(keys.data(), values.data(), keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) one_by_one.store->set(&keys[i], &values[i], 1);
    ASSERT_EQ(together.contents(), one_by_one.contents()) << "round " << round;
    ASSERT_EQ(together.store->verify(), "");
    const std::size_t before = together.contents().size();
    const std::uint64_t removed = together.store->erase(keys.data(), 20).removed;
    for (std::size_t i = 0; i < 20; ++i) one_by_one.store->erase(&keys[i], 1);
    ASSERT_EQ(together.contents(), one_by_one.contents()) << "round " << round;
    EXPECT_EQ(removed, before - together.contents().size());
  }
  EXPECT_GT(together.store->stats().total.evicted, 0u);
}

TEST_P(StoreTest, BadBatchesChangeNothing) {
  Opened opened = create(1000, 100);
  Keys keys(101), values(101, 7);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  opened.store->set(keys.data(), values.data(), 50);
  const auto before = opened.contents();
  EXPECT_EQ(error_of([&] { opened.store->set(keys.data(), values.data(), 101); },
                     {"101", "100", "max_batch"}),
            Errc::invalid_argument);
  keys[70] = KvStore::kReservedKey;
  EXPECT_EQ(error_of([&] { opened.store->set(keys.data(), values.data(), 100); },
                     {"1 operation", "18446744073709551615"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { opened.store->set(keys.data(), nullptr, 50); }, {"values", "erase()"}),
            Errc::invalid_argument);
  EXPECT_EQ(opened.contents(), before);
  EXPECT_EQ(opened.store->verify(), "");
  EXPECT_EQ(opened.store->set(keys.data(), values.data(), 0).inserted, 0u);
  std::vector<std::uint8_t> found(100, 9);
  opened.store->get(keys.data(), values.data(), found.data(), 100);
  EXPECT_EQ(found[70], 0);
  EXPECT_EQ(found[10], 1);
}

TEST_P(StoreTest, ACommittedImageHoldsTheTable) {
  std::map<std::uint64_t, std::uint64_t> expected;
  {
    Opened opened = create(10000, 1000);
    Keys keys(1000), values(1000);
    for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = i * 977, values[i] = i;
    opened.store->set(keys.data(), values.data(), keys.size());
    expected = opened.contents();
    opened.region->commit();
    opened.store.reset();
    opened.abandon();
  }
  std::filesystem::remove(only_file(arenas()));  // as a reboot does
  const Opened opened = Opened::open(path(), GetParam().cache, last_commit());
  EXPECT_EQ(opened.contents(), expected);
  EXPECT_EQ(opened.store->verify(), "");
}

// Abandoned between batches, and opened again with the copy and without it.
TEST_P(StoreTest, ReopenedAfterAnyBatchItHoldsWhatItHeld) {
  std::mt19937_64 random(test::test_seed());
  Opened opened = create(16 * 1024, 600);
  std::map<std::uint64_t, std::uint64_t> oracle;
  for (int round = 0; round < 12; ++round) {
    const std::size_t count = 1 + random() % 600;
    Keys keys(count), values(count);
    for (auto& key : keys) key = random() % 2000;
    for (auto& value : values) value = random();
    opened.store->set(keys.data(), values.data(), count);
    for (std::size_t i = 0; i < count; ++i) oracle[keys[i]] = values[i];

    opened.store.reset();
    opened.abandon();
    const Cache cache = random() % 2 == 0 ? Cache::on : Cache::off;
    opened = Opened::open(path(), cache);
    opened.store->set_order(GetParam().order);
    ASSERT_EQ(opened.store->stats().cached, cache == Cache::on);
    ASSERT_EQ(opened.store->stats().log, GetParam().log);
    ASSERT_EQ(opened.contents(), oracle) << "round " << round;
    ASSERT_NO_FATAL_FAILURE(opened.expect_found(keys, oracle));
    ASSERT_EQ(opened.store->verify(), "");
  }
}

// Tails that say that every other slot is full, as no batch leaves them (of entries that say that
// the first way was empty, as it was): then nothing of a batch is applied, neither to the table nor
// to its copy.
TEST_P(StoreTest, ABatchThatCannotBeLoggedIsNotApplied) {
  {
    Opened opened = create(16 * 1024, 512);
    auto& region = *opened.region;
    const ObjectInfo log = region.object("kvs.log");
    auto* const tails =
        reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(region.address(log)) + kPageBytes);
    const auto* const transaction =
        static_cast<const std::uint64_t*>(region.address(region.object("kvs.tx")));
    const std::uint64_t epoch = transaction[1] >> 2;  // docs/format.md
    for (std::uint32_t slot = 0; slot < 512; slot += 2) {
      tails[slot] = static_cast<std::uint32_t>(epoch % 65535 + 1) << 16 | 6;
    }
    opened.store.reset();
    opened.abandon();
  }
  Opened opened = Opened::open(path(), GetParam().cache);
  opened.store->set_order(GetParam().order);
  Keys keys(512), values(512, 7);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  EXPECT_EQ(error_of([&] { opened.store->set(keys.data(), values.data(), 512); },
                     {"'kvs.tx'", path(), "256 entries", "taken back"}),
            Errc::log_full);
  EXPECT_TRUE(opened.contents().empty());
  opened.expect_found(keys, {});
  EXPECT_EQ(opened.store->verify(), "");
  EXPECT_EQ(opened.store->stats().batches, 0u);

  // The logs are empty again.
  EXPECT_EQ(opened.store->set(keys.data(), values.data(), 512).inserted, 512u);
  EXPECT_EQ(opened.store->verify(), "");
}

class StoreFiles : public test::Scratch {};

TEST_F(StoreFiles, LookupsReadTheCopyAndTheTableIsTheTruth) {
  Opened opened = Opened::create(path(), {8, 10, Cache::on});
  const Keys keys{5};
  const Keys values{50};
  opened.store->set(keys.data(), values.data(), 1);
  auto* const table =
      static_cast<std::uint64_t*>(opened.region->address(opened.region->object("kvs.table")));
  ASSERT_EQ(table[1], 50u);
  table[1] = 51;  // behind the store's back
  opened.expect_found(keys, {{5, 50}});
  EXPECT_NE(opened.store->verify().find("bucket 0: the copy"), std::string::npos);
  EXPECT_EQ(opened.contents().at(5), 51u);
  opened.store.reset();
  opened.abandon();
  opened = Opened::open(path(), Cache::on);
  opened.expect_found(keys, {{5, 51}});
  EXPECT_EQ(opened.store->verify(), "");
}

TEST(StoreCopy, IsMadeWhereItHasRoomAndUse) {
  constexpr std::uint64_t kGiB = 1 << 30;
  EXPECT_TRUE(wants_copy(Cache::automatic, 7 * kGiB, 8 * kGiB, true));
  EXPECT_FALSE(wants_copy(Cache::automatic, 7 * kGiB + 1, 8 * kGiB, true));
  EXPECT_FALSE(wants_copy(Cache::automatic, kGiB, 8 * kGiB, false));
  EXPECT_FALSE(wants_copy(Cache::automatic, 1, 0, true));
  EXPECT_FALSE(wants_copy(Cache::off, 1, 8 * kGiB, true));
  EXPECT_TRUE(wants_copy(Cache::on, 8 * kGiB, 8 * kGiB, true));
  EXPECT_TRUE(wants_copy(Cache::on, 8 * kGiB, 8 * kGiB, false));
  EXPECT_EQ(error_of([&] { wants_copy(Cache::on, 8 * kGiB + 1, 8 * kGiB, true); },
                     {"8589934593", "8589934592", "cache off"}),
            Errc::no_memory);
}

TEST(StoreCopy, LookupsInItAreNotOrdered) {
  constexpr std::uint64_t kBytes = std::uint64_t{4} << 30;
  EXPECT_TRUE(ordering_pays(kBytes, false, 1 << 20, true));
  EXPECT_TRUE(ordering_pays(kBytes, false, 1 << 20, false));
  EXPECT_TRUE(ordering_pays(kBytes, true, 1 << 20, true));
  EXPECT_FALSE(ordering_pays(kBytes, true, 1 << 20, false));
}

TEST_F(StoreFiles, AConventionalLogTakesSmallerBatches) {
  const KvStore::Options most{8, 11184128, Cache::off, LogLayout::conventional};
  EXPECT_GT(KvStore::region_bytes(most), 11184128u * 24);
  KvStore::Options more = most;
  more.max_batch += 1;
  EXPECT_EQ(error_of([&] { KvStore::region_bytes(more); }, {"11184129", "coalesced"}),
            Errc::invalid_argument);
  more.log = LogLayout::coalesced;
  EXPECT_NO_THROW(KvStore::region_bytes(more));
}

TEST_F(StoreFiles, WhatIsNoStoreIsRefused) {
  Region region = Region::create(path(), options(16 << 20));
  EXPECT_EQ(error_of([&] { KvStore::open(region); }, {"holds no key-value store 'kvs'", path()}),
            Errc::not_found);
  EXPECT_EQ(error_of([&] { KvStore::create(region, {0, 10}); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { KvStore::create(region, {10, 0}); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { KvStore::create(region, {1 << 24, 10}); }, {"grow()"}), Errc::no_space);
  KvStore::create(region, {1000, 100});
  EXPECT_EQ(error_of([&] { KvStore::create(region, {1000, 100}); }), Errc::already_exists);
  auto* header = static_cast<std::uint64_t*>(region.address(region.object("kvs.header")));
  const std::uint64_t whole = header[0];
  for (int word = 0; word < 512; ++word) {
    header[word] ^= 1 << 20;
    EXPECT_EQ(error_of([&] { KvStore::open(region); }, {"'kvs'"}), Errc::damaged) << word;
    header[word] ^= 1 << 20;
  }
  header[0] = 0x31454b414d444c48;  // as a creation that was cut off leaves it; docs/format.md
  EXPECT_EQ(error_of([&] { KvStore::open(region); }, {"cut off"}), Errc::not_found);
  KvStore::create(region, {1000, 100});
  EXPECT_NO_THROW(KvStore::open(region));
  header = static_cast<std::uint64_t*>(region.address(region.object("kvs.header")));
  EXPECT_EQ(header[0], whole);
}

// A store of the version before durable objects, by hand: header, table, transaction and logs.
TEST_F(StoreFiles, AStoreOfTheLastVersionIsRefusedAndLeftAlone) {
  Region region = Region::create(path(), options(16 << 20));
  const auto words = [&](const char* name) {
    return static_cast<std::uint64_t*>(region.address(region.object(name)));
  };
  region.allocate_raw("kvs.header", "kvs_header", 80, 1, Tracking::marked);
  region.allocate_raw("kvs.table", "kvs_bucket", 128, 8, Tracking::marked);
  auto transaction = Transaction::create(region, "kvs.tx");
  transaction.create_log(region, "kvs.log", LogShape::coalesced(256, 24));
  transaction.create_log(region, "kvs.meta", LogShape::conventional(1, 48));
  words("kvs.header")[0] = 0x313053564b444c48;
  words("kvs.header")[1] = 8;
  words("kvs.table")[0] = ~std::uint64_t{7};
  words("kvs.table")[1] = 49;
  const auto refusal = [&](auto&& call) {
    return error_of(call, {"'kvs'", path(), "kvs_header", "earlier version", "make it again"});
  };
  for (const std::uint64_t magic : {std::uint64_t{0x313053564b444c48}, std::uint64_t{0}}) {
    words("kvs.header")[0] = magic;
    EXPECT_EQ(refusal([&] { KvStore::open(region); }), Errc::unsupported);
    EXPECT_EQ(refusal([&] { KvStore::create(region, {64, 10}); }), Errc::unsupported);
  }
  EXPECT_EQ(region.objects().size(), 5u);
  EXPECT_EQ(words("kvs.table")[1], 49u);
}

// Batch `n` sets 300 keys, some of them anew, and its number is in every value.
constexpr std::size_t kBatch = 300;
void fill_batch(std::uint64_t n, Keys& keys, Keys& values) {
  std::mt19937_64 random(n);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    keys[i] = random() % 2000;
    values[i] = n << 32 | (random() & 0xffffffff);
  }
}
void apply_to(std::map<std::uint64_t, std::uint64_t>& oracle, std::uint64_t n, std::size_t count) {
  Keys keys(count), values(count);
  fill_batch(n, keys, values);
  for (std::size_t i = 0; i < count; ++i) oracle[keys[i]] = values[i];
}

Cache cache_from_environment() {
  const bool cached = test::from_environment("HOLDFAST_TEST_CACHED") == "1";
  return cached ? Cache::on : Cache::off;
}

TEST(StoreChild, DISABLED_SetsUntilKilled) {
  const Opened opened =
      Opened::open(test::from_environment("HOLDFAST_TEST_PATH"), cache_from_environment());
  Keys keys(kBatch), values(kBatch);
  for (std::uint64_t n = opened.store->stats().batches;; ++n) {
    fill_batch(n, keys, values);
    test::report_batch(n, [&] { opened.store->set(keys.data(), values.data(), kBatch); });
  }
}

// What crashes are tried on: the store as it is by default, and everything else at once.
class CrashedStore : public test::Scratch, public ::testing::WithParamInterface<Variant> {
 protected:
  KvStore::Options options_for(std::uint32_t max_batch) const {
    return {16384, max_batch, GetParam().cache, GetParam().log};
  }
  std::string cached() const { return GetParam().cache == Cache::on ? "1" : "0"; }
};

INSTANTIATE_TEST_SUITE_P(Variants, CrashedStore,
                         ::testing::Values(Variant{"usual"},
                                           Variant{"cached", Order::ordered, Cache::on},
                                           Variant{"conventional_cached", Order::ordered, Cache::on,
                                                   LogLayout::conventional}),
                         [](const auto& info) { return info.param.name; });

TEST_P(CrashedStore, KilledAtAnyMomentABatchIsThereWholeOrNot) {
  std::mt19937_64 random(test::test_seed());
  Opened::create(path(), options_for(kBatch)).region->close();
  std::map<std::uint64_t, std::uint64_t> oracle;
  std::uint64_t applied = 0;
  int recoveries = 0;
  // A transaction takes a small part of a batch's time: most kills miss it.
  for (test::KillRounds rounds(some_of(15, 3)); rounds.another(recoveries > 0);) {
    const test::ToldBatches told = test::batches_told(
        applied, test::told_until_killed<test::ToldBatch>(
                     "StoreChild.DISABLED_SetsUntilKilled", arenas(),
                     {{"HOLDFAST_TEST_PATH", path()}, {"HOLDFAST_TEST_CACHED", cached()}}, random,
                     rounds.most_microseconds(15'000)));
    const Opened opened = Opened::open(path(), GetParam().cache);
    recoveries += opened.store->recovery().needed;
    for (; applied < told.done; ++applied) apply_to(oracle, applied, kBatch);
    const auto contents = opened.contents();
    if (applied < told.begun && contents != oracle) apply_to(oracle, applied++, kBatch);
    ASSERT_EQ(contents, oracle) << "neither without nor with the batch in flight";
    ASSERT_EQ(opened.store->verify(), "");
    opened.abandon();
  }
}

#ifdef HOLDFAST_INTERCEPT

constexpr std::size_t kSmallBatch = 40;

TEST(StoreChild, DISABLED_DiesAtAFence) {
  const auto fences = std::stoull(test::from_environment("HOLDFAST_TEST_FENCES"));
  test::Reaper reaper(fences);
  const bool in_recovery = test::from_environment("HOLDFAST_TEST_RECOVER") == "1";
  if (in_recovery) cpu::set_listener(&reaper);
  const Opened opened =
      Opened::open(test::from_environment("HOLDFAST_TEST_PATH"), cache_from_environment());
  cpu::set_listener(&reaper);
  Keys keys(kSmallBatch), values(kSmallBatch);
  fill_batch(1, keys, values);
  if (!in_recovery) opened.store->set(keys.data(), values.data(), kSmallBatch);
  opened.abandon();
}

// Every fence of a batch, and for each fifth of them every seventh fence of its recovery.
TEST_P(CrashedStore, KilledAtEveryFenceOfABatchAndOfItsRecovery) {
  std::map<std::uint64_t, std::uint64_t> without, with;
  {
    const Opened opened = Opened::create(path(), options_for(kSmallBatch));
    Keys keys(kSmallBatch), values(kSmallBatch);
    fill_batch(0, keys, values);
    opened.store->set(keys.data(), values.data(), kSmallBatch);
    without = with = opened.contents();
    apply_to(with, 1, kSmallBatch);
    opened.region->close();
  }
  const std::string child = "StoreChild.DISABLED_DiesAtAFence";
  const auto recovery_ends = [&](std::uint64_t fences) {
    return test::came_to_its_end(child, arenas(),
                                 {{"HOLDFAST_TEST_PATH", path()},
                                  {"HOLDFAST_TEST_CACHED", cached()},
                                  {"HOLDFAST_TEST_FENCES", std::to_string(fences)},
                                  {"HOLDFAST_TEST_RECOVER", "1"}});
  };
  const std::uint64_t seed = test::test_seed();
  const Every tried = every(7, 28, seed);  // of its recovery
  std::uint64_t kills = 0;
  const auto look = [&](std::uint64_t fence, bool finished) {
    const bool opens_cut_off = kills++ % 5 == 0;
    for (std::uint64_t again = tried.first; opens_cut_off && !recovery_ends(again);
         again += tried.step) {
      ASSERT_FALSE(HasFailure());
    }
    const Opened opened = Opened::open(path(), GetParam().cache);
    const auto contents = opened.contents();
    if (finished) {
      EXPECT_EQ(contents, with);
    } else {
      EXPECT_TRUE(contents == without || contents == with) << "fence " << fence;
    }
    EXPECT_EQ(opened.store->verify(), "");
    opened.abandon();
  };
  test::kill_at_fences(child, path(), arenas(),
                       {{"HOLDFAST_TEST_CACHED", cached()}, {"HOLDFAST_TEST_RECOVER", "0"}}, 1000,
                       test::all_below(0, 1), look, every(1, 100, seed));
}

#endif  // HOLDFAST_INTERCEPT

}  // namespace
}  // namespace holdfast
