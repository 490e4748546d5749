// What a store refuses: use by who may not use it.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "holdfast/kv_store.hpp"
#include "support/in_child.hpp"
#include "support/scratch.hpp"

namespace holdfast {
namespace {

using test::error_of;
using test::in_child;
using Cache = KvStore::Cache;
using Keys = std::vector<std::uint64_t>;
using Words = std::vector<std::string>;

class KvStoreMisuse : public test::Scratch, public ::testing::WithParamInterface<Cache> {
 protected:
  static KvStore::Options shape() { return {64, 4, GetParam()}; }

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

INSTANTIATE_TEST_SUITE_P(Variants, KvStoreMisuse, ::testing::Values(Cache::off, Cache::on),
                         [](const auto& info) {
                           return std::string(info.param == Cache::on ? "cached" : "uncached");
                         });

TEST_P(KvStoreMisuse, OpenedAgainInAProcessTheEarlierStoreIsClosed) {
  Region region = create_region();
  KvStore first = KvStore::create(region, shape());
  set(first, 1, 5);
  KvStore second = KvStore::open(region, GetParam());
  set(second, 1, 7);
  const Words words{"key-value store 'kvs'", path(), "another of this process", "use that"};
  expect_refused(first, Errc::closed, words);
  EXPECT_NO_THROW(first.stream().synchronize());
  EXPECT_EQ(value_of(second, 1), 7u);
  EXPECT_EQ(second.verify(), "");

  KvStore third = KvStore::open(region, GetParam());
  expect_refused(first, Errc::closed, words);
  expect_refused(second, Errc::closed, words);
  second = std::move(third);  // which ends the second
  EXPECT_EQ(value_of(second, 1), 7u);
  EXPECT_EQ(second.stats().batches, 2u);
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
  KvStore again = KvStore::open(region, GetParam());
  EXPECT_EQ(value_of(again, 1), 5u);
  expect_refused(store, Errc::closed, {"key-value store 'kvs'", path(), "use that"});
}

}  // namespace
}  // namespace holdfast
