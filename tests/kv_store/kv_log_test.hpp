// What tests of the layout log share: a store with its region, and an oracle.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "holdfast/kv_store.hpp"
#include "support/scratch.hpp"

namespace holdfast::test {

using Keys = std::vector<std::uint64_t>;
using Map = std::map<std::uint64_t, std::uint64_t>;

inline KvStore::Options log_options(std::uint64_t capacity, std::uint32_t max_batch,
                                    std::uint64_t log_records = 0) {
  KvStore::Options options;
  options.capacity = capacity;
  options.max_batch = max_batch;
  options.layout = KvStore::Layout::log;
  options.log_records = log_records;
  return options;
}

// The region lives on the heap: a store keeps a reference to it.
struct LogOpened {
  std::unique_ptr<Region> region;
  std::unique_ptr<KvStore> store;

  static LogOpened create(const std::string& path, const KvStore::Options& shape) {
    RegionOptions options;
    options.size = KvStore::region_bytes(shape);
    auto region = std::make_unique<Region>(Region::create(path, options));
    auto store = std::make_unique<KvStore>(KvStore::create(*region, shape));
    return {std::move(region), std::move(store)};
  }
  static LogOpened open(const std::string& path, const OpenOptions& options = {}) {
    auto region = std::make_unique<Region>(Region::open(path, options));
    auto store = std::make_unique<KvStore>(KvStore::open(*region));
    return {std::move(region), std::move(store)};
  }
  // Closes the store, and leaves the region as a crash would.
  void abandon() {
    store.reset();
    region->abandon();
  }
  // As a process that is killed between two batches: the store takes no snapshots.
  void kill() {
    region->abandon();
    store.reset();
  }
  void reopen(const std::string& path) {
    abandon();
    *this = open(path);
  }
  void reopen_killed(const std::string& path) {
    kill();
    *this = open(path);
  }
  KvStore::BatchResult set(const Keys& keys, const Keys& values) const {
    return store->set(keys.data(), values.data(), keys.size());
  }
  KvStore::BatchResult erase(const Keys& keys) const {
    return store->erase(keys.data(), keys.size());
  }
  Map contents() const {
    const std::uint64_t records = store->scan(nullptr, nullptr, 0);
    Keys keys(records), values(records);
    store->scan(keys.data(), values.data(), records);
    Map result;
    for (std::size_t i = 0; i < records; ++i) result[keys[i]] = values[i];
    EXPECT_EQ(result.size(), records) << "a key was there twice";
    return result;
  }
  // Lookups answer what `expected` says.
  void expect_found(const Keys& keys, const Map& expected) const {
    Keys values(keys.size());
    std::vector<std::uint8_t> found(keys.size());
    store->get(keys.data(), values.data(), found.data(), keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto pair = expected.find(keys[i]);
      ASSERT_EQ(found[i] != 0, pair != expected.end()) << "key " << keys[i];
      ASSERT_EQ(values[i], pair == expected.end() ? 0 : pair->second) << "key " << keys[i];
    }
  }
  // The store holds what the oracle does, and says so in every way.
  void expect_holds(const Map& oracle) const {
    ASSERT_EQ(contents(), oracle);
    ASSERT_EQ(store->verify(), "");
    const KvStore::Stats stats = store->stats();
    ASSERT_EQ(stats.records, oracle.size());
    ASSERT_EQ(stats.live_records, stats.records + stats.tombstones);
    ASSERT_EQ(stats.total.inserted - stats.total.removed, stats.records);
  }
};

// Random batches, and what a store holds behind them.
class LogProgram {
 public:
  LogProgram(std::uint64_t seed, std::uint64_t keys, std::uint32_t max_batch)
      : random_(seed), keys_(keys), max_batch_(max_batch) {}

  // Makes a batch, applies it to both, and compares what it did. `erase_percent` of the batches
  // erase.
  void step(const LogOpened& opened, unsigned erase_percent = 25) {
    const std::size_t count = size();
    Keys keys(count), values(count);
    for (auto& key : keys) key = number(random_() % keys_);
    for (auto& value : values) value = random_() % 16 == 0 ? kErased : random_();
    const std::set<std::uint64_t> distinct(keys.begin(), keys.end());
    std::uint64_t known = 0;
    for (const auto key : distinct) known += oracle.count(key);
    if (random_() % 100 < erase_percent) {
      ASSERT_EQ(opened.erase(keys).removed, known);
      for (const auto key : keys) oracle.erase(key);
    } else {
      const KvStore::BatchResult result = opened.set(keys, values);
      ASSERT_EQ(result.inserted, distinct.size() - known);
      ASSERT_EQ(result.updated, known);
      ASSERT_EQ(result.evicted, 0u);
      for (std::size_t i = 0; i < count; ++i) oracle[keys[i]] = values[i];
    }
    asked = keys;
  }

  Map oracle;
  Keys asked;  // of the last batch

 private:
  // The value that an index has for erased keys, and the key for slots that can be used again, are
  // as good as any.
  static constexpr std::uint64_t kErased = 0xa5e7d1b3c94f6820ull;
  static std::uint64_t number(std::uint64_t key) {
    return key == 0 ? ~std::uint64_t{1} : key * 0x9e3779b97f4a7c15ull;
  }
  std::size_t size() {
    switch (random_() % 4) {
      case 0:
        return 1 + random_() % 3;
      case 1:
        return max_batch_;
      default:
        return 1 + random_() % max_batch_;
    }
  }
  std::mt19937_64 random_;
  std::uint64_t keys_;
  std::uint32_t max_batch_;
};

}  // namespace holdfast::test
