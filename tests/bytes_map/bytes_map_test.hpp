// What tests of the bytes map share: a map with its region, strings of all lengths, and what a map
// holds.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "holdfast/bytes_map.hpp"
#include "support/scratch.hpp"

namespace holdfast::test {

using Oracle = std::map<std::string, std::string>;
using Strings = std::vector<std::string>;

// A string that says which it is in all of its bytes. Lengths: mostly short, at all distances from
// a multiple of 16; some are longer than a piece that a group of threads copies.
inline std::string string_of(std::uint64_t number, std::size_t bytes) {
  std::mt19937_64 random(number);
  std::string made(bytes, '\0');
  for (char& each : made) each = static_cast<char>(random());
  return made;
}
inline std::size_t some_length(std::mt19937_64& random) {
  const std::uint64_t kind = random() % 16;
  return kind == 0 ? 0 : kind == 1 ? 1000 + random() % 9000 : random() % 70;
}
inline std::string key_of(std::uint64_t number) {
  std::mt19937_64 random(number);
  const std::size_t bytes = random() % 9 == 0 ? 3000 : random() % 40;
  return std::to_string(number) + string_of(number, bytes);
}

struct BytesOpened {
  std::unique_ptr<Region> region;
  std::unique_ptr<BytesMap> map;

  static BytesMapOptions shape(std::uint64_t capacity, std::uint64_t record_bytes) {
    BytesMapOptions options;
    options.capacity = capacity;
    options.record_bytes = record_bytes;
    options.max_batch = 256;
    return options;
  }
  static BytesOpened create(const std::string& path, const BytesMapOptions& shape) {
    RegionOptions options;
    options.size = BytesMap::region_bytes(shape);
    auto region = std::make_unique<Region>(Region::create(path, options));
    auto map = std::make_unique<BytesMap>(BytesMap::create(*region, "map", shape));
    return {std::move(region), std::move(map)};
  }
  static BytesOpened open(const std::string& path, const OpenOptions& options = {}) {
    auto region = std::make_unique<Region>(Region::open(path, options));
    auto map = std::make_unique<BytesMap>(BytesMap::open(*region, "map"));
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
  BytesMapResult put(const Strings& keys, const Strings& values, MapStatus* status = nullptr) {
    return map->insert_or_assign(ByteStringVector(keys), ByteStringVector(values), status);
  }
  Oracle contents(std::uint64_t damaged = 0) const {
    ByteStringVector keys, values;
    std::uint64_t left_out = 0;
    const std::uint64_t capacity = map->stats().capacity;
    for (std::uint64_t first = 0; first < capacity; first += 100) {
      left_out += map->export_batch(first, 100, keys, values);
    }
    EXPECT_EQ(left_out, damaged);
    Oracle found;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      EXPECT_TRUE(found.emplace(keys[i], values[i]).second) << "a key is there twice";
    }
    return found;
  }
  void expect_holds(const Oracle& oracle) const {
    ASSERT_EQ(contents(), oracle);
    ASSERT_EQ(map->size(), oracle.size());
    ASSERT_EQ(map->verify(), "");
    std::uint64_t used = 0;
    for (const auto& [key, value] : oracle) {
      used += BytesMap::record_bytes_of(key.size(), value.size());
    }
    ASSERT_EQ(map->stats().free_bytes, map->stats().record_bytes - used);
  }
  void expect_found(const Strings& keys, const Oracle& oracle) const {
    std::vector<BytesFound> found, contained(keys.size());
    const ByteStringVector asked(keys);
    const ByteStringVector values = map->find(asked, found);
    map->contains(asked, contained.data());
    ASSERT_EQ(found, contained);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto pair = oracle.find(keys[i]);
      ASSERT_EQ(found[i] == BytesFound::present, pair != oracle.end()) << "key " << i;
      ASSERT_EQ(values[i], pair == oracle.end() ? "" : pair->second) << "key " << i;
    }
  }
};

// A batch, and what it must report: of operations with one key the last one counts. Returns how
// many found no room, and left what was there; where none may, that is a failure.
inline std::size_t run_batch(const BytesOpened& opened, std::mt19937_64& random, Oracle& oracle,
                             bool may_be_full = false) {
  enum class Kind { insert, put, erase };
  const auto kind = static_cast<Kind>(random() % 3);
  const std::size_t count = 1 + random() % 60;
  Strings keys, values;
  for (std::size_t i = 0; i < count; ++i) {
    keys.push_back(key_of(random() % 100));
    values.push_back(string_of(random(), some_length(random)));
  }
  std::vector<MapStatus> status(count);
  const ByteStringVector given(keys), to(values);
  switch (kind) {
    case Kind::insert:
      opened.map->insert(given, to, status.data());
      break;
    case Kind::put:
      opened.map->insert_or_assign(given, to, status.data());
      break;
    case Kind::erase:
      opened.map->erase(given, status.data());
  }
  std::map<std::string, std::size_t> last;
  for (std::size_t i = 0; i < count; ++i) last[keys[i]] = i;
  std::size_t not_done = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const bool there = oracle.count(keys[i]) != 0;
    MapStatus expected = MapStatus::superseded;
    if (last[keys[i]] == i && kind == Kind::erase) {
      expected = there ? MapStatus::erased : MapStatus::absent;
      oracle.erase(keys[i]);
    } else if (last[keys[i]] == i) {
      const bool sets = !there || kind == Kind::put;
      expected = !there ? MapStatus::inserted : sets ? MapStatus::assigned : MapStatus::kept;
      const bool full =
          status[i] == MapStatus::no_value || (status[i] == MapStatus::full && !there);
      if (sets && may_be_full && full) {
        ++not_done;
        continue;
      }
      if (sets) oracle[keys[i]] = values[i];
    }
    EXPECT_EQ(status[i], expected) << "operation " << i << " of " << count;
  }
  return not_done;
}

}  // namespace holdfast::test
