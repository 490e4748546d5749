// A hash map that grows: beside batches, to its end at once, over kernels with refs between steps,
// and reopened at any moment of it.
#include <algorithm>

#include "hash_map/format.hpp"
#include "hash_map/map_test.hpp"

namespace holdfast::test {
namespace {

using U64 = std::uint64_t;

template <class Key, class C, std::uint32_t Bytes, bool WithDirectory = false>
struct Kind {
  using Map = HashMap<Key, C>;
  static constexpr std::uint32_t kBytes = Bytes;
  static constexpr auto kDirectory =
      WithDirectory ? MapOptions::Directory::on : MapOptions::Directory::off;
};

template <class Of>
class HashMapGrows : public Scratch {};
using Kinds =
    ::testing::Types<Kind<U64, MapConfig<>, 8>, Kind<U64, MapConfig<4>, 24>,
                     Kind<std::uint32_t, MapConfig<8>, 4, true>, Kind<U64, MapConfig<16>, 36, true>,
                     Kind<std::uint32_t, MapConfig<>, 128>>;
TYPED_TEST_SUITE(HashMapGrows, Kinds);

// Steps of any size between batches, alone and beside refs; abandoned and closed between them.
TYPED_TEST(HashMapGrows, BesideBatchesItHoldsWhatAnOracleHas) {
  using Opened = MapOpened<typename TypeParam::Map>;
  std::mt19937_64 random(test_seed());
  for (int program = 0; program < 4; ++program) {
    SCOPED_TRACE(detail::concat("program ", program));
    const std::string path = this->path("region" + std::to_string(program));
    MapOptions shape = map_options(1 + random() % 100, TypeParam::kBytes, 64);
    shape.directory = TypeParam::kDirectory;
    Opened opened = Opened::create(path, shape);
    MapProgram<typename TypeParam::Map> steps(random(), 1 + random() % 400, 64);
    int growths = 0;
    for (int step = 0; step < 40; ++step) {
      SCOPED_TRACE(detail::concat("step ", step));
      const U64 slots = opened.map->capacity();
      const bool by_ref = random() % 4 == 0;
      if (!by_ref && opened.map->stats().left_to_move == 0 && growths < 4 && random() % 4 == 0) {
        opened.map->grow();
        ++growths;
        ASSERT_GT(opened.map->stats().left_to_move, 0u);
        ASSERT_GE(opened.map->capacity(), 2 * slots);
      } else if (!by_ref) {
        const U64 left = opened.map->stats().left_to_move;
        const U64 some = random() % 5 == 0 ? left : random() % (left / 3 + 2);
        ASSERT_EQ(opened.map->migrate(some), some < left);
        ASSERT_EQ(opened.map->stats().left_to_move, left - std::min(left, some));
      }
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(steps.oracle));
      if (by_ref) (void)opened.map->ref();
      ASSERT_NO_FATAL_FAILURE(steps.step(opened));
      if (by_ref) opened.map->quiesce();
      ASSERT_NO_FATAL_FAILURE(opened.expect_found(steps.asked, steps.oracle));
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(steps.oracle));
      if (random() % 4 != 0) continue;
      const bool growing = opened.map->stats().left_to_move != 0;
      const U64 capacity = opened.map->capacity(), places = opened.map->stats().value_places;
      if (random() % 2 == 0) {
        opened.abandon();
      } else {
        opened.close();
      }
      opened = Opened::open(path, {TypeParam::kBytes, 0, TypeParam::kDirectory});
      ASSERT_FALSE(opened.map->recovery().needed());
      ASSERT_EQ(opened.map->stats().left_to_move != 0, growing);
      ASSERT_EQ(opened.map->capacity(), capacity);
      ASSERT_EQ(opened.map->stats().value_places, places);
    }
  }
}

class HashMapResize : public Scratch {
 protected:
  using Map = HashMap<U64>;
  using Opened = MapOpened<Map>;
};

