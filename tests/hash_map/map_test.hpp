// What tests of the hash map share: a map with its region, values that say whose they are, and an
// oracle.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "hash_map/test_keys.hpp"
#include "holdfast/hash_map.hpp"
#include "support/scratch.hpp"
#ifdef HOLDFAST_INTERCEPT
#include "support/reaper.hpp"
#endif

namespace holdfast::test {

inline MapOptions map_options(std::uint64_t capacity, std::uint32_t value_bytes,
                              std::uint32_t max_batch = 256) {
  MapOptions options;
  options.capacity = capacity;
  options.value_bytes = value_bytes;
  options.max_batch = max_batch;
  return options;
}

inline std::vector<std::uint64_t> numbers(std::uint64_t first, std::uint64_t count) {
  std::vector<std::uint64_t> all(count);
  std::iota(all.begin(), all.end(), first);
  return all;
}

// A value is a number and, if it is larger than that, bytes that follow from it, so that half of
// another value is noticed.
inline void write_value(std::uint64_t number, void* to, std::uint32_t bytes) {
  auto* const words = static_cast<std::uint32_t*>(to);
  words[0] = static_cast<std::uint32_t>(number);
  if (bytes >= 8) words[1] = static_cast<std::uint32_t>(number >> 32);
  for (std::uint32_t i = 2; i < bytes / 4; ++i) {
    words[i] = static_cast<std::uint32_t>(number * 2654435761u + i);
  }
}
// The number of a value; fails the test where the rest does not follow from it.
inline std::uint64_t read_value(const void* from, std::uint32_t bytes) {
  std::vector<std::uint32_t> words(bytes / 4), expected(bytes / 4);
  std::memcpy(words.data(), from, bytes);
  const std::uint64_t number = words[0] | (bytes >= 8 ? std::uint64_t{words[1]} << 32 : 0);
  write_value(number, expected.data(), bytes);
  EXPECT_EQ(words, expected) << "of value " << number;
  return number;
}

template <class Map>
struct KeyOf;
template <class Key, class Config>
struct KeyOf<HashMap<Key, Config>> {
  using type = Key;
};

// The region lives on the heap: a map keeps a reference to it.
template <class Map>
struct MapOpened {
  using Key = typename KeyOf<Map>::type;
  using Oracle = std::unordered_map<Key, std::uint64_t>;

  std::unique_ptr<Region> region;
  std::unique_ptr<Map> map;

  static MapOpened create(const std::string& path, const MapOptions& shape) {
    RegionOptions options;
    options.size = Map::region_bytes(shape);
    options.max_size = 64 * options.size;  // for maps that grow
    auto region = std::make_unique<Region>(Region::create(path, options));
    auto map = std::make_unique<Map>(Map::create(*region, "map", shape));
    return {std::move(region), std::move(map)};
  }
  static MapOpened open(const std::string& path, const MapOpenOptions& how = {},
                        OpenOptions options = {}) {
    // As at creation: by default a region opened while small has no room to grow some times more.
    if (options.max_size == 0) options.max_size = 64 * std::filesystem::file_size(path);
    auto region = std::make_unique<Region>(Region::open(path, options));
    auto map = std::make_unique<Map>(Map::open(*region, "map", how));
    return {std::move(region), std::move(map)};
  }
  void abandon() {
    map.reset();
    region->abandon();
  }
  void close() {
    map.reset();
    region->close();
  }
  std::vector<std::uint32_t> values_of(const std::vector<std::uint64_t>& numbers) const {
    const std::uint32_t bytes = map->value_bytes();
    std::vector<std::uint32_t> values(numbers.size() * bytes / 4);
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      write_value(numbers[i], values.data() + i * bytes / 4, bytes);
    }
    return values;
  }
  Oracle contents() const {
    Oracle found;
    map->for_each([&](Key key, const void* value) {
      const bool is_new = found.emplace(key, read_value(value, map->value_bytes())).second;
      EXPECT_TRUE(is_new) << "key " << key << " is there twice";
    });
    return found;
  }
  void expect_holds(const Oracle& oracle) const {
    ASSERT_EQ(contents(), oracle);
    ASSERT_EQ(map->size(), oracle.size());
    ASSERT_EQ(map->verify(), "");
  }
  // Lookups answer what the oracle does, and leave alone what is not there.
  void expect_found(const std::vector<Key>& keys, const Oracle& oracle) const {
    const std::uint32_t bytes = map->value_bytes();
    constexpr std::uint32_t kUntouched = 0x5a5a5a5a;
    std::vector<std::uint32_t> values(keys.size() * bytes / 4, kUntouched);
    std::vector<std::uint8_t> found(keys.size(), 7), contained(keys.size(), 7);
    map->find(keys.data(), values.data(), found.data(), keys.size());
    map->contains(keys.data(), contained.data(), keys.size());
    ASSERT_EQ(found, contained);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto pair = oracle.find(keys[i]);
      ASSERT_EQ(found[i], pair != oracle.end()) << "key " << keys[i];
      const std::uint32_t* const value = values.data() + i * bytes / 4;
      if (pair == oracle.end()) {
        for (std::uint32_t word = 0; word < bytes / 4; ++word) ASSERT_EQ(value[word], kUntouched);
      } else {
        ASSERT_EQ(read_value(value, bytes), pair->second) << "key " << keys[i];
      }
    }
  }
};

