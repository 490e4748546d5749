// What a store refuses: use by who may not use it, and arguments that cannot be.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "holdfast/kv_store.hpp"
#include "holdfast/sort.hpp"
#include "support/in_child.hpp"
#include "support/scratch.hpp"

namespace holdfast {
namespace {

using test::error_of;
using test::in_child;
using Cache = KvStore::Cache;
using Keys = std::vector<std::uint64_t>;
using Words = std::vector<std::string>;

struct Kind {
  const char* name;
  Cache cache;
  KvStore::Layout layout = KvStore::Layout::in_place;
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

class KvStoreMisuse : public test::Scratch, public ::testing::WithParamInterface<Kind> {
 protected:
  static KvStore::Options shape() {
    KvStore::Options options{64, 4, cache()};
    options.layout = GetParam().layout;
    return options;
  }
  static Cache cache() { return GetParam().cache; }

  Region create_region() const {
    return Region::create(path(), options(KvStore::region_bytes(shape())));
  }

  static void set(KvStore& store, std::uint64_t key, std::uint64_t value) {
    store.set(&key, &value, 1);
  }
  static std::uint64_t value_of(KvStore& store, std::uint64_t key) {
    std::uint64_t value = 0;
    std::uint8_t found = 0;
    store.get(&key, &value, &found, 1);
    EXPECT_EQ(found, 1) << "key " << key;
    return value;
  }

