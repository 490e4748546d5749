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

using Form = KvStore::Index;

// On a GPU an opening makes device memory and pins the region anew, a child makes a context, and a
// batch is launches and a wait: some hundred of each are most of what these tests take. What many
// rounds look for is in code that both backends share, and the CPU backend does them all.
#if defined(HOLDFAST_BACKEND_CUDA)
inline constexpr bool kFewRounds = true;
#else
inline constexpr bool kFewRounds = false;
#endif

// Tests of both forms of an index.
class LogForms : public Scratch, public ::testing::WithParamInterface<Form> {};
inline std::string name_of_form(const ::testing::TestParamInfo<Form>& info) {
  return info.param == Form::whole ? "whole" : "fingerprints";
}
#define HOLDFAST_BOTH_FORMS(suite)                                                           \
  INSTANTIATE_TEST_SUITE_P(Forms, suite, ::testing::Values(Form::whole, Form::fingerprints), \
                           name_of_form)

inline KvStore::Options log_options(std::uint64_t capacity, std::uint32_t max_batch,
                                    std::uint64_t log_records = 0, Form form = Form::automatic) {
  KvStore::Options options;
  options.capacity = capacity;
  options.max_batch = max_batch;
  options.layout = KvStore::Layout::log;
  options.log_records = log_records;
  options.index = form;
  return options;
}

// The region lives on the heap: a store keeps a reference to it.
struct LogOpened {
  std::unique_ptr<Region> region;
  std::unique_ptr<KvStore> store;
  Form form = Form::automatic;

  static LogOpened create(const std::string& path, const KvStore::Options& shape) {
    RegionOptions options;
    options.size = KvStore::region_bytes(shape);
    auto region = std::make_unique<Region>(Region::create(path, options));
    auto store = std::make_unique<KvStore>(KvStore::create(*region, shape));
    return {std::move(region), std::move(store), shape.index};
  }
  // In memory that a test loses words of.
  static LogOpened emulated(const KvStore::Options& shape) {
    RegionOptions options;
    options.size = KvStore::region_bytes(shape);
    options.domain = Domain::emulated;
    auto region = std::make_unique<Region>(Region::create("emulated", options));
    auto store = std::make_unique<KvStore>(KvStore::create(*region, shape));
    return {std::move(region), std::move(store), shape.index};
  }
  static LogOpened open(const std::string& path, const OpenOptions& options = {},
                        Form form = Form::automatic) {
    auto region = std::make_unique<Region>(Region::open(path, options));
    auto store = std::make_unique<KvStore>(KvStore::open(*region, KvStore::Cache::automatic, form));
    return {std::move(region), std::move(store), form};
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
    *this = open(path, {}, form);
  }
  void reopen_killed(const std::string& path) {
    kill();
    *this = open(path, {}, form);
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
    if (form != Form::automatic) {
      ASSERT_EQ(store->stats().index, form);
    }
    ASSERT_EQ(contents(), oracle);
    ASSERT_EQ(store->verify(), "");
    const KvStore::Stats stats = store->stats();
    ASSERT_EQ(stats.records, oracle.size());
    ASSERT_EQ(stats.live_records, stats.records + stats.tombstones);
    ASSERT_EQ(stats.total.inserted - stats.total.removed, stats.records);
  }
};

// The value that an index has for erased keys, and the key for slots that can be used again, are as
// good as any.
inline std::uint64_t spread_key(std::uint64_t number) {
  return number == 0 ? ~std::uint64_t{1} : number * 0x9e3779b97f4a7c15ull;
}

// Where the words of a batch are.
enum class Place { pageable, pinned, device };

// Words in memory of some kind, from any word of a line on.
class Input {
 public:
  Input(const Keys& words, Place place, std::size_t lead) {
    Keys led(lead, ~std::uint64_t{0});  // what is in front is nobody's: a key that is refused
    led.insert(led.end(), words.begin(), words.end());
    const std::size_t bytes = led.size() * sizeof(std::uint64_t);
    if (place == Place::device) {
      device_ = DeviceBuffer<std::uint64_t>(led.size());
      Stream stream;
      copy_async(stream, device_.data(), led.data(), bytes);
      stream.synchronize();
      words_ = device_.data() + lead;
    } else if (place == Place::pinned) {
      pinned_ = PinnedBuffer<std::uint64_t>(led.size());
      std::memcpy(pinned_.data(), led.data(), bytes);
      words_ = pinned_.data() + lead;
    } else {
      pageable_ = std::move(led);
      words_ = pageable_.data() + lead;
    }
  }
  const std::uint64_t* data() const { return words_; }

 private:
  Keys pageable_;
  PinnedBuffer<std::uint64_t> pinned_;
  DeviceBuffer<std::uint64_t> device_;
  const std::uint64_t* words_ = nullptr;
};

// Batch `n`, of keys below `below`. Every fourth erases.
struct Numbered {
  Numbered(std::uint64_t n, std::size_t count, std::uint64_t below)
      : erases(n % 4 == 3), keys(count), values(count) {
    std::mt19937_64 random(n);
    for (std::size_t i = 0; i < count; ++i) {
      keys[i] = random() % below;
      values[i] = n << 32 | (random() & 0xffffffff);
    }
  }
  void apply(const LogOpened& opened) const {
    if (erases) {
      opened.erase(keys);
    } else {
      opened.set(keys, values);
    }
  }
  void apply_pinned(const LogOpened& opened) const {
    const Input from(keys, Place::pinned, 3);
    const Input with(values, Place::pinned, 5);
    if (erases) {
      opened.store->erase(from.data(), keys.size());
    } else {
      opened.store->set(from.data(), with.data(), keys.size());
    }
  }
  void apply(Map& oracle) const {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (erases) {
        oracle.erase(keys[i]);
      } else {
        oracle[keys[i]] = values[i];
      }
    }
  }
  bool erases;
  Keys keys, values;
};

// Random batches, and what a store holds behind them. `key`: of a number below `keys`.
class LogProgram {
 public:
  LogProgram(std::uint64_t seed, std::uint64_t keys, std::uint32_t max_batch,
             std::uint64_t (*key)(std::uint64_t number) = spread_key)
      : random_(seed), keys_(keys), max_batch_(max_batch), key_(key) {}

  // Makes a batch, applies it to both, and compares what it did. `erase_percent` of the batches
  // erase.
  void step(const LogOpened& opened, unsigned erase_percent = 25) {
    opened.store->set_order(random_() % 2 == 0 ? KvStore::Order::ordered
                                               : KvStore::Order::unordered);
    const std::size_t count = size();
    Keys keys(count), values(count);
    for (auto& key : keys) key = key_(random_() % keys_);
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
  static constexpr std::uint64_t kErased = 0xa5e7d1b3c94f6820ull;
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
  std::uint64_t (*key_)(std::uint64_t number);
};

}  // namespace holdfast::test
