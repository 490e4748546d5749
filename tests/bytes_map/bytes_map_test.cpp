// What batches do, against an oracle; keys of one digest; a map that is full; bad input.
#include "bytes_map/bytes_map_test.hpp"

#include "holdfast/durable.hpp"
#include "holdfast/hash_map.hpp"

namespace holdfast::test {
namespace {

class BytesMapTest : public Scratch {};

TEST_F(BytesMapTest, RandomBatchesDoWhatAnOracleDoes) {
  std::mt19937_64 random(test_seed());
  BytesOpened opened = BytesOpened::create(path(), BytesOpened::shape(400, 4 << 20));
  Oracle oracle;
  Strings all;
  for (std::uint64_t i = 0; i < 110; ++i) all.push_back(key_of(i));
  for (int batch = 0; batch < 60; ++batch) {
    ASSERT_NO_FATAL_FAILURE(run_batch(opened, random, oracle));
    ASSERT_NO_FATAL_FAILURE(opened.expect_found(all, oracle));
    if (batch % 10 == 0) {
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
    }
    if (batch % 15 == 7) {
      opened.close();
      opened = BytesOpened::open(path());
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
    }
  }
}

TEST_F(BytesMapTest, StringsOfAnyLengthComeBack) {
  BytesOpened opened = BytesOpened::create(path(), BytesOpened::shape(400, 40 << 20));
  Oracle oracle;
  const auto put = [&](const std::string& key, const std::string& value) {
    ASSERT_EQ(opened.put({key}, {value}).inserted, 1u);
    oracle[key] = value;
  };
  put("", "");
  put(string_of(1, kMostBytesOfKey), string_of(2, kMostBytesOfValue));
  for (std::size_t bytes = 1; bytes < 40; ++bytes) {
    put(string_of(bytes, bytes), string_of(bytes + 1, 40 - bytes));
  }
  // Strings that differ in zeros at their ends.
  put(std::string(1, '\0'), "one");
  put(std::string(2, '\0'), "two");
  Strings keys;
  for (const auto& each : oracle) keys.push_back(each.first);
  ASSERT_NO_FATAL_FAILURE(opened.expect_found(keys, oracle));
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  opened.abandon();
  ASSERT_NO_FATAL_FAILURE(BytesOpened::open(path()).expect_holds(oracle));
}

// With digests of four bits most keys have one that another has.
TEST_F(BytesMapTest, KeysOfOneDigestAreToldApart) {
  BytesMapOptions shape = BytesOpened::shape(400, 1 << 20);
  shape.digest_bits = 4;
  BytesOpened opened = BytesOpened::create(path(), shape);
  Strings keys, values;
  for (std::uint64_t i = 0; i < 100; ++i) {
    keys.push_back(key_of(i));
    values.push_back(string_of(i, 20));
  }
  std::vector<MapStatus> status(keys.size());
  BytesMapResult result = opened.put(keys, values, status.data());
  EXPECT_EQ(result.inserted + result.refused, keys.size());
  EXPECT_LE(result.inserted, 16u);
  EXPECT_GE(result.inserted, 8u);
  Oracle oracle;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (status[i] == MapStatus::inserted) oracle[keys[i]] = values[i];
  }
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  ASSERT_NO_FATAL_FAILURE(opened.expect_found(keys, oracle));
  // One by one they meet those that are there.
  for (std::size_t i = 0; i < keys.size(); ++i) {
    result = opened.put({keys[i]}, {values[i]});
    ASSERT_EQ(oracle.count(keys[i]) != 0 ? result.assigned : result.refused, 1u);
  }
  // Those that are not there are not erased.
  EXPECT_EQ(opened.map->erase(ByteStringVector({keys[0]})).erased, oracle.count(keys[0]));
  oracle.erase(keys[0]);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

TEST_F(BytesMapTest, WhatFindsNoRoomLeavesAllAsItWas) {
  BytesOpened opened = BytesOpened::create(path(), BytesOpened::shape(400, 10 * 64));
  Oracle oracle;
  for (int i = 0; i < 10; ++i) {
    const std::string key = "key" + std::to_string(i);
    oracle[key] = string_of(static_cast<std::uint64_t>(i), 32);
    ASSERT_EQ(opened.put({key}, {oracle[key]}).inserted, 1u);
  }
  EXPECT_EQ(opened.map->stats().free_bytes, 0u);
  EXPECT_EQ(opened.put({"more", "key3"}, {"x", "y"}).no_value, 2u);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  // Two that are apart make no room for one of twice the size; one beside them does.
  opened.map->erase(ByteStringVector({"key3", "key5"}));
  EXPECT_EQ(opened.map->stats().largest_free, 64u);
  EXPECT_EQ(opened.put({"large"}, {string_of(7, 80)}).no_value, 1u);
  opened.map->erase(ByteStringVector({"key4"}));
  EXPECT_EQ(opened.put({"large"}, {string_of(7, 80)}).inserted, 1u);
  for (const char* key : {"key3", "key4", "key5"}) oracle.erase(key);
  oracle["large"] = string_of(7, 80);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

TEST_F(BytesMapTest, AFullIndexLosesNothing) {
  BytesOpened opened = BytesOpened::create(path(), BytesOpened::shape(1, 1 << 20));
  const std::uint64_t capacity = opened.map->stats().capacity;
  Oracle oracle;
  Strings keys, values;
  for (std::uint64_t i = 0; i < std::min<std::uint64_t>(capacity + 50, 250); ++i) {
    keys.push_back("key" + std::to_string(i));
    values.push_back(string_of(i, 10));
  }
  std::vector<MapStatus> status(keys.size());
  const BytesMapResult result = opened.put(keys, values, status.data());
  EXPECT_GE(result.full, 50u);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (status[i] == MapStatus::inserted) oracle[keys[i]] = values[i];
  }
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

TEST_F(BytesMapTest, BadInputIsRefusedByNameAndNothingChanges) {
  BytesOpened opened = BytesOpened::create(path(), BytesOpened::shape(100, 40 << 20));
  const Oracle oracle{{"a", "b"}};
  opened.put({"a"}, {"b"});
  const auto refused = [&](const auto& body, const Strings& words) {
    EXPECT_EQ(error_of(body, words), Errc::invalid_argument);
    opened.expect_holds(oracle);
  };
  const std::string long_key(kMostBytesOfKey + 1, 'k'), long_value(kMostBytesOfValue + 1, 'v');
  refused([&] { opened.put({"x", long_key}, {"", ""}); }, {"'map'", "key 1 has 65537 bytes"});
  refused([&] { opened.put({"x", "y"}, {"", long_value}); }, {"value 1 has 16777217 bytes"});
  refused([&] { opened.put({"x", "y"}, {"z"}); }, {"2 keys and 1 values"});
  refused([&] { opened.put(Strings(257), Strings(257)); }, {"257", "max_batch is 256"});
  const std::uint64_t falling[] = {0, 2, 1};
  const std::byte bytes[4] = {};
  const ByteStringVector values({"x", "y"});
  refused([&] { opened.map->insert({bytes, falling, 2}, values); }, {"offsets of keys fall"});
  refused(
      [&] {
        opened.map->insert({nullptr, values.offsets.data(), 2}, values);
      },
      {"keys without bytes"});
  EXPECT_EQ(opened.put({}, {}).inserted, 0u);
  opened.expect_found({}, oracle);

  RegionOptions options;
  options.size = 64 << 20;
  Region region = Region::create(path("other"), options);
  const auto not_made = [&](const BytesMapOptions& shape, const std::string& name,
                            const std::string& word) {
    EXPECT_EQ(error_of([&] { BytesMap::create(region, name, shape); }, {word}),
              Errc::invalid_argument);
  };
  // By the number that was given.
  for (const std::uint64_t bytes :
       {std::uint64_t{0}, (std::uint64_t{1} << 40) + 1, (std::uint64_t{1} << 60) + 3,
        ~std::uint64_t{0} - 8, ~std::uint64_t{0}}) {
    not_made(BytesOpened::shape(100, bytes), "map", detail::concat("record_bytes ", bytes, ";"));
  }
  not_made(BytesOpened::shape(0, 100), "map", "capacity 0");
  not_made(BytesOpened::shape(100, 100), std::string(41, 'n'), "41 bytes");
  EXPECT_TRUE(region.objects().empty());
  EXPECT_EQ(error_of([&] { BytesMap::create(region, "map", BytesOpened::shape(100, 1u << 30)); }),
            Errc::no_space);
  EXPECT_TRUE(region.objects().empty());
  EXPECT_EQ(error_of([&] { BytesMap::open(region, "map"); }), Errc::not_found);
  const MapOptions of_map{.capacity = 32, .value_bytes = 8, .max_batch = 8};
  HashMap<std::uint64_t>::create(region, "map", of_map);
  EXPECT_EQ(error_of([&] { BytesMap::open(region, "map"); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { BytesMap::create(region, "map", BytesOpened::shape(100, 100)); }),
            Errc::invalid_argument);
  EXPECT_EQ(HashMap<std::uint64_t>::open(region, "map").size(), 0u);
}

TEST_F(BytesMapTest, IsOpenedOnceAndMadeOnce) {
  BytesOpened opened = BytesOpened::create(path(), BytesOpened::shape(100, 1 << 16));
  EXPECT_EQ(
      error_of([&] { BytesMap::create(*opened.region, "map", BytesOpened::shape(100, 1 << 16)); }),
      Errc::already_exists);
  opened.put({"a"}, {"b"});
  BytesMap again = BytesMap::open(*opened.region, "map");
  EXPECT_EQ(error_of([&] { opened.put({"c"}, {"d"}); }), Errc::closed);
  EXPECT_EQ(again.size(), 1u);
}

// A creation that was cut off in front of its index is begun anew, and is no map until then.
TEST_F(BytesMapTest, ACreationThatWasCutOffIsBegunAnew) {
  BytesOpened opened = BytesOpened::create(path(), BytesOpened::shape(100, 1 << 16));
  opened.map.reset();
  for (const auto& object : opened.region->objects()) {
    if (object.name.find("map.index") == 0) opened.region->remove(object.name);
  }
  EXPECT_EQ(error_of([&] { BytesMap::open(*opened.region, "map"); }, {"cut off"}), Errc::not_found);
  BytesMap map = BytesMap::create(*opened.region, "map", BytesOpened::shape(100, 1 << 16));
  EXPECT_EQ(map.verify(), "");
}

}  // namespace
}  // namespace holdfast::test
