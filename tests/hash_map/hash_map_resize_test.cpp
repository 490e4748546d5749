// A hash map that grows: beside batches, to its end at once, over kernels with refs between steps,
// and reopened at any moment of it.
#include <algorithm>

#include "core/shared_memory.hpp"
#include "hash_map/format.hpp"
#include "hash_map/map_test.hpp"

namespace holdfast::test {
namespace {

using U64 = std::uint64_t;

template <class Key, class C, std::uint32_t ValueBytes, bool WithDirectory = false>
struct Kind {
  using Map = HashMap<Key, C>;
  static constexpr std::uint32_t kBytes = ValueBytes;
  static constexpr auto kDirectory =
      WithDirectory ? MapOptions::Directory::on : MapOptions::Directory::off;
};

template <class Of>
class HashMapGrows : public Scratch {};
using Kinds =
    ::testing::Types<Kind<U64, MapConfig<>, 8>, Kind<U64, MapConfig<4>, 24>,
                     Kind<std::uint32_t, MapConfig<8>, 4, true>, Kind<U64, MapConfig<16>, 36, true>,
                     Kind<std::uint32_t, MapConfig<>, 128>, Kind<Bytes<24>, MapConfig<4>, 8>,
                     Kind<Bytes<64>, MapConfig<>, 24, true>>;
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

// Objects of a growth that was cut off before it was one, of whatever size, and the level that was
// to be given up.
TEST_F(HashMapResize, RemainsAreRemoved) {
  const U64 level = 8 * 128;  // bytes of the top one, as it was made
  const auto leave = [&](const char* name, U64 bytes) {
    Region region = Region::open(path());
    if (region.contains(name)) return false;
    region.grow(region.size() + 64 * kPageBytes);
    region.allocate_raw(name, "map_level", 1, bytes, Tracking::marked);
    region.abandon();
    return true;
  };
  Opened opened = Opened::create(path(), map_options(96, 24, 16));
  // As grow() has it before it makes anything.
  opened.region->find<U64>("map.growth")[0] = U64{MapHash::hash(~U64{0}, 0)} << 32;
  opened.abandon();
  ASSERT_TRUE(leave("map.level1", 2 * level));
  opened = Opened::open(path());
  EXPECT_FALSE(opened.region->contains("map.level1"));
  opened.map->reserve(96 * 8);
  opened.abandon();
  ASSERT_TRUE(leave("map.level1", 2 * level));
  ASSERT_TRUE(leave("map.level4", 5 * level));
  opened = Opened::open(path());
  EXPECT_FALSE(opened.region->contains("map.level1"));
  EXPECT_TRUE(opened.region->contains("map.level2"));
  EXPECT_TRUE(opened.region->contains("map.level3"));
  EXPECT_FALSE(opened.region->contains("map.level4"));
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({}));
}

// One that was removed, and of which growths are left.
TEST_F(HashMapResize, AMapOfTheSameNameRemovesWhatARemovedOneLeft) {
  Opened opened = Opened::create(path(), map_options(96, 24, 16));
  opened.map->reserve(96 * 4);
  opened.map.reset();
  map::MapObject::remove(*opened.region, "map");
  EXPECT_TRUE(opened.region->contains("map.values2"));
  opened.map = std::make_unique<Map>(Map::create(*opened.region, "map", map_options(96, 24, 16)));
  for (const char* name : {"map.level1", "map.level2", "map.values1", "map.values2"}) {
    EXPECT_FALSE(opened.region->contains(name)) << name;
  }
  opened.map->reserve(96 * 4);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({}));
}

// Of the program, and as a level is in name and size.
TEST_F(HashMapResize, ObjectsOfTheProgramStayAndAreNamed) {
  for (const std::string name : {"map.level1", "map.values1"}) {
    SCOPED_TRACE(name);
    const std::string path = this->path(name);
    Opened opened = Opened::create(path, map_options(96, 24, 16));
    opened.region->grow(opened.region->size() + 64 * kPageBytes);
    const U64 bytes = name == "map.level1" ? 2 * 8 * 128 : opened.map->stats().value_places * 32;
    const auto mine = opened.region->allocate<std::uint8_t>(name, bytes, Tracking::marked);
    std::fill(mine.begin(), mine.end(), std::uint8_t{7});
    const std::size_t objects = opened.region->objects().size();
    const auto expect_mine = [&] {
      const auto found = opened.region->find<std::uint8_t>(name);
      ASSERT_EQ(found.size(), bytes);
      EXPECT_EQ(std::count(found.begin(), found.end(), 7), static_cast<std::ptrdiff_t>(bytes));
      EXPECT_EQ(opened.region->objects().size(), objects);
    };
    for (int time = 0; time < 2; ++time) {
      EXPECT_EQ(error_of([&] { opened.map->grow(); }, {"'map'", "'" + name + "'", "remove()"}),
                Errc::already_exists);
      EXPECT_EQ(error_of([&] { opened.map->reserve(300); }, {name}), Errc::already_exists);
      ASSERT_NO_FATAL_FAILURE(expect_mine());
      opened.abandon();
      opened = Opened::open(path);
      ASSERT_NO_FATAL_FAILURE(expect_mine());
    }
    opened.region->remove(name);
    opened.map->reserve(96 * 16);
    opened.region->allocate<std::uint8_t>("map.level1", 2 * 8 * 128, Tracking::marked)[5] = 9;
    opened.map->reserve(96 * 32);
    opened.close();
    opened = Opened::open(path);
    EXPECT_EQ(opened.region->find<std::uint8_t>("map.level1")[5], 9) << "a level that was given up";
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds({}));
  }
}