  // Whatever a store does but to give its stream.
  static void expect_refused(KvStore& store, Errc code, const Words& words) {
    std::uint64_t key = 1, value = 2;
    std::uint8_t found = 3;
    const std::pair<const char*, std::function<void()>> calls[] = {
        {"set", [&] { store.set(&key, &value, 1); }},
        {"set of nothing", [&] { store.set(&key, &value, 0); }},
        {"erase", [&] { store.erase(&key, 1); }},
        {"get", [&] { store.get(&key, &value, &found, 1); }},
        {"get of nothing", [&] { store.get(&key, &value, &found, 0); }},
        {"ref", [&] { store.ref(); }},
        {"scan", [&] { store.scan(nullptr, nullptr, 0); }},
        {"verify", [&] { store.verify(); }},
        {"await_cache", [&] { store.await_cache(); }},
        {"set_order", [&] { store.set_order(KvStore::Order::ordered); }},
        {"stats", [&] { store.stats(); }},
        {"recovery", [&] { store.recovery(); }},
        {"timing", [&] { store.timing(); }},
    };
    for (const auto& [name, call] : calls) EXPECT_EQ(error_of(call, words), code) << name;
    EXPECT_EQ(value, 2u);
    EXPECT_EQ(found, 3);
  }
};

INSTANTIATE_TEST_SUITE_P(Variants, KvStoreMisuse,
                         ::testing::Values(Kind{"uncached", Cache::off}, Kind{"cached", Cache::on},
                                           Kind{"log", Cache::automatic, KvStore::Layout::log}),
                         [](const auto& info) { return std::string(info.param.name); });

// ---- By whom ----------------------------------------------------------------------------------

TEST_P(KvStoreMisuse, OpenedAgainInAProcessTheEarlierStoreIsClosed) {
  Region region = create_region();
  KvStore first = KvStore::create(region, shape());
  set(first, 1, 5);
  KvStore second = KvStore::open(region, cache());
  set(second, 1, 7);
  const Words words{"key-value store 'kvs'", path(), "another of this process", "use that"};
  expect_refused(first, Errc::closed, words);
  EXPECT_NO_THROW(first.stream().synchronize());
  EXPECT_EQ(value_of(second, 1), 7u);
  EXPECT_EQ(second.verify(), "");

  KvStore third = KvStore::open(region, cache());
  expect_refused(first, Errc::closed, words);
  expect_refused(second, Errc::closed, words);
  second = std::move(third);  // which ends the second
  EXPECT_EQ(value_of(second, 1), 7u);
  EXPECT_EQ(second.stats().batches, 2u);
}

TEST_P(KvStoreMisuse, AnOpenThatIsRefusedForItsOptionsLeavesTheEarlierStore) {
  Region region = create_region();
  KvStore store = KvStore::create(region, shape());
  set(store, 1, 5);
  EXPECT_EQ(error_of([&] { KvStore::open(region, static_cast<Cache>(9)); }),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { KvStore::create(region, shape()); }), Errc::already_exists);
  set(store, 1, 6);
  EXPECT_EQ(value_of(store, 1), 6u);
}

// What it stored would be in whatever comes to stand there.
TEST_P(KvStoreMisuse, WithoutItsObjectsItIsClosed) {
  Region region = create_region();
  KvStore store = KvStore::create(region, shape());
  set(store, 1, 2);
  for (const ObjectInfo& each : region.objects()) region.remove(each.name);
  expect_refused(store, Errc::closed, {path()});
}

TEST_P(KvStoreMisuse, InAForkedChildItBelongsToTheParent) {
  if (std::strcmp(backend::name(), "cuda") == 0) GTEST_SKIP() << "a forked child cannot use CUDA";
  Region region = create_region();
  KvStore store = KvStore::create(region, shape());
  set(store, 1, 5);
  const std::string parent = "belongs to process " + std::to_string(::getpid());
  EXPECT_EQ(in_child([&] { expect_refused(store, Errc::in_use, {path(), parent, "fork"}); }), 0);
  set(store, 2, 6);
  EXPECT_EQ(value_of(store, 1), 5u);
  EXPECT_EQ(store.verify(), "");
}

TEST_P(KvStoreMisuse, MovedFromItIsClosed) {
  Region region = create_region();
  KvStore store = KvStore::create(region, shape());
  KvStore moved = std::move(store);
  const Words words{"the store was moved from", "use what it was moved to"};
  expect_refused(store, Errc::closed, words);
  EXPECT_EQ(error_of([&] { store.stream(); }, words), Errc::closed);
  set(moved, 1, 5);
  store = std::move(moved);
  EXPECT_EQ(value_of(store, 1), 5u);
  expect_refused(moved, Errc::closed, words);
}

TEST_P(KvStoreMisuse, WithItsRegionClosedItIsClosed) {
  Region region = create_region();
  KvStore store = KvStore::create(region, shape());
  set(store, 1, 5);
  region.close();
  expect_refused(store, Errc::closed, {"the region is closed"});
  // What is open by then is another region, though the object is the same.
  region = Region::open(path());
  expect_refused(store, Errc::closed, {"key-value store 'kvs'", path(), "since"});
  KvStore again = KvStore::open(region, cache());
  EXPECT_EQ(value_of(again, 1), 5u);
  expect_refused(store, Errc::closed, {"key-value store 'kvs'", path(), "use that"});
}

// ---- With what --------------------------------------------------------------------------------

TEST_P(KvStoreMisuse, WithoutKeysOrPlacesForAnswersABatchIsRefused) {
  Region region = create_region();
  KvStore store = KvStore::create(region, shape());
  set(store, 1, 5);
  const std::uint64_t key = 1;
  std::uint64_t value = 9;
  std::uint8_t found = 9;
  const auto refusal = [&](const Words& words, const std::function<void()>& call) {
    EXPECT_EQ(error_of(call, words), Errc::invalid_argument);
  };
  refusal({"set()", "no keys"}, [&] { store.set(nullptr, &value, 1); });
  refusal({"set()", "no values"}, [&] { store.set(&key, nullptr, 1); });
  refusal({"erase()", "no keys"}, [&] { store.erase(nullptr, 1); });
  refusal({"get()", "no keys"}, [&] { store.get(nullptr, &value, &found, 1); });
  refusal({"get()", "values"}, [&] { store.get(&key, nullptr, &found, 1); });
  refusal({"get()", "found"}, [&] { store.get(&key, &value, nullptr, 1); });
  EXPECT_EQ(value, 9u);
  EXPECT_EQ(found, 9);
  EXPECT_EQ(store.set(nullptr, nullptr, 0).inserted, 0u);
  EXPECT_EQ(store.erase(nullptr, 0).removed, 0u);
  EXPECT_NO_THROW(store.get(nullptr, nullptr, nullptr, 0));
  EXPECT_EQ(value_of(store, 1), 5u);
  EXPECT_EQ(store.stats().batches, 1u);
  EXPECT_EQ(store.verify(), "");
}

TEST_P(KvStoreMisuse, OptionsWithoutAMeaningAreRefused) {
  Region region = create_region();
  const auto refused = [&](const KvStore::Options& wrong, const Words& words) {
    EXPECT_EQ(error_of([&] { KvStore::region_bytes(wrong); }, words), Errc::invalid_argument);
    EXPECT_EQ(error_of([&] { KvStore::create(region, wrong); }, words), Errc::invalid_argument);
    EXPECT_TRUE(region.objects().empty());
  };
  for (const int log : {0, 3, 5}) {
    KvStore::Options wrong = shape();
    wrong.log = static_cast<LogLayout>(log);
    refused(wrong, {"log " + std::to_string(log), "coalesced", "conventional"});
  }
  for (const int cache : {-1, 3, 9}) {
    const Words words{"cache " + std::to_string(cache), "automatic", "off", "on"};
    KvStore::Options wrong = shape();
    wrong.cache = static_cast<Cache>(cache);
    refused(wrong, words);
    EXPECT_EQ(error_of([&] { KvStore::open(region, wrong.cache); }, words), Errc::invalid_argument);
  }
  KvStore store = KvStore::create(region, shape());
  EXPECT_EQ(error_of([&] { store.set_order(static_cast<KvStore::Order>(9)); },
                     {"order 9", "automatic", "unordered", "ordered"}),
            Errc::invalid_argument);
  set(store, 1, 5);
  EXPECT_EQ(value_of(store, 1), 5u);
}

TEST(PairSorterTest, MorePairsThanCanBeAddressedAreMoreThanThereIsMemoryFor) {
  for (const std::size_t pairs : {~std::size_t{0}, std::size_t{1} << 62, std::size_t{1} << 60}) {
    EXPECT_EQ(error_of([&] { PairSorter sorter(pairs); }, {"PairSorter", std::to_string(pairs)}),
              Errc::no_memory);
  }
}

}  // namespace
}  // namespace holdfast