// What did not fit does as soon as the table begins to grow, before anything has moved; and tables
// that grow under load are as full as others in the end.
TEST_F(HashMapResize, WhatDidNotFitFitsAtOnceAndNothingIsLost) {
  Opened opened = Opened::create(path(), map_options(500, 24, 64));
  Opened::Oracle oracle;
  std::mt19937_64 random(test_seed());
  while (opened.map->capacity() < 16000) {
    std::vector<U64> keys(64);
    for (U64& key : keys) key = random() >> 1;
    std::vector<MapStatus> status(64);
    const auto values = opened.values_of(keys);
    const MapResult result = opened.map->insert(keys.data(), values.data(), 64, status.data());
    ASSERT_EQ(result.inserted + result.full, 64u);
    for (const U64 key : keys) oracle[key] = key;
    if (result.full != 0) {
      if (opened.map->stats().left_to_move == 0) {
        ASSERT_GT(opened.map->load_factor(), 0.7) << "of " << opened.map->capacity();
      }
      opened.map->grow();
      ASSERT_EQ(opened.map->insert(keys.data(), values.data(), 64).not_done(), 0u);
    }
    opened.map->migrate(3);
  }
  opened.map->reserve(0);
  EXPECT_EQ(opened.map->stats().left_to_move, 0u);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

TEST_F(HashMapResize, ReserveGrowsToTheEnd) {
  Opened opened = Opened::create(path(), map_options(96, 64, 64));
  const std::vector<U64> keys = numbers(0, 60);
  opened.map->insert(keys.data(), opened.values_of(keys).data(), 60);
  const Opened::Oracle oracle = opened.contents();
  const U64 places = opened.map->stats().value_places;
  opened.map->reserve(96 * 5);
  EXPECT_EQ(opened.map->capacity(), 96u * 8);
  EXPECT_EQ(opened.map->stats().value_places, places * 8);
  EXPECT_EQ(opened.map->stats().free_places, places * 8 - 60);
  opened.map->reserve(1);
  EXPECT_EQ(opened.map->capacity(), 96u * 8);
  EXPECT_FALSE(opened.map->migrate(5));
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  EXPECT_FALSE(opened.region->contains("map.level1")) << "it was emptied by the third growth";
  EXPECT_TRUE(opened.region->contains("map.level2"));
  EXPECT_EQ(opened.map->insert_or_assign(keys.data(), opened.values_of(keys).data(), 60).assigned,
            60u);
}

// A power cut gives back the growth as it was at the last commit, what moved since included.
TEST_F(HashMapResize, CommitsHaveAGrowthAsItWas) {
  Opened opened = Opened::create(path(), map_options(96, 24, 64));
  const std::vector<U64> keys = numbers(1, 60);
  opened.map->insert(keys.data(), opened.values_of(keys).data(), 60);
  opened.map->reserve(96 * 8);
  opened.region->commit();
  opened.map->grow();
  opened.map->migrate(2);
  opened.map->erase(keys.data(), 20);
  const Opened::Oracle oracle = opened.contents();
  const U64 capacity = opened.map->capacity();
  opened.region->commit();
  opened.map->insert_or_assign(keys.data(), opened.values_of(numbers(100, 60)).data(), 60);
  opened.map->migrate(1000);
  opened.map->grow();
  opened.abandon();
  opened = Opened::open(path(), {}, last_commit());
  EXPECT_EQ(opened.map->capacity(), capacity);
  EXPECT_GT(opened.map->stats().left_to_move, 0u);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  opened.map->reserve(0);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

// ---- Misuse ------------------------------------------------------------------------------------

// For the first object of a growth, of two pages, and for the second, of one.
TEST_F(HashMapResize, NamesTheBytesThatTheRegionLacksAndChangesNothing) {
  for (const U64 pages : {1, 2}) {
    SCOPED_TRACE(pages);
    const MapOptions shape = map_options(96, 64, 16);
    RegionOptions options;
    options.size = Map::region_bytes(shape);
    options.max_size = options.size + pages * kPageBytes;
    auto region = Region::create(path(std::to_string(pages)), options);
    Map map = Map::create(region, "map", shape);
    const std::vector<U64> keys = numbers(0, 16);
    const std::vector<std::uint32_t> values(16 * 16);
    map.insert(keys.data(), values.data(), 16);
    const std::size_t objects = region.objects().size();
    for (int time = 0; time < 2; ++time) {
      EXPECT_EQ(error_of([&] { map.grow(); }, {"'map'", "bytes", "max_size"}), Errc::no_space);
      EXPECT_EQ(region.objects().size(), objects);
      EXPECT_EQ(map.stats().left_to_move, 0u);
      EXPECT_EQ(map.size(), 16u);
      EXPECT_EQ(map.verify(), "");
    }
  }
}

TEST_F(HashMapResize, DoesNotMoveWhileARefIsOut) {
  Opened opened = Opened::create(path(), map_options(96, 8, 16));
  const U64 key = 5;
  opened.map->insert(&key, &key, 1);
  (void)opened.map->ref();
  EXPECT_EQ(error_of([&] { opened.map->grow(); }, {"grow()", "quiesce()"}), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { opened.map->reserve(500); }, {"quiesce()"}), Errc::invalid_argument);
  opened.map->quiesce();
  opened.map->grow();
  (void)opened.map->ref();
  EXPECT_EQ(error_of([&] { opened.map->migrate(1); }, {"migrate()"}), Errc::invalid_argument);
  EXPECT_EQ(opened.map->erase(&key, 1).erased, 1u);
  opened.map->quiesce();
  EXPECT_FALSE(opened.map->migrate(1000));
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({}));
}

