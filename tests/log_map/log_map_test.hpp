// What tests of a log map share: a map with its region, an oracle, and random batches.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "holdfast/log_map.hpp"
#include "support/scratch.hpp"

namespace holdfast::test {

using Keys = std::vector<std::uint64_t>;
using Row = std::vector<std::byte>;
using Rows = std::vector<std::byte>;
using Oracle = std::map<std::uint64_t, Row>;
using Form = KvStore::Index;

inline LogMap::Options log_map_options(std::uint64_t capacity, std::uint32_t value_bytes,
                                       std::uint32_t max_batch, std::uint64_t log_records = 0,
                                       Form form = Form::automatic) {
  LogMap::Options options;
  options.capacity = capacity;
  options.value_bytes = value_bytes;
  options.max_batch = max_batch;
  options.log_records = log_records;
  options.index = form;
  return options;
}

// What `number` says, in every byte of a row.
inline Row row_of(std::uint64_t number, std::size_t bytes) {
  Row row(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    number = number * 6364136223846793005ull + 1442695040888963407ull;
    row[i] = static_cast<std::byte>(number >> 56);
  }
  return row;
}

struct LogMapOpened {
  std::unique_ptr<Region> region;
  std::unique_ptr<LogMap> map;

  static LogMapOpened create(const std::string& path, const LogMap::Options& shape) {
    RegionOptions options;
    options.size = LogMap::region_bytes(shape);
    auto region = std::make_unique<Region>(Region::create(path, options));
    auto map = std::make_unique<LogMap>(LogMap::create(*region, "map", shape));
    return {std::move(region), std::move(map)};
  }
  static LogMapOpened open(const std::string& path, Form form = Form::automatic) {
    auto region = std::make_unique<Region>(Region::open(path));
    auto map = std::make_unique<LogMap>(LogMap::open(*region, "map", form));
    return {std::move(region), std::move(map)};
  }
  // Closes the map, and leaves the region as a crash would.
  void abandon() {
    map.reset();
    region->abandon();
  }
  // As a process that is killed between two batches.
  void kill() {
    region->abandon();
    map.reset();
  }
  std::size_t value_bytes() const { return map->stats().value_bytes; }

  LogMap::Result put(const Keys& keys, const Rows& rows) const {
    return map->insert_or_assign(keys.data(), rows.data(), keys.size());
  }
  LogMap::Result erase(const Keys& keys) const { return map->erase(keys.data(), keys.size()); }

  Oracle contents() const {
    const std::uint64_t size = map->scan(nullptr, nullptr, 0);
    Keys keys(size);
    Rows rows(size * value_bytes());
    EXPECT_EQ(map->scan(keys.data(), rows.data(), size), size);
    Oracle result;
    for (std::size_t i = 0; i < size; ++i) {
      const std::byte* const row = rows.data() + i * value_bytes();
      result[keys[i]] = Row(row, row + value_bytes());
    }
    EXPECT_EQ(result.size(), size) << "a key was there twice";
    return result;
  }
  void expect_found(const Keys& keys, const Oracle& expected) const {
    const std::size_t each = value_bytes();
    const std::byte untouched{0x5a};
    Rows rows(keys.size() * each, untouched);
    std::vector<std::uint8_t> found(keys.size(), 7);
    map->find(keys.data(), rows.data(), found.data(), keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto at = expected.find(keys[i]);
      ASSERT_EQ(found[i], at == expected.end() ? 0 : 1) << "key " << keys[i];
      const Row wanted = at == expected.end() ? Row(each, untouched) : at->second;
      ASSERT_EQ(std::memcmp(rows.data() + i * each, wanted.data(), each), 0) << "key " << keys[i];
    }
  }
  void expect_holds(const Oracle& expected) const {
    ASSERT_EQ(contents(), expected);
    ASSERT_EQ(map->verify(), "");
    const LogMap::Stats stats = map->stats();
    ASSERT_EQ(stats.size, expected.size());
    ASSERT_EQ(stats.free_places, stats.places - expected.size()) << "places were lost";
  }
};

// Batch `n` of keys below `below`: every fourth erases, another one stores and erases; of the
// others one inserts, one assigns, and two store whatever is there. Some keys occur more than once.
struct NumberedBatch {
  using Op = LogMap::Op;
  enum class Kind { put, insert, assign, erase, mixed };

