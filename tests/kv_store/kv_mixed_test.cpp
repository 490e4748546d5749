// Batches of SETs and ERASEs together, in both layouts, against an independent oracle and crashes.
#include <algorithm>

#include "kv_store/kv_log_test.hpp"
#include "support/share.hpp"
#ifdef HOLDFAST_INTERCEPT
#include "holdfast/testing/crash_medium.hpp"
#endif

namespace holdfast::test {
namespace {

using Op = KvStore::Op;
using Ops = std::vector<Op>;

struct Layout {
  const char* name;
  KvStore::Layout layout;
  KvStore::Cache cache = KvStore::Cache::off;
  Form form = Form::automatic;
  LogLayout log = LogLayout::coalesced;
};
void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

// A batch, and what it leaves.
struct Mixture {
  Ops operations;
  Keys keys, values;

  void add(Op operation, std::uint64_t key, std::uint64_t value = 0) {
    operations.push_back(operation);
    keys.push_back(key);
    values.push_back(value);
  }
  std::size_t size() const { return keys.size(); }
  void apply_to(Map& oracle) const {
    for (std::size_t i = 0; i < size(); ++i) {
      if (operations[i] == Op::erase) {
        oracle.erase(keys[i]);
      } else {
        oracle[keys[i]] = values[i];
      }
    }
  }
};

KvStore::BatchResult counts_of(const Map& before, const Map& behind, const Mixture& batch) {
  std::map<std::uint64_t, Op> last;
  for (std::size_t i = 0; i < batch.size(); ++i) last[batch.keys[i]] = batch.operations[i];
  KvStore::BatchResult result;
  for (const auto& [key, operation] : last) {
    const bool was = before.count(key) != 0;
    EXPECT_EQ(behind.count(key) != 0, operation == Op::set);
    if (operation == Op::set) ++(was ? result.updated : result.inserted);
    result.removed += was && operation == Op::erase;
  }
  return result;
}

void expect_equal(const KvStore::BatchResult& done, const KvStore::BatchResult& expected) {
  EXPECT_EQ(done.inserted, expected.inserted);
  EXPECT_EQ(done.updated, expected.updated);
  EXPECT_EQ(done.removed, expected.removed);
  EXPECT_EQ(done.evicted, expected.evicted);
}

// In memory of some kind.
class Kinds {
 public:
  Kinds(const Ops& operations, Place place) : pageable_(operations) {
    data_ = pageable_.data();
    if (place == Place::pinned) {
      pinned_ = PinnedBuffer<Op>(operations.size());
      std::copy(operations.begin(), operations.end(), pinned_.data());
      data_ = pinned_.data();
    } else if (place == Place::device) {
      device_ = DeviceBuffer<Op>(operations.size());
      Stream stream;
      copy_async(stream, device_.data(), operations.data(), operations.size());
      stream.synchronize();
      data_ = device_.data();
    }
  }
  const Op* data() const { return data_; }

