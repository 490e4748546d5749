// What tests of a bytes map that is killed share: batches that say what they did, what a map may
// hold behind them, and a listener that kills.
#pragma once

#include <algorithm>
#include <set>

#include "bytes_map/bytes_map_test.hpp"
#include "support/killed_child.hpp"
#include "support/process.hpp"
#ifdef HOLDFAST_INTERCEPT
#include "support/reaper.hpp"
#endif

namespace holdfast::test {

inline constexpr std::uint64_t kKeys = 40;

// Batch `n`: what it sets each of its keys to, nothing for one that it erases. The values say which
// batch they are of.
struct Numbered {
  explicit Numbered(std::uint64_t n) : erases(n % 4 == 3) {
    std::mt19937_64 random(n);
    for (int i = 0; i < 12; ++i) {
      const std::string key = key_of(random() % kKeys);
      const std::string value = string_of(random(), some_length(random));
      keys.push_back(key);
      values.push_back(value);
      becomes[key] = erases ? std::string() : "." + value;
    }
    if (!erases) {
      for (std::string& each : values) each = "." + each;
    }
  }
  void apply(BytesOpened& opened) const {
    if (erases) {
      opened.map->erase(ByteStringVector(keys));
    } else {
      opened.put(keys, values);
    }
  }
  bool erases;
  Strings keys, values;
  Oracle becomes;  // empty: it is not there
};

inline std::string value_in(const Oracle& oracle, const std::string& key) {
  const auto at = oracle.find(key);
  return at == oracle.end() ? std::string() : at->second;
}

// Each key has what one of the batches made of it: of those that were done the last one, or one
// behind it that was begun.
inline void expect_follows(BytesOpened& opened, const Oracle& held, std::uint64_t first,
                           std::uint64_t done, std::uint64_t begun) {
  const Oracle now = opened.contents();
  for (std::uint64_t number = 0; number < kKeys; ++number) {
    const std::string key = key_of(number);
    std::set<std::string> may{value_in(held, key)};
    for (std::uint64_t n = first; n < begun; ++n) {
      const Numbered batch(n);
      if (batch.becomes.count(key) == 0) continue;
      if (n < done) may.clear();
      may.insert(batch.becomes.at(key));
    }
    ASSERT_EQ(may.count(value_in(now, key)), 1u)
        << "key " << number << " behind batches " << first << " to " << begun;
  }
  // Nothing leaked, and the rest is in order.
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(now));
}

// A child that makes batches is killed at any moment, 12 times or more; each time the map is as its
// batches have made it.
inline void expect_survives_kills(const std::string& child, const std::string& path,
                                  const std::string& arenas, std::mt19937_64& random) {
  BytesOpened::create(path, BytesOpened::shape(200, 1 << 20)).close();
  std::uint64_t next = 0;
  for (KillRounds rounds(12); rounds.another(next > 12);) {
    BytesOpened before = BytesOpened::open(path);
    const Oracle held = before.contents();
    before.abandon();
    const auto [done, begun] = batches_told(
        next, told_until_killed<ToldBatch>(
                  child, arenas,
                  {{"HOLDFAST_TEST_PATH", path}, {"HOLDFAST_TEST_BATCH", std::to_string(next)}},
                  random, rounds.most_microseconds()));
    BytesOpened opened = BytesOpened::open(path);
    ASSERT_NO_FATAL_FAILURE(expect_follows(opened, held, next, done, begun));
    next = begun;
    opened.abandon();
  }
}

// ---- Maps that grow ----------------------------------------------------------------------------

inline constexpr std::uint64_t kMostSize = 64 << 20;
inline constexpr std::uint64_t kSlots = 240;  // of one that is made

// Of little room, of which growths and openings of open_growing() make more.
inline BytesOpened create_small(const std::string& path) {
  BytesOpened opened = BytesOpened::create(path, BytesOpened::shape(kSlots, 4096));
  EXPECT_EQ(opened.map->stats().capacity, kSlots);
  return opened;
}
inline BytesOpened open_growing(const std::string& path) {
  OpenOptions options;
  options.max_size = kMostSize;
  return BytesOpened::open(path, options);
}

// No object is left of a growth that was not one, and none is missing.
inline void expect_own_objects(Region& region, const BytesMapStats& stats) {
  std::uint64_t pieces = 0, bytes = region.object("map.records").bytes();
  Strings levels;
  for (const ObjectInfo& each : region.objects()) {
    if (each.name.rfind("map.index.level", 0) == 0) levels.push_back(each.name);
    if (each.name.rfind("map.records", 0) != 0 || each.name == "map.records") continue;
    ++pieces;
    bytes += each.bytes();
    EXPECT_TRUE(region.contains("map.records" + std::to_string(pieces)));
  }
  EXPECT_EQ(bytes, stats.record_bytes);
  std::uint64_t growths = 0;
  while (kSlots << growths < stats.capacity) ++growths;
  EXPECT_EQ(kSlots << growths, stats.capacity);
  EXPECT_EQ(levels.size(), std::min<std::uint64_t>(growths, 2)) << "levels of the index";
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(growths, 2); ++i) {
    EXPECT_TRUE(region.contains("map.index.level" + std::to_string(growths - i)));
  }
}

// What a growth that may have been cut off leaves: of each size what was there, or what was wanted.
inline void expect_grown(const BytesOpened& opened, const BytesMapStats& had,
                         const BytesMapReserve& begun) {
  const BytesMapStats stats = opened.map->stats();
  EXPECT_TRUE(stats.capacity == had.capacity ||
              (begun.capacity > had.capacity && stats.capacity == 2 * had.capacity))
      << stats.capacity << " slots, and there were " << had.capacity;
  const bool has_wanted =
      begun.record_bytes > had.record_bytes && stats.record_bytes >= begun.record_bytes;
  EXPECT_TRUE(stats.record_bytes == had.record_bytes || has_wanted)
      << stats.record_bytes << " bytes for records, and there were " << had.record_bytes;
  expect_own_objects(*opened.region, stats);
}

}  // namespace holdfast::test