  NumberedBatch(std::uint64_t n, std::size_t count, std::uint64_t below, std::size_t value_bytes)
      : kind(kind_of(n)),
        operations(count, kind == Kind::erase ? Op::erase : Op::set),
        keys(count),
        bytes(value_bytes) {
    std::mt19937_64 random(n);
    for (std::uint64_t& key : keys) key = random() % below;
    if (kind == Kind::erase) return;
    for (std::size_t i = 0; i < count; ++i) {
      const Row row = row_of(n << 32 | i, value_bytes);
      rows.insert(rows.end(), row.begin(), row.end());
    }
    if (kind != Kind::mixed) return;
    for (Op& operation : operations) operation = random() % 3 == 0 ? Op::erase : Op::set;
  }
  static Kind kind_of(std::uint64_t n) {
    if (n % 4 == 3) return Kind::erase;
    if (n % 4 == 1) return Kind::mixed;
    return n % 8 == 2 ? Kind::insert : n % 8 == 6 ? Kind::assign : Kind::put;
  }
  LogMap::Result apply(const LogMapOpened& opened, MapStatus* status = nullptr) const {
    LogMap& map = *opened.map;
    switch (kind) {
      case Kind::put:
        return map.insert_or_assign(keys.data(), rows.data(), keys.size(), status);
      case Kind::insert:
        return map.insert(keys.data(), rows.data(), keys.size(), status);
      case Kind::assign:
        return map.assign(keys.data(), rows.data(), keys.size(), status);
      case Kind::erase:
        return map.erase(keys.data(), keys.size(), status);
      case Kind::mixed:
        break;
    }
    return map.apply(operations.data(), keys.data(), rows.data(), keys.size(), status);
  }
  // Of a key the last operation counts.
  LogMap::Result apply(Oracle& oracle) const {
    LogMap::Result result;
    for (const auto& [key, i] : last_of_keys()) {
      const bool there = oracle.count(key) != 0;
      if (operations[i] == Op::erase) {
        result.erased += oracle.erase(key);
        continue;
      }
      if (kind == (there ? Kind::insert : Kind::assign)) continue;
      ++(there ? result.assigned : result.inserted);
      const auto row = rows.begin() + static_cast<std::ptrdiff_t>(i * bytes);
      oracle[key] = Row(row, row + static_cast<std::ptrdiff_t>(bytes));
    }
    return result;
  }
  // Of what was there before it.
  void expect_status(const std::vector<MapStatus>& status, const Oracle& before) const {
    std::map<std::uint64_t, std::size_t> last = last_of_keys();
    std::map<std::uint64_t, int> erased;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const bool there = before.count(keys[i]) != 0;
      const bool erases = operations[i] == Op::erase;
      const bool goes = operations[last[keys[i]]] == Op::erase;  // the key
      if (erases && goes && there) {
        erased[keys[i]] += status[i] == MapStatus::erased;
        ASSERT_TRUE(status[i] == MapStatus::erased || status[i] == MapStatus::superseded) << i;
        continue;
      }
      MapStatus expected = there ? MapStatus::assigned : MapStatus::inserted;
      if (last[keys[i]] != i) expected = MapStatus::superseded;
      if (kind == Kind::insert && there) expected = MapStatus::kept;
      if (kind == Kind::assign && !there) expected = MapStatus::absent;
      if (erases && goes) expected = MapStatus::absent;
      ASSERT_EQ(status[i], expected) << "operation " << i << " on key " << keys[i];
    }
    for (const auto& [key, times] : erased) ASSERT_EQ(times, 1) << "key " << key;
  }

  Kind kind;
  std::vector<Op> operations;
  Keys keys;
  Rows rows;
  std::size_t bytes;

 private:
  std::map<std::uint64_t, std::size_t> last_of_keys() const {
    std::map<std::uint64_t, std::size_t> last;
    for (std::size_t i = 0; i < keys.size(); ++i) last[keys[i]] = i;
    return last;
  }
};

inline void expect_equal(const LogMap::Result& found, const LogMap::Result& expected) {
  EXPECT_EQ(found.inserted, expected.inserted);
  EXPECT_EQ(found.assigned, expected.assigned);
  EXPECT_EQ(found.erased, expected.erased);
}

}  // namespace holdfast::test