 private:
  Ops pageable_;
  PinnedBuffer<Op> pinned_;
  DeviceBuffer<Op> device_;
  const Op* data_;
};

class KvMixed : public Scratch, public ::testing::WithParamInterface<Layout> {
 protected:
  KvStore::Options shape(std::uint64_t capacity, std::uint32_t max_batch) const {
    KvStore::Options options = log_options(capacity, max_batch, 0, GetParam().form);
    options.layout = GetParam().layout;
    options.cache = GetParam().cache;
    options.log = GetParam().log;
    return options;
  }
  bool is_log() const { return GetParam().layout == KvStore::Layout::log; }
  LogOpened create(std::uint64_t capacity, std::uint32_t max_batch) const {
    LogOpened opened = LogOpened::create(path(), shape(capacity, max_batch));
    opened.form = GetParam().form;
    return opened;
  }
  void reopen_killed(LogOpened& opened) const {
    opened.kill();
    opened.region = std::make_unique<Region>(Region::open(path()));
    opened.store =
        std::make_unique<KvStore>(KvStore::open(*opened.region, GetParam().cache, GetParam().form));
  }
  static KvStore::BatchResult give(const LogOpened& opened, const Mixture& batch) {
    return opened.store->apply(batch.operations.data(), batch.keys.data(), batch.values.data(),
                               batch.size());
  }
  Mixture mixture(std::size_t count, std::uint64_t keys) {
    Mixture batch;
    const std::uint64_t erases = 1 + random() % 99;
    for (std::size_t i = 0; i < count; ++i) {
      const Op operation = random() % 100 < erases ? Op::erase : Op::set;
      batch.add(operation, spread_key(random() % keys), random());
    }
    return batch;
  }
  static void expect_holds(const LogOpened& opened, const Map& oracle) {
    ASSERT_EQ(opened.contents(), oracle);
    ASSERT_EQ(opened.store->verify(), "");
    ASSERT_EQ(opened.store->stats().records, oracle.size());
  }

