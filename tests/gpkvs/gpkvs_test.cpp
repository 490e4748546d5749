// The store against an independent oracle, and against crashes.
#include "gpkvs/gpkvs.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "support/process.hpp"
#include "support/scratch.hpp"
#ifdef HOLDFAST_INTERCEPT
#include "holdfast/cpu/listener.hpp"
#endif

namespace gpkvs {
namespace {

using holdfast::Errc;
using holdfast::Region;
using holdfast::RegionOptions;
using holdfast::test::error_of;
using Keys = std::vector<std::uint64_t>;

// The region lives on the heap: a store keeps a reference to it.
struct Opened {
  std::unique_ptr<Region> region;
  std::unique_ptr<Store> store;

  static Opened create(const std::string& path, std::uint64_t capacity, std::uint32_t max_batch) {
    RegionOptions options;
    options.size = Store::region_bytes({capacity, max_batch});
    auto region = std::make_unique<Region>(Region::create(path, options));
    auto store = std::make_unique<Store>(Store::create(*region, {capacity, max_batch}));
    return {std::move(region), std::move(store)};
  }
  static Opened open(const std::string& path) {
    auto region = std::make_unique<Region>(Region::open(path));
    auto store = std::make_unique<Store>(Store::open(*region));
    return {std::move(region), std::move(store)};
  }
  std::map<std::uint64_t, std::uint64_t> contents() const {
    const std::uint64_t records = store->scan(nullptr, nullptr, 0);
    Keys keys(records), values(records);
    store->scan(keys.data(), values.data(), records);
    std::map<std::uint64_t, std::uint64_t> result;
    for (std::size_t i = 0; i < records; ++i) result[keys[i]] = values[i];
    return result;
  }
};

class StoreTest : public holdfast::test::Scratch, public ::testing::WithParamInterface<Order> {
 protected:
  Opened create(std::uint64_t capacity, std::uint32_t max_batch) {
    Opened opened = Opened::create(path(), capacity, max_batch);
    opened.store->set_order(GetParam());
    return opened;
  }
};

INSTANTIATE_TEST_SUITE_P(Orders, StoreTest, ::testing::Values(Order::ordered, Order::unordered),
                         [](const auto& info) {
                           return info.param == Order::ordered ? "ordered" : "unordered";
                         });

TEST_P(StoreTest, RandomBatchesAgreeWithAMap) {
  std::mt19937_64 random(holdfast::test::test_seed());
  Opened opened = create(64 * 1024, 1500);
  std::map<std::uint64_t, std::uint64_t> oracle;
  for (int round = 0; round < 30; ++round) {
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

    std::vector<std::uint8_t> found(count);
    opened.store->get(keys.data(), values.data(), found.data(), count);
    for (std::size_t i = 0; i < count; ++i) {
      const auto expected = oracle.find(keys[i]);
      ASSERT_EQ(found[i] != 0, expected != oracle.end());
      ASSERT_EQ(values[i], expected == oracle.end() ? 0 : expected->second);
    }
  }
  EXPECT_EQ(opened.store->stats().batches, 30u);
}

TEST_P(StoreTest, AFullBucketEvictsAndCounts) {
  std::mt19937_64 random(holdfast::test::test_seed());
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
  const StoreStats stats = opened.store->stats();
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

TEST_P(StoreTest, BadBatchesChangeNothing) {
  Opened opened = create(1000, 100);
  Keys keys(101), values(101, 7);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  opened.store->set(keys.data(), values.data(), 50);
  const auto before = opened.contents();
  EXPECT_EQ(error_of([&] { opened.store->set(keys.data(), values.data(), 101); },
                     {"101", "100", "max_batch"}),
            Errc::invalid_argument);
  keys[70] = kReservedKey;
  EXPECT_EQ(error_of([&] { opened.store->set(keys.data(), values.data(), 100); },
                     {"1 operation", "18446744073709551615"}),
            Errc::invalid_argument);
  EXPECT_EQ(opened.contents(), before);
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
    opened.region->abandon();
  }
  std::filesystem::remove(only_file(arenas()));  // as a reboot does
  EXPECT_EQ(Opened::open(path()).contents(), expected);
}

class StoreFiles : public holdfast::test::Scratch {};

TEST_F(StoreFiles, WhatIsNoStoreIsRefused) {
  Region region = Region::create(path(), options(16 << 20));
  EXPECT_EQ(error_of([&] { Store::open(region); }, {"holds no store"}), Errc::not_found);
  EXPECT_EQ(error_of([&] { Store::create(region, {0, 10}); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { Store::create(region, {10, 0}); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { Store::create(region, {1 << 24, 10}); }, {"grow()"}), Errc::no_space);
  Store::create(region, {1000, 100});
  EXPECT_EQ(error_of([&] { Store::create(region, {1000, 100}); }), Errc::already_exists);
  auto* header = static_cast<std::uint64_t*>(region.address(region.object("kvs.header")));
  for (int word = 0; word < 4; ++word) {
    header[word] ^= 1 << 20;
    EXPECT_EQ(error_of([&] { Store::open(region); }), Errc::damaged) << word;
    header[word] ^= 1 << 20;
  }
  header[0] = 0;  // as a creation that was cut off leaves it
  EXPECT_EQ(error_of([&] { Store::open(region); }, {"cut off"}), Errc::not_found);
  Store::create(region, {1000, 100});
  EXPECT_NO_THROW(Store::open(region));
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

TEST(StoreChild, DISABLED_SetsUntilKilled) {
  const Opened opened = Opened::open(holdfast::test::from_environment("HOLDFAST_TEST_PATH"));
  Keys keys(kBatch), values(kBatch);
  for (std::uint64_t n = opened.store->stats().batches;; ++n) {
    fill_batch(n, keys, values);
    holdfast::test::report(n);
    opened.store->set(keys.data(), values.data(), kBatch);
    holdfast::test::report(n + 1);
  }
}

TEST_F(StoreFiles, KilledAtAnyMomentABatchIsThereWholeOrNot) {
  std::mt19937_64 random(holdfast::test::test_seed());
  Opened::create(path(), 16384, kBatch).region->close();
  std::map<std::uint64_t, std::uint64_t> oracle;
  std::uint64_t applied = 0;
  int recoveries = 0;
  for (int round = 0; round < 15; ++round) {
    std::uint64_t acknowledged = applied;
    {
      holdfast::test::Child child(
          "StoreChild.DISABLED_SetsUntilKilled",
          {{"HOLDFAST_TEST_PATH", path()}, {"HOLDFAST_ARENA_DIR", arenas()}});
      std::uint64_t message = 0;
      ASSERT_TRUE(child.read(message));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 15000));
      child.kill();
      bool started = true;
      while (child.read(message)) {
        started = !started;
        if (!started) acknowledged = message;
      }
    }
    ::setenv("HOLDFAST_ARENA_DIR", arenas().c_str(), 1);
    const Opened opened = Opened::open(path());
    recoveries += opened.store->recovery().needed;
    for (; applied < acknowledged; ++applied) apply_to(oracle, applied, kBatch);
    const auto contents = opened.contents();
    if (contents != oracle) {
      apply_to(oracle, applied++, kBatch);
      ASSERT_EQ(contents, oracle) << "neither without nor with the batch in flight";
    }
    ASSERT_EQ(opened.store->verify(), "");
    opened.region->abandon();
  }
  EXPECT_GT(recoveries, 0) << "no kill fell into a batch: the test tested nothing";
}

#ifdef HOLDFAST_INTERCEPT

// Dies at the n-th fence that a kernel makes durable.
class Reaper : public holdfast::cpu::Listener {
 public:
  explicit Reaper(std::uint64_t fences) : left_(fences) {}
  void on_event(const holdfast::cpu::Event& event) override {
    if (event.kind != holdfast::cpu::EventKind::durability_fence) return;
    if (left_-- == 0) ::kill(::getpid(), SIGKILL);
  }

 private:
  std::uint64_t left_;
};

constexpr std::size_t kSmallBatch = 40;

TEST(StoreChild, DISABLED_DiesAtAFence) {
  const auto fences = std::stoull(holdfast::test::from_environment("HOLDFAST_TEST_FENCES"));
  Reaper reaper(fences);
  const bool in_recovery = holdfast::test::from_environment("HOLDFAST_TEST_RECOVER") == "1";
  if (in_recovery) holdfast::cpu::set_listener(&reaper);
  const Opened opened = Opened::open(holdfast::test::from_environment("HOLDFAST_TEST_PATH"));
  holdfast::cpu::set_listener(&reaper);
  Keys keys(kSmallBatch), values(kSmallBatch);
  fill_batch(1, keys, values);
  if (!in_recovery) opened.store->set(keys.data(), values.data(), kSmallBatch);
  opened.region->abandon();
}

// Every fence of a batch, and for each fifth of them every seventh fence of its recovery.
TEST_F(StoreFiles, KilledAtEveryFenceOfABatchAndOfItsRecovery) {
  std::map<std::uint64_t, std::uint64_t> without, with;
  {
    const Opened opened = Opened::create(path(), 16384, kSmallBatch);
    Keys keys(kSmallBatch), values(kSmallBatch);
    fill_batch(0, keys, values);
    opened.store->set(keys.data(), values.data(), kSmallBatch);
    without = with = opened.contents();
    apply_to(with, 1, kSmallBatch);
    opened.region->close();
  }
  const std::vector<char> image = holdfast::test::read_file(path());
  const auto run = [&](std::uint64_t fences, bool recover) {
    holdfast::test::Child child("StoreChild.DISABLED_DiesAtAFence",
                                {{"HOLDFAST_TEST_PATH", path()},
                                 {"HOLDFAST_ARENA_DIR", arenas()},
                                 {"HOLDFAST_TEST_FENCES", std::to_string(fences)},
                                 {"HOLDFAST_TEST_RECOVER", recover ? "1" : "0"}});
    return child.wait();
  };
  bool finished = false;
  for (std::uint64_t fence = 0; !finished; ++fence) {
    ASSERT_LT(fence, 1000u);
    Region::destroy(path());
    holdfast::test::write_file(path(), image);
    const int status = run(fence, false);
    finished = status == 0;
    if (!finished) {
      ASSERT_EQ(status, 128 + SIGKILL);
    }
    for (std::uint64_t again = 0; fence % 5 == 0 && run(again, true) != 0; again += 7) {
    }
    ::setenv("HOLDFAST_ARENA_DIR", arenas().c_str(), 1);
    const Opened opened = Opened::open(path());
    const auto contents = opened.contents();
    if (finished) {
      EXPECT_EQ(contents, with);
    } else {
      EXPECT_TRUE(contents == without || contents == with) << "fence " << fence;
    }
    EXPECT_EQ(opened.store->verify(), "");
    opened.region->abandon();
  }
}

#endif  // HOLDFAST_INTERCEPT

}  // namespace
}  // namespace gpkvs
