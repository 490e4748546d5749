// A map that grows: beside batches, with records in several pieces, and what it refuses.
#include <algorithm>

#include "bytes_map/bytes_map_test.hpp"
#include "holdfast/bytes_map_record.hpp"
#include "holdfast/durable.hpp"
#include "holdfast/hash_map.hpp"

namespace holdfast::test {
namespace {

using Index = HashMap<Bytes<16>>;

constexpr std::uint64_t kMostSize = 64 << 20;

class BytesMapGrowth : public Scratch {
 protected:
  static BytesOpened create(const std::string& path, const BytesMapOptions& shape,
                            std::uint64_t max_size = kMostSize) {
    RegionOptions options;
    options.size = BytesMap::region_bytes(shape);
    options.max_size = max_size;
    auto region = std::make_unique<Region>(Region::create(path, options));
    auto map = std::make_unique<BytesMap>(BytesMap::create(*region, "map", shape));
    return {std::move(region), std::move(map)};
  }
  static BytesOpened open(const std::string& path) {
    OpenOptions options;
    options.max_size = kMostSize;
    return BytesOpened::open(path, options);
  }
  // Ten records of 64 bytes and no room for more, and room for ten again in another piece, which is
  // a page.
  BytesOpened create_two_pieces(Oracle& oracle) {
    BytesOpened opened = create(path(), BytesOpened::shape(400, 10 * 64));
    for (int i = 0; i < 10; ++i) put(opened, oracle, i);
    EXPECT_EQ(opened.map->stats().free_bytes, 0u);
    opened.map->reserve({.record_bytes = 20 * 64});
    return opened;
  }
  static void put(BytesOpened& opened, Oracle& oracle, int number) {
    const std::string key = "key" + std::to_string(number % 10) + std::to_string(number / 10);
    oracle[key] = string_of(static_cast<std::uint64_t>(number), 32);
    ASSERT_EQ(opened.put({key}, {oracle[key]}).inserted, 1u) << number;
  }
  static std::uint8_t* bytes_of(Region& region, const std::string& object) {
    return static_cast<std::uint8_t*>(region.address(region.object(object)));
  }
};

// It grows when it is full, by any amount, and goes on; closed and abandoned between batches.
TEST_F(BytesMapGrowth, RandomBatchesDoWhatAnOracleDoesWhileItGrows) {
  std::mt19937_64 random(test_seed());
  int growths = 0, full = 0;
  for (int program = 0; program < 3; ++program) {
    SCOPED_TRACE(detail::concat("program ", program));
    const std::string path = this->path("region" + std::to_string(program));
    BytesOpened opened = create(path, BytesOpened::shape(1, 1 + random() % 5000));
    Oracle oracle;
    Strings all;
    for (std::uint64_t i = 0; i < 110; ++i) all.push_back(key_of(i));
    for (int batch = 0; batch < 60; ++batch) {
      SCOPED_TRACE(detail::concat("batch ", batch));
      const std::size_t not_done = run_batch(opened, random, oracle, true);
      ASSERT_FALSE(HasFailure());
      full += not_done != 0 ? 1 : 0;
      ASSERT_NO_FATAL_FAILURE(opened.expect_found(all, oracle));
      if (not_done != 0 || random() % 16 == 0) {
        const BytesMapStats before = opened.map->stats();
        BytesMapReserve wanted;
        if (random() % 3 == 0) wanted.capacity = before.capacity + random() % before.capacity;
        if (random() % 4 != 0) wanted.record_bytes = before.record_bytes + random() % 30'000;
        opened.map->reserve(wanted);
        const BytesMapStats after = opened.map->stats();
        ASSERT_GE(after.capacity, std::max(before.capacity, wanted.capacity));
        ASSERT_GE(after.record_bytes, std::max(before.record_bytes, wanted.record_bytes));
        ASSERT_EQ(after.free_bytes - before.free_bytes, after.record_bytes - before.record_bytes);
        growths += after.record_bytes != before.record_bytes;
      }
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
      if (random() % 8 != 0) continue;
      const BytesMapStats before = opened.map->stats();
      if (random() % 2 == 0) {
        opened.abandon();
      } else {
        opened.close();
      }
      opened = open(path);
      ASSERT_EQ(opened.map->stats().capacity, before.capacity);
      ASSERT_EQ(opened.map->stats().record_bytes, before.record_bytes);
      ASSERT_EQ(opened.map->stats().free_extents, before.free_extents);
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
    }
  }
  // Of all programs: one alone may draw a growth that all of its later batches fit into.
  EXPECT_GT(growths, 9);
  EXPECT_GT(full, 9);
}

TEST_F(BytesMapGrowth, ARecordIsInOnePieceAndWhatIsFreeOfTwoIsApart) {
  Oracle oracle;
  BytesOpened opened = create_two_pieces(oracle);
  EXPECT_EQ(opened.map->stats().record_bytes, 640u + kPageBytes);
  EXPECT_EQ(opened.map->stats().largest_free, kPageBytes);
  for (int i = 10; i < 10 + 64; ++i) put(opened, oracle, i);
  EXPECT_EQ(opened.map->stats().free_bytes, 0u) << "every piece is used to its end";
  EXPECT_EQ(opened.put({"more"}, {"x"}).no_value, 1u);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  opened.abandon();
  opened = open(path());
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  Strings keys;
  for (const auto& [key, value] : oracle) keys.push_back(key);
  ASSERT_EQ(opened.map->erase(ByteStringVector(keys)).erased, keys.size());
  for (int time = 0; time < 2; ++time) {
    const BytesMapStats stats = opened.map->stats();
    EXPECT_EQ(stats.free_bytes, 640u + kPageBytes);
    EXPECT_EQ(stats.largest_free, kPageBytes);
    EXPECT_EQ(stats.free_extents, 2u);
    EXPECT_EQ(opened.put({"large"}, {string_of(1, kPageBytes - 16)}).no_value, 1u);
    opened.close();
    opened = open(path());
  }
  const Oracle one{{"large", string_of(1, kPageBytes - 32)}};
  EXPECT_EQ(opened.put({"large"}, {one.at("large")}).inserted, 1u);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(one));
}

TEST_F(BytesMapGrowth, WhatItHasNeedsNoMore) {
  Oracle oracle;
  BytesOpened opened = create_two_pieces(oracle);
  const std::size_t objects = opened.region->objects().size();
  const BytesMapStats before = opened.map->stats();
  for (const BytesMapReserve& wanted :
       {BytesMapReserve{}, {1, 1}, {before.capacity, before.record_bytes}}) {
    opened.map->reserve(wanted);
    EXPECT_EQ(opened.region->objects().size(), objects);
    EXPECT_EQ(opened.map->stats().capacity, before.capacity);
    EXPECT_EQ(opened.map->stats().record_bytes, before.record_bytes);
  }
  opened.map->reserve({.capacity = before.capacity + 1});
  EXPECT_EQ(opened.map->stats().capacity, 2 * before.capacity);
  EXPECT_EQ(opened.map->stats().record_bytes, before.record_bytes);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

// By little at a time, an eighth more each time, so that a region's objects last.
TEST_F(BytesMapGrowth, GrowingByLittleMakesFewPieces) {
  BytesOpened opened = create(path(), BytesOpened::shape(1, 1));
  std::uint64_t has = 0;
  while ((has = opened.map->stats().record_bytes) < 16 << 20) {
    opened.map->reserve({.record_bytes = has + 1});
    ASSERT_GE(opened.map->stats().record_bytes + 16, has + has / 8);
  }
  EXPECT_LT(opened.map->stats().free_extents, 80u);
  const Oracle oracle{{"a", string_of(1, 200'000)}, {"b", string_of(2, 300'000)}};
  for (const auto& [key, value] : oracle) opened.put({key}, {value});
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  opened.close();
  opened = open(path());
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

// A power cut gives back what the last commit had, growth and all.
TEST_F(BytesMapGrowth, CommitsHaveAMapAsItHadGrown) {
  Oracle oracle;
  BytesOpened opened = create_two_pieces(oracle);
  for (int i = 10; i < 30; ++i) put(opened, oracle, i);
  opened.region->commit();
  const BytesMapStats before = opened.map->stats();
  const Oracle held = oracle;
  opened.map->reserve({before.capacity + 1, before.record_bytes + 100'000});
  for (int i = 30; i < 120; ++i) put(opened, oracle, i);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  opened.abandon();
  opened = BytesOpened::open(path(), last_commit());
  EXPECT_EQ(opened.map->stats().capacity, before.capacity);
  EXPECT_EQ(opened.map->stats().record_bytes, before.record_bytes);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(held));
}

// A growth of the index that was cut off is ended by opening.
TEST_F(BytesMapGrowth, OpeningEndsAGrowthOfTheIndex) {
  Oracle oracle;
  BytesOpened opened = create_two_pieces(oracle);
  const std::uint64_t capacity = opened.map->stats().capacity;
  opened.map.reset();
  {
    MapOpenOptions how;
    how.value_bytes = 8;
    Index index = Index::open(*opened.region, "map.index", how);
    index.grow();
    index.migrate(1);
    ASSERT_GT(index.stats().left_to_move, 0u);
  }
  opened.abandon();
  opened = open(path());
  EXPECT_EQ(opened.map->stats().capacity, 2 * capacity);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

// With the longest name that is taken a map grows.
TEST_F(BytesMapGrowth, NamesLeaveRoomForThoseOfEveryGrowth) {
  const BytesMapOptions shape = BytesOpened::shape(1, 1);
  RegionOptions options;
  options.size = BytesMap::region_bytes(shape);
  options.max_size = kMostSize;
  Region region = Region::create(path(), options);
  const std::string longest(40, 'n');
  BytesMap map = BytesMap::create(region, longest, shape);
  for (int growth = 0; growth < 12; ++growth) {
    const BytesMapStats stats = map.stats();
    map.reserve({stats.capacity + 1, stats.record_bytes + 1});
  }
  EXPECT_TRUE(region.contains(longest + ".records12"));
  EXPECT_TRUE(region.contains(longest + ".index.level12"));
  EXPECT_EQ(map.verify(), "");
}

// One that was removed, and of which growths are left.
TEST_F(BytesMapGrowth, AMapOfTheSameNameRemovesWhatARemovedOneLeft) {
  Oracle oracle;
  BytesOpened opened = create_two_pieces(oracle);
  opened.map->reserve({.record_bytes = 100'000});
  opened.map.reset();
  Region& region = *opened.region;
  region.grow(region.size() + kPageBytes);
  const auto mine = region.allocate<std::uint8_t>("map.recordsx", 5, Tracking::marked);
  mine[3] = 9;
  for (const ObjectInfo& each : region.objects()) {
    if (each.name.rfind("map.index.", 0) == 0) region.remove(each.name);
  }
  EXPECT_TRUE(region.contains("map.records2"));
  opened.map =
      std::make_unique<BytesMap>(BytesMap::create(region, "map", BytesOpened::shape(100, 320)));
  EXPECT_FALSE(region.contains("map.records1"));
  EXPECT_FALSE(region.contains("map.records2"));
  EXPECT_EQ(region.find<std::uint8_t>("map.recordsx")[3], 9);
  EXPECT_EQ(opened.map->stats().record_bytes, 320u);
  opened.map->reserve({.record_bytes = 100'000});
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({}));
}

// ---- What is refused ---------------------------------------------------------------------------

class BytesMapGrowthRefused : public BytesMapGrowth {
 protected:
  // That `wanted` is refused, twice, with everything as it was.
  static void expect_refused(BytesOpened& opened, const Oracle& oracle,
                             const BytesMapReserve& wanted, Errc code, const Strings& words) {
    const auto objects_of = [&] {
      Strings names;
      for (const ObjectInfo& each : opened.region->objects()) names.push_back(each.name);
      return names;
    };
    const Strings objects = objects_of();
    const BytesMapStats before = opened.map->stats();
    for (int time = 0; time < 2; ++time) {
      EXPECT_EQ(error_of([&] { opened.map->reserve(wanted); }, words), code);
      ASSERT_EQ(objects_of(), objects);
      ASSERT_EQ(opened.map->stats().capacity, before.capacity);
      ASSERT_EQ(opened.map->stats().record_bytes, before.record_bytes);
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
    }
  }
};

TEST_F(BytesMapGrowthRefused, MoreThanAMapCanHaveOrItsRegion) {
  Oracle oracle;
  BytesOpened opened = create_two_pieces(oracle);
  const std::uint64_t bytes = opened.region->size();
  const auto refused = [&](const BytesMapReserve& wanted, Errc code, const Strings& words) {
    ASSERT_NO_FATAL_FAILURE(expect_refused(opened, oracle, wanted, code, words));
    EXPECT_EQ(opened.region->size(), bytes);
  };
  for (const std::uint64_t record_bytes :
       {~std::uint64_t{0}, (std::uint64_t{1} << 40) + 1, std::uint64_t{1} << 40}) {
    refused({.record_bytes = record_bytes}, Errc::invalid_argument,
            {"'map'", std::to_string(record_bytes), "fewer"});
  }
  refused({.record_bytes = 1 << 30}, Errc::no_space, {"'map'", "1073741824", "max_size"});
  refused({.capacity = std::uint64_t{1} << 60}, Errc::invalid_argument, {"slots", "fewer"});
  refused({.capacity = 1 << 24}, Errc::no_space, {"slots", "max_size"});
  // Of two wishes neither, if one cannot be.
  refused({opened.map->stats().capacity + 1, 1 << 30}, Errc::no_space, {"max_size"});
}

// Records are made first, and given up where the index cannot be.
TEST_F(BytesMapGrowthRefused, OfTwoWishesNeitherWhereTheIndexCannotGrow) {
  Oracle oracle;
  BytesOpened opened = create_two_pieces(oracle);
  const std::uint64_t more = opened.map->stats().record_bytes + 50'000;
  ASSERT_NO_FATAL_FAILURE(expect_refused(opened, oracle, {std::uint64_t{1} << 60, more},
                                         Errc::invalid_argument, {"fewer"}));
  ASSERT_NO_FATAL_FAILURE(
      expect_refused(opened, oracle, {1 << 24, more}, Errc::no_space, {"max_size"}));
  opened.map->reserve({1000, more});
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

// Where the usual eighth more finds no room, what is asked for has to do.
TEST_F(BytesMapGrowthRefused, AllOfTheRegionCanBeHad) {
  const BytesMapOptions shape = BytesOpened::shape(1, 256 << 10);
  const std::uint64_t size = BytesMap::region_bytes(shape);
  BytesOpened opened = create(path(), shape, size + 2 * kPageBytes);
  const std::uint64_t has = opened.map->stats().record_bytes;
  ASSERT_NO_FATAL_FAILURE(expect_refused(opened, {}, {.record_bytes = has + 2 * kPageBytes + 1},
                                         Errc::no_space, {"max_size"}));
  opened.map->reserve({.record_bytes = has + 1});
  EXPECT_EQ(opened.map->stats().record_bytes, has + kPageBytes);
  opened.map->reserve({.record_bytes = has + 2 * kPageBytes});
  EXPECT_EQ(opened.map->stats().record_bytes, has + 2 * kPageBytes);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({}));
}

// Of the program, called as one that is needed: it is named, and stays.
TEST_F(BytesMapGrowthRefused, ObjectsOfTheProgramStayAndAreNamed) {
  for (const std::string name : {"map.records1", "map.index.level1"}) {
    SCOPED_TRACE(name);
    BytesOpened opened = create(path(name), BytesOpened::shape(400, 640));
    Oracle oracle;
    for (int i = 0; i < 10; ++i) put(opened, oracle, i);
    opened.region->grow(opened.region->size() + 64 * kPageBytes);
    opened.region->allocate<std::uint8_t>(name, 3 * kPageBytes, Tracking::marked)[7] = 7;
    const BytesMapReserve wanted{opened.map->stats().capacity + 1, 100'000};
    for (int time = 0; time < 2; ++time) {
      ASSERT_NO_FATAL_FAILURE(expect_refused(opened, oracle, wanted, Errc::already_exists,
                                             {"'" + name + "'", "remove()"}));
      EXPECT_EQ(opened.region->find<std::uint8_t>(name)[7], 7);
      opened.abandon();
      opened = open(path(name));
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
    }
    opened.region->remove(name);
    opened.map->reserve(wanted);
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  }
}

// ---- Damage ------------------------------------------------------------------------------------

TEST_F(BytesMapGrowth, PiecesThatAreGoneOrOthersAreRefusedByName) {
  Oracle oracle;
  BytesOpened opened = create_two_pieces(oracle);
  for (int i = 10; i < 70; ++i) put(opened, oracle, i);
  opened.map->reserve({.record_bytes = 100'000});
  for (int i = 70; i < 120; ++i) put(opened, oracle, i);
  opened.map.reset();
  Region& region = *opened.region;
  const auto refused = [&](const Strings& words) {
    const std::size_t objects = region.objects().size();
    EXPECT_EQ(error_of([&] { BytesMap::open(region, "map"); }, words), Errc::damaged);
    EXPECT_EQ(region.objects().size(), objects);
  };
  const auto copy_of = [&](const std::string& object) {
    const std::uint8_t* const from = bytes_of(region, object);
    return std::vector<std::uint8_t>(from, from + region.object(object).bytes());
  };
  // In the place of an object, another one of these bytes.
  const auto replace = [&](const std::string& object, const std::vector<std::uint8_t>& bytes,
                           const char* type, std::uint32_t element_bytes, Tracking tracking) {
    if (region.contains(object)) region.remove(object);
    auto* const to = static_cast<std::uint8_t*>(
        region.allocate_raw(object, type, element_bytes, bytes.size() / element_bytes, tracking));
    std::copy(bytes.begin(), bytes.end(), to);
  };
  const std::string type = region.object("map.records1").type;
  const auto restore = [&](const std::string& object, const std::vector<std::uint8_t>& bytes) {
    replace(object, bytes, type.c_str(), 16, Tracking::marked);
    EXPECT_EQ(BytesMap::open(region, "map").verify(), "");
  };
  for (const std::string object : {"map.records1", "map.records2"}) {
    SCOPED_TRACE(object);
    const std::vector<std::uint8_t> bytes = copy_of(object);
    const std::string says = object == "map.records1" ? "map.records1" : "names no record";
    region.remove(object);
    refused({"'map'", says});
    restore(object, bytes);
    replace(object, bytes, "u8", 1, Tracking::marked);
    refused({"'map'", says});
    restore(object, bytes);
    replace(object, bytes, type.c_str(), 16, Tracking::hashed);
    refused({"'map'", says});
    restore(object, bytes);
    // Of another size: some records are not in it, or those behind it are elsewhere.
    const std::vector<std::uint8_t> less(bytes.begin(), bytes.begin() + 48);
    replace(object, less, type.c_str(), 16, Tracking::marked);
    refused({"'map'", "index is damaged"});
    restore(object, bytes);
  }
  opened.map = std::make_unique<BytesMap>(BytesMap::open(region, "map"));
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

// A word that names the number between two pieces, or a record in both.
TEST_F(BytesMapGrowth, WordsThatNameNoPieceAreRefused) {
  Oracle oracle;
  BytesOpened opened = create_two_pieces(oracle);
  put(opened, oracle, 10);
  const std::uint64_t end = 640 / bytes_map::kGrain;
  const std::uint64_t last = end + 1 + kPageBytes / bytes_map::kGrain;
  const auto set_word = [&](const Bytes<16>& digest, std::uint64_t word) {
    MapOpenOptions how;
    how.value_bytes = 8;
    Index index = Index::open(*opened.region, "map.index", how);
    index.insert_or_assign(&digest, &word, 1);
  };
  const std::vector<bytes_map::Extent> wrong{{end, 1},      {end - 1, 2},  {end - 1, 3},
                                             {end, 2},      {last, 1},     {last - 1, 2},
                                             {0, last + 1}, {last + 7, 1}, {5, 0}};
  opened.map.reset();
  const Bytes<16> digest{{std::byte{7}}};
  for (const bytes_map::Extent& each : wrong) {
    SCOPED_TRACE(detail::concat(each.first, " ", each.grains));
    set_word(digest, bytes_map::word_of(each));
    EXPECT_EQ(error_of([&] { BytesMap::open(*opened.region, "map"); }, {"'map'", "no record"}),
              Errc::damaged);
  }
  // A place that there is, and which is free: it is no record of this digest.
  set_word(digest, bytes_map::word_of({last - 1, 1}));
  EXPECT_NE(BytesMap::open(*opened.region, "map").verify(), "");
}

TEST_F(BytesMapGrowth, ADamagedRecordOfAnotherPieceIsToldByItsKey) {
  std::mt19937_64 random(test_seed());
  Oracle oracle;
  BytesOpened opened = create_two_pieces(oracle);
  const std::string key = "wrecked";
  opened.put({key}, {string_of(1, 500)});
  std::uint8_t* const record = bytes_of(*opened.region, "map.records1");
  for (int i = 0; i < 60; ++i) {
    const std::uint64_t bit = random() % (BytesMap::record_bytes_of(key.size(), 500) * 8);
    SCOPED_TRACE(bit);
    const auto flip = [&] { record[bit / 8] ^= static_cast<std::uint8_t>(1 << bit % 8); };
    flip();
    std::vector<BytesFound> found;
    const ByteStringVector values = opened.map->find(ByteStringVector({key}), found);
    ASSERT_EQ(found[0], BytesFound::damaged);
    for (const char byte : values[0]) ASSERT_EQ(byte, 0);
    ASSERT_EQ(opened.contents(1), oracle);
    ASSERT_NE(opened.map->verify(), "");
    flip();
    ASSERT_EQ(opened.map->verify(), "");
  }
}

}  // namespace
}  // namespace holdfast::test