  std::uint64_t seed = test_seed();
  std::mt19937_64 random{seed};
};

INSTANTIATE_TEST_SUITE_P(
    Layouts, KvMixed,
    ::testing::Values(Layout{"in_place", KvStore::Layout::in_place},
                      Layout{"in_place_cached", KvStore::Layout::in_place, KvStore::Cache::on},
                      Layout{"in_place_conventional", KvStore::Layout::in_place,
                             KvStore::Cache::off, Form::automatic, LogLayout::conventional},
                      Layout{"log", KvStore::Layout::log, KvStore::Cache::off, Form::whole},
                      Layout{"log_of_fingerprints", KvStore::Layout::log, KvStore::Cache::off,
                             Form::fingerprints}),
    [](const auto& info) { return info.param.name; });

TEST_P(KvMixed, RandomBatchesDoWhatAnOracleDoes) {
  SCOPED_TRACE(seed);
  LogOpened opened = create(is_log() ? 2600 : 64 * 1024, 3000);
  Map oracle;
  for (std::uint64_t round = 0; round < some_of(kFewRounds ? 12 : 50, 12); ++round) {
    SCOPED_TRACE(round);
    opened.store->set_order(random() % 2 == 0 ? KvStore::Order::ordered
                                              : KvStore::Order::unordered);
    const std::size_t count = 1 + random() % (random() % 2 == 0 ? 1024 : 3000);
    const Mixture batch = mixture(count, 1 + random() % 4000);
    Map behind = oracle;
    batch.apply_to(behind);
    const Kinds kinds(batch.operations, static_cast<Place>(random() % 3));
    const Input keys(batch.keys, static_cast<Place>(random() % 3), random() % 20);
    const Input values(batch.values, static_cast<Place>(random() % 3), random() % 20);
    const auto give = [&] {
      return opened.store->apply(kinds.data(), keys.data(), values.data(), count);
    };
    if (is_log() && behind.size() > 2600) {
      ASSERT_EQ(error_of([&] { give(); }, {"capacity"}), Errc::no_space);
    } else {
      ASSERT_NO_FATAL_FAILURE(expect_equal(give(), counts_of(oracle, behind, batch)));
      oracle = std::move(behind);
    }
    ASSERT_NO_FATAL_FAILURE(opened.expect_found(batch.keys, oracle));
    if (random() % 3 == 0) reopen_killed(opened);
    ASSERT_NO_FATAL_FAILURE(expect_holds(opened, oracle));
  }
}

TEST_P(KvMixed, OfAKeyTheLastOperationCountsAlone) {
  for (const std::size_t others : {0u, 2000u}) {  // beside so many keys: a small batch, a large one
    SCOPED_TRACE(others);
    LogOpened opened = LogOpened::create(path(std::to_string(others)), shape(8192, 4096));
    Map oracle;
    Mixture first;
    for (const std::uint64_t key : {1u, 2u, 3u}) first.add(Op::set, key, 100 + key);
    first.add(Op::erase, 9999);
    give(opened, first);
    first.apply_to(oracle);
    Mixture batch;
    for (const std::uint64_t key : {1u, 11u}) {  // that is there, and that is not
      batch.add(Op::set, key, 7);
      batch.add(Op::erase, key);
    }
    for (const std::uint64_t key : {2u, 12u}) {
      batch.add(Op::erase, key);
      batch.add(Op::set, key, 8);
    }
    for (const std::uint64_t key : {3u, 13u}) {
      for (int i = 0; i < 3; ++i) {
        batch.add(Op::erase, key);
        batch.add(Op::set, key, 90 + static_cast<std::uint64_t>(i));
      }
      batch.add(Op::erase, key);
    }
    for (std::uint64_t i = 0; i < others; ++i) batch.add(Op::set, 1000 + i, i);
    Map behind = oracle;
    batch.apply_to(behind);
    const KvStore::BatchResult done = give(opened, batch);
    expect_equal(done, {1 + others, 1, 0, 2});
    ASSERT_NO_FATAL_FAILURE(expect_holds(opened, behind));
    opened.kill();
    opened = LogOpened::open(path(std::to_string(others)), {}, GetParam().form);
    ASSERT_NO_FATAL_FAILURE(expect_holds(opened, behind));
  }
}

// Wherever in the batch it stands.
TEST_P(KvMixed, WhatIsErasedIsRoomInAFullBucket) {
  if (is_log()) GTEST_SKIP() << "there are no buckets";
  for (const bool sets_first : {false, true}) {
    for (std::uint64_t n = 1; n <= 8; ++n) {
      LogOpened opened =
          LogOpened::create(path(std::to_string(8 * n + (sets_first ? 1 : 0))), shape(8, 64));
      Map oracle;
      Mixture fill, sets, erases;
      for (std::uint64_t key = 0; key < 8; ++key) fill.add(Op::set, key, key);
      give(opened, fill);
      fill.apply_to(oracle);
      for (std::uint64_t key = 0; key < n; ++key) {
        sets.add(Op::set, 100 + key, key);
        erases.add(Op::erase, key);
      }
      Mixture batch = sets_first ? sets : erases;
      const Mixture& rest = sets_first ? erases : sets;
      for (std::size_t i = 0; i < n; ++i) {
        batch.add(rest.operations[i], rest.keys[i], rest.values[i]);
      }
      expect_equal(give(opened, batch), {n, 0, 0, n});
      batch.apply_to(oracle);
      ASSERT_NO_FATAL_FAILURE(expect_holds(opened, oracle));
    }
  }
}

// One that is erased is room for one that is set.
TEST_P(KvMixed, AFullLogTakesABatchThatErasesAsManyAsItSets) {
  if (!is_log()) GTEST_SKIP() << "a table evicts";
  for (const std::uint64_t half : {200u, 1500u}) {
    LogOpened opened = LogOpened::create(path(std::to_string(half)), shape(2 * half, 4096));
    Map oracle;
    Mixture fill, swap;
    for (std::uint64_t i = 0; i < 2 * half; ++i) fill.add(Op::set, i, i);
    for (std::uint64_t i = 0; i < half; ++i) {
      swap.add(Op::set, 10'000 + i, i);
      swap.add(Op::erase, i);
    }
    give(opened, fill);
    fill.apply_to(oracle);
    Mixture more = swap;
    more.add(Op::set, 99'999, 1);
    ASSERT_EQ(error_of([&] { give(opened, more); }, {"capacity"}), Errc::no_space);
    ASSERT_NO_FATAL_FAILURE(expect_holds(opened, oracle));
    expect_equal(give(opened, swap), {half, 0, 0, half});
    swap.apply_to(oracle);
    ASSERT_NO_FATAL_FAILURE(expect_holds(opened, oracle));
  }
}

// What is erased stays in the index until its tombstones are dropped: of a capacity of 1,024 it has
// room for 1,536 of both.
TEST_P(KvMixed, WhatTheIndexCannotHoldOfABatchIsRefusedAndSaysHowItGoes) {
  if (!is_log()) GTEST_SKIP() << "a table has no tombstones";
  LogOpened opened = LogOpened::create(path(), shape(1024, 4096));
  Map oracle;
  Mixture fill, erased, set, both;
  for (std::uint64_t i = 0; i < 1024; ++i) fill.add(Op::set, i, i);
  give(opened, fill);
  fill.apply_to(oracle);
  for (std::uint64_t i = 0; i < 513; ++i) {
    for (Mixture* to : {&erased, &both}) to->add(Op::erase, i);
    for (Mixture* to : {&set, &both}) to->add(Op::set, 10'000 + i, i);
  }
  ASSERT_EQ(error_of([&] { give(opened, both); },
                     {"513 new keys", "1024 pairs", "1536", "batch of its own"}),
            Errc::no_space);
  ASSERT_NO_FATAL_FAILURE(expect_holds(opened, oracle));
  for (const Mixture* part : {&erased, &set}) {
    give(opened, *part);
    part->apply_to(oracle);
  }
  ASSERT_NO_FATAL_FAILURE(expect_holds(opened, oracle));
}

TEST_P(KvMixed, AFullBucketEvictsAndCounts) {
  if (is_log()) GTEST_SKIP() << "nothing is evicted";
  SCOPED_TRACE(seed);
  LogOpened opened = create(64, 500);  // eight buckets
  std::uint64_t evicted = 0, removed = 0;
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(round);
    const Map before = opened.contents();
    const Mixture batch = mixture(500, 200);
    Map all = before;
    batch.apply_to(all);
    const KvStore::BatchResult done = give(opened, batch);
    const Map behind = opened.contents();
    ASSERT_EQ(opened.store->verify(), "");
    for (const auto& [key, value] : behind) ASSERT_EQ(all.at(key), value);
    ASSERT_EQ(behind.size(), before.size() + done.inserted - done.evicted - done.removed);
    ASSERT_LE(all.size() - behind.size(), done.evicted);  // one may be set again, or erased
    evicted += done.evicted;
    removed += done.removed;
  }
  EXPECT_GT(evicted, 0u);
  EXPECT_GT(removed, 0u);
}

// One evicts, whatever the order of the keys that come again and again.
TEST_P(KvMixed, KeysThatComeAgainInAFullBucketCountOnce) {
  if (is_log()) GTEST_SKIP() << "there are no buckets";
  for (const bool erases : {false, true}) {
    LogOpened opened = LogOpened::create(path(erases ? "both" : "sets"), shape(8, 1000));
    Mixture batch;
    for (std::uint64_t i = 0; i < 900; ++i) batch.add(Op::set, i % 9, i);
    if (erases) batch.add(Op::erase, 77);
    expect_equal(give(opened, batch), {9, 0, 1, 0});
    const Map held = opened.contents();
    EXPECT_EQ(held.size(), 8u);
    for (const auto& [key, value] : held) EXPECT_EQ(value, 891 + key);
    ASSERT_EQ(opened.store->verify(), "");
  }
}

TEST_P(KvMixed, BatchesOfOneKindAreThose) {
  LogOpened opened = create(4096, 100);
  const Keys keys = {1, 2, 3}, values = {4, 5, 6};
  const Ops sets(3, Op::set), erases(3, Op::erase);
  expect_equal(opened.store->apply(sets.data(), keys.data(), values.data(), 3), {3, 0, 0, 0});
  expect_equal(opened.store->apply(erases.data(), keys.data(), values.data(), 2), {0, 0, 0, 2});
  EXPECT_EQ(opened.contents(), (Map{{3, 6}}));
  expect_equal(opened.store->apply(nullptr, nullptr, nullptr, 0), {});
}

TEST_P(KvMixed, BadInputIsRefusedAndChangesNothing) {
  LogOpened opened = create(4096, 2000);
  const Map oracle{{1, 2}, {3, 4}};
  Mixture first;
  for (const auto& [key, value] : oracle) first.add(Op::set, key, value);
  give(opened, first);
  const std::uint64_t batches = opened.store->stats().batches;
  const auto refused = [&](const Mixture& batch, const std::vector<std::string>& words) {
    EXPECT_EQ(error_of([&] { give(opened, batch); }, words), Errc::invalid_argument);
    EXPECT_EQ(opened.store->stats().batches, batches);
    ASSERT_NO_FATAL_FAILURE(expect_holds(opened, oracle));
  };
  for (const std::size_t count : {5u, 1500u}) {
    Mixture batch = mixture(count, 1000);
    batch.operations[0] = Op::set;
    batch.operations[1] = Op::erase;
    Mixture none = batch;
    none.operations[4] = static_cast<Op>(2);
    refused(none, {"operation 4", " 2;", "Op::erase"});
    for (const std::size_t at : {0u, 1u}) {
      Mixture reserved = batch;
      reserved.keys[at] = KvStore::kReservedKey;
      refused(reserved, {"1 operation"});
    }
  }
  refused(mixture(2001, 10), {"2000"});
  const Mixture batch = mixture(4, 10);
  const auto call = [&](const Op* kinds, const std::uint64_t* keys, const std::uint64_t* values) {
    return error_of([&] { opened.store->apply(kinds, keys, values, 4); }, {"apply()"});
  };
  const Op* const kinds = batch.operations.data();
  EXPECT_EQ(call(nullptr, batch.keys.data(), batch.values.data()), Errc::invalid_argument);
  EXPECT_EQ(call(kinds, nullptr, batch.values.data()), Errc::invalid_argument);
  EXPECT_EQ(call(kinds, batch.keys.data(), nullptr), Errc::invalid_argument);
  ASSERT_NO_FATAL_FAILURE(expect_holds(opened, oracle));
}

#ifdef HOLDFAST_INTERCEPT

// A power cut at any fence of a batch, which loses any of the words that no fence has waited for.
TEST_P(KvMixed, APowerCutLeavesAllOrNothing) {
  SCOPED_TRACE(seed);
  unsigned with = 0, without = 0;
  const auto some_are_missing = [&] { return with == 0 || without == 0; };
  for (std::uint64_t round = 0; round < some_of(40, 16) || (some_are_missing() && round < 200);
       ++round) {
    SCOPED_TRACE(round);
    LogOpened opened = LogOpened::emulated(shape(is_log() ? 4000 : 8192, 1500));
    Map held;
    const Mixture first = mixture(300, 400);
    give(opened, first);
    first.apply_to(held);
    const Mixture second = mixture(round % 2 == 0 ? 1 + random() % 30 : 1025 + random() % 400, 900);
    Map after = held;
    second.apply_to(after);
    testing::CrashMedium medium(*opened.region, random());
    medium.crash_at(random() % (4 * second.size() + 40));
    give(opened, second);
    const bool crashed = medium.crashed();
    if (crashed) medium.crash();
    opened.store =
        std::make_unique<KvStore>(KvStore::open(*opened.region, GetParam().cache, GetParam().form));
    const bool is_with = opened.contents() == after;
    ASSERT_TRUE(is_with || crashed);
    ASSERT_NO_FATAL_FAILURE(expect_holds(opened, is_with ? after : held));
    ++(is_with ? with : without);
  }
  EXPECT_GT(with, 0u);
  EXPECT_GT(without, 0u);
}

#endif  // HOLDFAST_INTERCEPT

}  // namespace
}  // namespace holdfast::test