// An earlier build's were of bytes.
TEST_F(HashMapResize, LevelsOfAnEarlierBuildAreTaken) {
  Opened opened = Opened::create(path(), map_options(96, 8, 64));
  const std::vector<U64> keys = numbers(0, 60);
  opened.map->insert(keys.data(), keys.data(), 60);
  opened.map->reserve(96 * 4);
  const Opened::Oracle oracle = opened.contents();
  for (const char* name : {"map.level1", "map.level2"}) {
    const auto* const from =
        static_cast<const std::uint8_t*>(opened.region->address(opened.region->object(name)));
    const std::vector<std::uint8_t> bytes(from, from + opened.region->object(name).bytes());
    opened.region->remove(name);
    const auto to = opened.region->allocate<std::uint8_t>(name, bytes.size(), Tracking::marked);
    std::copy(bytes.begin(), bytes.end(), to.begin());
  }
  opened.abandon();
  opened = Opened::open(path());
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  opened.map->reserve(96 * 8);
  EXPECT_FALSE(opened.region->contains("map.level1"));
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

// With the longest name that is taken a table grows as often as any; with one more it is not made.
TEST_F(HashMapResize, NamesLeaveRoomForThoseOfEveryGrowth) {
  const MapOptions shape = map_options(1, 12, 1);
  RegionOptions options;
  options.size = 2 * Map::region_bytes(shape);
  options.max_size = 1 << 30;
  auto region = Region::create(path(), options);
  const std::string longest(46, 'n');
  EXPECT_EQ(error_of([&] { Map::create(region, longest + "n", shape); }, {"47 bytes", "46"}),
            Errc::invalid_argument);
  EXPECT_TRUE(region.objects().empty());
  Map map = Map::create(region, longest, shape);
  const U64 slots = map.capacity();
  map.reserve(slots << 11);
  EXPECT_TRUE(region.contains(longest + ".values11"));
  EXPECT_EQ(map.verify(), "");
  // One of an earlier build.
  const std::string longer(48, 'l');
  (void)map::MapObject::create(region, longer, map::MapObject::open(region, longest).parameters());
  Map old = Map::open(region, longer);
  const std::size_t objects = region.objects().size();
  EXPECT_EQ(error_of([&] { old.grow(); }, {longer, "56 bytes", "shorter"}), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { old.reserve(slots + 1); }, {"shorter"}), Errc::invalid_argument);
  EXPECT_EQ(region.objects().size(), objects);
}

TEST_F(HashMapResize, ReserveRefusesAtOnceWhatCannotBe) {
  Opened opened = Opened::create(path(), map_options(96, 24, 16));
  const U64 key = 5;
  opened.map->insert(&key, opened.values_of({5}).data(), 1);
  const std::size_t objects = opened.region->objects().size();
  const U64 bytes = opened.region->size();
  for (const U64 capacity : {~U64{0}, U64{1} << 63, U64{1} << 40}) {
    EXPECT_EQ(error_of([&] { opened.map->reserve(capacity); },
                       {"'map'", std::to_string(capacity), "fewer"}),
              Errc::invalid_argument);
  }
  EXPECT_EQ(error_of([&] { opened.map->reserve(1 << 24); }, {"16777216 slots", "max_size"}),
            Errc::no_space);
  EXPECT_EQ(opened.region->objects().size(), objects);
  EXPECT_EQ(opened.region->size(), bytes);
  EXPECT_EQ(opened.map->capacity(), 96u);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({{5, 5}}));
}

// All of it is asked for at once: no level is added for which there is memory alone.
TEST_F(HashMapResize, ReserveThatMemoryHasNoRoomForAddsNoLevel) {
  constexpr U64 kSlots = U64{1} << 34;  // of 16 bytes
  if (core::memory_free() > 16 * kSlots) GTEST_SKIP() << "there is memory for that";
  Opened opened = Opened::create(path(), map_options(96, 8, 16));
  opened.close();
  OpenOptions options;
  options.max_size = U64{1} << 40;
  Region region = Region::open(path(), options);
  Map map = Map::open(region, "map");
  const std::size_t objects = region.objects().size();
  const U64 bytes = region.size();
  EXPECT_EQ(error_of([&] { map.reserve(kSlots); }, {"no room for the region's arena"}),
            Errc::no_shared_memory);
  EXPECT_EQ(region.objects().size(), objects);
  EXPECT_EQ(region.size(), bytes);
  EXPECT_EQ(map.capacity(), 96u);
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
  *opened.region->find<U64>("map.growth").data() = 0;
  EXPECT_EQ(error_of([&] { Map::open(*opened.region, "map"); }, {"'map'", "growth"}),
            Errc::damaged);
  EXPECT_TRUE(opened.region->contains("map.level1"));
  *opened.region->find<U64>("map.growth").data() = word;
  opened.map = std::make_unique<Map>(Map::open(*opened.region, "map"));
  EXPECT_GT(opened.map->stats().left_to_move, 0u);
  opened.region->remove("map.level1");
  EXPECT_EQ(error_of([&] { Map::open(*opened.region, "map"); }, {"map.level1"}), Errc::damaged);
}

}  // namespace
}  // namespace holdfast::test