// Random batches, what they must report, and what a map holds behind them. A key that is `full` is
// left out of the oracle.
template <class Map>
class MapProgram {
 public:
  using Opened = MapOpened<Map>;
  using Key = typename Opened::Key;
  enum class Kind { insert, insert_or_assign, assign, find_or_insert, erase };

  MapProgram(std::uint64_t seed, std::uint64_t keys, std::uint32_t max_batch)
      : random_(seed), keys_(keys), max_batch_(max_batch) {}

  void step(Opened& opened, unsigned erase_percent = 30) {
    const bool erases = random_() % 100 < erase_percent;
    step(opened, erases ? Kind::erase : static_cast<Kind>(random_() % 4));
  }

  void step(Opened& opened, Kind kind) {
    std::size_t count = 1 + random_() % max_batch_;
    if (random_() % 4 == 0) count = random_() % 2 == 0 ? max_batch_ : 1 + random_() % 3;
    asked.clear();
    std::vector<std::uint64_t> numbers;
    for (std::size_t i = 0; i < count; ++i) {
      asked.push_back(test_key<Key>(random_() % keys_));
      numbers.push_back(sizeof(Key) >= 8 ? random_() : random_() & 0xffffffff);
    }
    apply(opened, kind, numbers);
  }

  typename Opened::Oracle oracle;
  std::vector<Key> asked;  // of the last batch
  std::uint64_t full = 0;  // operations so far

 private:
  void apply(Opened& opened, Kind kind, std::vector<std::uint64_t> numbers) {
    const std::uint32_t bytes = opened.map->value_bytes();
    if (bytes == 4) {
      for (auto& number : numbers) number &= 0xffffffff;
    }
    const std::vector<std::uint32_t> values = opened.values_of(numbers);
    std::vector<std::uint32_t> out(values.size());
    std::vector<MapStatus> status(asked.size());
    const std::size_t count = asked.size();
    const MapResult result = [&] {
      switch (kind) {
        case Kind::insert:
          return opened.map->insert(asked.data(), values.data(), count, status.data());
        case Kind::insert_or_assign:
          return opened.map->insert_or_assign(asked.data(), values.data(), count, status.data());
        case Kind::assign:
          return opened.map->assign(asked.data(), values.data(), count, status.data());
        case Kind::find_or_insert:
          return opened.map->find_or_insert(asked.data(), values.data(), out.data(), count,
                                            status.data());
        case Kind::erase:
          break;
      }
      return opened.map->erase(asked.data(), count, status.data());
    }();
    std::unordered_set<Key> later;
    std::uint64_t counts[10] = {};
    for (std::size_t i = count; i-- > 0;) {
      const MapStatus expected = later.insert(asked[i]).second
                                     ? expect(kind, asked[i], numbers[i], status[i])
                                     : MapStatus::superseded;
      ASSERT_EQ(status[i], expected) << "operation " << i << " of key " << asked[i];
      ++counts[static_cast<int>(expected)];
      const bool has_out = expected == MapStatus::inserted || expected == MapStatus::kept;
      if (kind == Kind::find_or_insert && has_out) {
        ASSERT_EQ(read_value(out.data() + i * bytes / 4, bytes), oracle.at(asked[i]));
      }
    }
    const std::uint64_t reported[10] = {0,
                                        result.inserted,
                                        result.assigned,
                                        result.kept,
                                        result.erased,
                                        result.absent,
                                        result.superseded,
                                        result.full,
                                        result.no_value,
                                        0};
    for (int i = 0; i < 10; ++i) ASSERT_EQ(reported[i], counts[i]) << "status " << i;
  }

  // What an operation that counts must have said; applies it. Only the map knows what is full.
  MapStatus expect(Kind kind, Key key, std::uint64_t number, MapStatus said) {
    const auto at = oracle.find(key);
    if (at == oracle.end()) {
      if (kind == Kind::assign || kind == Kind::erase) return MapStatus::absent;
      if (said == MapStatus::full) {
        ++full;
        return MapStatus::full;
      }
      oracle[key] = number;
      return MapStatus::inserted;
    }
    if (kind == Kind::insert || kind == Kind::find_or_insert) return MapStatus::kept;
    if (kind == Kind::erase) {
      oracle.erase(at);
      return MapStatus::erased;
    }
    at->second = number;
    return MapStatus::assigned;
  }

  std::mt19937_64 random_;
  std::uint64_t keys_;
  std::uint32_t max_batch_;
};

}  // namespace holdfast::test