// It has no part that says how far it has grown.
TEST_F(HashMapResize, MapsOfVersion1AreOpenedAndDoNotGrow) {
  const MapOptions shape = map_options(96, 24, 16);
  auto region = Region::create(path(), options(2 * Map::region_bytes(shape)));
  (void)Map::create(region, "model", shape);
  const map::MapParametersOfVersion1 parameters{map::MapObject::open(region, "model").parameters()};
  (void)Durable<map::MapParametersOfVersion1>::create(region, "map", parameters);
  EXPECT_FALSE(region.contains("map.growth"));
  for (int time = 0; time < 2; ++time) {
    Map map = Map::open(region, "map");
    const std::vector<U64> keys = numbers(1, 16);
    std::vector<std::uint32_t> values(16 * 6, 7);
    EXPECT_EQ(map.insert(keys.data(), values.data(), 16).inserted, time == 0 ? 16u : 0u);
    EXPECT_EQ(error_of([&] { map.grow(); }, {"'map'", "earlier version"}), Errc::unsupported);
    EXPECT_EQ(error_of([&] { map.reserve(500); }, {"earlier version"}), Errc::unsupported);
    EXPECT_EQ(map.size(), 16u);
    EXPECT_EQ(map.verify(), "");
  }
}

// Objects of a growth that was cut off before it was one, and the level that was to be given up.
TEST_F(HashMapResize, RemainsAreRemoved) {
  const U64 level = 8 * 128;  // bytes of the top one, as it was made
  const auto leave = [&](const char* name, U64 bytes) {
    Region region = Region::open(path());
    if (region.contains(name)) return false;
    region.grow(region.size() + 64 * kPageBytes);
    region.allocate<std::uint8_t>(name, bytes, Tracking::marked);
    region.abandon();
    return true;
  };
  Opened opened = Opened::create(path(), map_options(96, 24, 16));
  opened.abandon();
  ASSERT_TRUE(leave("map.level1", 2 * level));
  opened = Opened::open(path());
  EXPECT_FALSE(opened.region->contains("map.level1"));
  opened.map->reserve(96 * 8);
  opened.abandon();
  ASSERT_TRUE(leave("map.level1", 2 * level));
  ASSERT_TRUE(leave("map.level4", 16 * level));
  opened = Opened::open(path());
  EXPECT_FALSE(opened.region->contains("map.level1"));
  EXPECT_TRUE(opened.region->contains("map.level2"));
  EXPECT_TRUE(opened.region->contains("map.level3"));
  EXPECT_FALSE(opened.region->contains("map.level4"));
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({}));
}

TEST_F(HashMapResize, DamageOfItsGrowthIsRefused) {
  Opened opened = Opened::create(path(), map_options(96, 8, 16));
  opened.map->grow();
  const U64 word = *opened.region->find<U64>("map.growth").data();
  for (unsigned bit = 0; bit < 64; ++bit) {
    *opened.region->find<U64>("map.growth").data() = word ^ U64 { 1 } << bit;
    EXPECT_EQ(error_of([&] { Map::open(*opened.region, "map"); }, {"'map'", "growth"}),
              Errc::damaged)
        << bit;
  }
  *opened.region->find<U64>("map.growth").data() = word;
  opened.map = std::make_unique<Map>(Map::open(*opened.region, "map"));
  EXPECT_GT(opened.map->stats().left_to_move, 0u);
  opened.region->remove("map.level1");
  EXPECT_EQ(error_of([&] { Map::open(*opened.region, "map"); }, {"map.level1"}), Errc::damaged);
}

}  // namespace
}  // namespace holdfast::test
