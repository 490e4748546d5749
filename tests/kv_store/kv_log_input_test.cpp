// Large batches of a log, from whichever memory they come: kernels take what they can read from
// where it is, and append a part of the run before they have seen all keys. What a batch that is
// refused then leaves on the medium never counts; neither does what a power cut leaves of one.
#include "kv_store/kv_log_medium.hpp"
#include "kv_store/kv_log_test.hpp"
#include "support/share.hpp"
#ifdef HOLDFAST_INTERCEPT
#include "holdfast/testing/crash_medium.hpp"
#endif

namespace holdfast::test {
namespace {

struct Pairs {
  Keys keys, values;
};

class KvLogInput : public LogForms {
 protected:
  // Segments are small, so that runs have many pieces.
  static constexpr std::uint32_t kMost = 3000;
  static constexpr std::uint64_t kCapacity = 4000;
  LogOpened create() const {
    return LogOpened::create(path(), log_options(kCapacity, kMost, 12'000, GetParam()));
  }
  Place place() { return static_cast<Place>(random() % 3); }
  Input input(const Keys& words, Place at) { return {words, at, random() % 20}; }

  // Of more operations than a small batch has, with keys that come again.
  Pairs pairs(std::uint64_t keys) {
    const std::size_t count = random() % 4 == 0 ? kMost : 1025 + random() % (kMost - 1024);
    Pairs made{Keys(count), Keys(count)};
    for (auto& key : made.keys) key = spread_key(random() % keys);
    for (auto& value : made.values) value = random();
    return made;
  }
  static void apply(const Pairs& made, bool erases, Map* oracle) {
    for (std::size_t i = 0; i < made.keys.size(); ++i) {
      if (erases) {
        oracle->erase(made.keys[i]);
      } else {
        (*oracle)[made.keys[i]] = made.values[i];
      }
    }
  }
  KvStore::BatchResult give(const LogOpened& opened, const Pairs& made, bool erases, Place of_keys,
                            Place of_values) {
    const Input keys = input(made.keys, of_keys);
    if (erases) return opened.store->erase(keys.data(), made.keys.size());
    const Input values = input(made.values, of_values);
    return opened.store->set(keys.data(), values.data(), made.keys.size());
  }
  // One that has the reserved key somewhere.
  void be_refused(const LogOpened& opened, std::uint64_t keys, bool erases, Place of_values) {
    Pairs made = pairs(keys);
    made.keys[random() % made.keys.size()] = KvStore::kReservedKey;
    EXPECT_EQ(error_of([&] { give(opened, made, erases, place(), of_values); }, {"1 operation"}),
              Errc::invalid_argument);
  }

  std::uint64_t seed = test_seed();
  std::mt19937_64 random{seed};
};
HOLDFAST_BOTH_FORMS(KvLogInput);

TEST_P(KvLogInput, BatchesFromAnyMemoryDoTheSame) {
  SCOPED_TRACE(seed);
  LogOpened opened = create();
  Map oracle;
  for (std::uint64_t round = 0; round < some_of(24, 8); ++round) {
    SCOPED_TRACE(round);
    // Near the capacity counts come first.
    const Pairs made = pairs(round % 3 == 0 ? kCapacity : 1500);
    const bool erases = random() % 4 == 0;
    const std::set<std::uint64_t> distinct(made.keys.begin(), made.keys.end());
    std::uint64_t known = 0;
    for (const auto key : distinct) known += oracle.count(key);
    const KvStore::BatchResult result = give(opened, made, erases, place(), place());
    apply(made, erases, &oracle);
    ASSERT_EQ(result.inserted, erases ? 0 : distinct.size() - known);
    ASSERT_EQ(result.updated, erases ? 0 : known);
    ASSERT_EQ(result.removed, erases ? known : 0);
    ASSERT_NO_FATAL_FAILURE(opened.expect_found(made.keys, oracle));
    if (round % 4 == 0) opened.reopen_killed(path());
    if (round % 2 == 0) {
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
    }
  }
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

// Batches of any size store over what refused ones left, up to the middle of it; segments that had
// a life before have that below.
TEST_P(KvLogInput, WhatRefusedBatchesLeaveNeverCounts) {
  SCOPED_TRACE(seed);
  LogOpened opened = create();
  Map oracle;
  bool left = false;
  for (std::uint64_t round = 0; round < some_of(20, 8); ++round) {
    SCOPED_TRACE(round);
    const KvStore::Stats before = opened.store->stats();
    const LogMedium medium(*opened.region);
    const Words words = medium.copy();
    for (std::uint64_t again = random() % 3; again > 0; --again) {
      be_refused(opened, 1500, random() % 4 == 0, place());
    }
    // Of a log that is empty, one that certainly begins to append.
    if (round == 0) be_refused(opened, 1500, false, Place::pinned);
    const KvStore::Stats behind = opened.store->stats();
    EXPECT_EQ(behind.batches, before.batches);
    // What made room for them is no part of it.
    left = left || (behind.bytes_stored == before.bytes_stored && medium.copy() != words);
    if (random() % 2 == 0) {
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
    }
    if (random() % 2 == 0) opened.reopen_killed(path());
    EXPECT_FALSE(opened.store->recovery().needed);
    Pairs made = pairs(1500);
    const std::size_t count = random() % 2 == 0 ? made.keys.size() : 1 + random() % 600;
    made.keys.resize(count);
    made.values.resize(count);
    const bool erases = random() % 4 == 0;
    give(opened, made, erases, place(), place());
    apply(made, erases, &oracle);
    if (random() % 2 == 0) opened.reopen_killed(path());
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  }
  // Otherwise this would be no test of it.
  if (GetParam() == Form::whole) {
    EXPECT_TRUE(left);
  }
}

#ifdef HOLDFAST_INTERCEPT

// Crashes at the n-th fence, or (kAtTheCommit) at the one behind the store of a commit word.
class PowerCut : public testing::CrashMedium {
 public:
  static constexpr std::uint64_t kAtTheCommit = ~std::uint64_t{0};
  PowerCut(Region& region, std::uint64_t seed, std::uint64_t fence)
      : CrashMedium(region, seed),
        commit_(&LogMedium(region).commit()),
        waits_(fence == kAtTheCommit) {
    if (!waits_) crash_at(fence);
  }
  void on_event(const cpu::Event& event) override {
    CrashMedium::on_event(event);
    if (!waits_ || event.kind != cpu::EventKind::store || event.address != commit_) return;
    waits_ = false;
    crash_at(0);
  }

 private:
  const std::uint64_t* commit_;
  bool waits_;
};

// A power cut at any fence of a large batch, which loses any of the words that no fence has waited
// for: with pages appended ahead (from pinned memory), and without.
TEST_P(KvLogInput, OfALargeBatchAPowerCutLeavesAllOrNothing) {
  SCOPED_TRACE(seed);
  const KvStore::Options shape = log_options(kCapacity, kMost, 12'000, GetParam());
  const Pairs first = pairs(1500);
  Map held;
  apply(first, false, &held);
  unsigned with = 0, without = 0;
  for (unsigned round = 0; round < 16; ++round) {
    SCOPED_TRACE(round);
    const bool erases = round % 4 == 3;
    const Place of_words = round % 2 == 0 ? Place::pinned : Place::pageable;
    const Pairs second = pairs(1500);
    LogOpened opened = LogOpened::emulated(shape);
    give(opened, first, false, Place::pageable, Place::pageable);
    // One fence of each thread of a warp for a page, and 256 behind the headers. Behind the commit
    // word all has to be.
    const std::uint64_t waits = (second.keys.size() + 255) / 256 * 32;
    const std::uint64_t fences[] = {random() % waits, waits + random() % 256,
                                    PowerCut::kAtTheCommit, PowerCut::kAtTheCommit};
    PowerCut medium(*opened.region, random(), fences[round / 4]);
    give(opened, second, erases, of_words, of_words);
    const bool crashed = medium.crashed();
    if (crashed) medium.crash();
    Map after = held;
    apply(second, erases, &after);
    opened.store = std::make_unique<KvStore>(
        KvStore::open(*opened.region, KvStore::Cache::automatic, GetParam()));
    const bool is_with = opened.contents() == after;
    ASSERT_TRUE(is_with || crashed);
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(is_with ? after : held));
    ++(is_with ? with : without);
  }
  EXPECT_GT(with, 0u);
  EXPECT_GT(without, 0u);
}

#endif  // HOLDFAST_INTERCEPT

}  // namespace
}  // namespace holdfast::test
