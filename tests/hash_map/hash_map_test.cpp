// Batches of the hash map against std::unordered_map, and what a table takes.
#include "hash_map/map_test.hpp"
#include "support/share.hpp"

#if defined(HOLDFAST_BACKEND_CPU)
#include "holdfast/cpu/executor.hpp"
#endif

namespace holdfast::test {
namespace {

template <class K, class C, std::uint32_t ValueBytes, bool WithDirectory = false>
struct Kind {
  using Map = HashMap<K, C>;
  static constexpr unsigned kWidth = C::kWidth;
  static constexpr std::uint32_t kBytes = ValueBytes;
  static constexpr auto kDirectory =
      WithDirectory ? MapOptions::Directory::on : MapOptions::Directory::off;
};

using U32 = std::uint32_t;
using U64 = std::uint64_t;

template <class Of>
class HashMapOf : public Scratch {};
using Kinds = ::testing::Types<
    Kind<U64, MapConfig<>, 8>, Kind<U64, MapConfig<>, 128>, Kind<U32, MapConfig<>, 4>,
    Kind<U32, MapConfig<4>, 12>, Kind<U64, MapConfig<4>, 8, true>, Kind<U32, MapConfig<8>, 8>,
    Kind<U64, MapConfig<8>, 4096>, Kind<U64, MapConfig<16>, 36, true>, Kind<U32, MapConfig<16>, 16>,
    Kind<U64, MapConfig<>, 128, true>, Kind<U32, MapConfig<>, 4, true>,
    Kind<Bytes<16>, MapConfig<4>, 8>, Kind<Bytes<32>, MapConfig<>, 128, true>,
    Kind<Bytes<64>, MapConfig<8>, 4, true>, Kind<Bytes<128>, MapConfig<16>, 36>>;
TYPED_TEST_SUITE(HashMapOf, Kinds);

// Fewer slots than keys at times, so that some are full; abandoned and reopened in between.
TYPED_TEST(HashMapOf, RandomProgramsLeaveWhatAnOracleHas) {
  using Opened = MapOpened<typename TypeParam::Map>;
  const std::uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  for (U64 program = 0; program < some_of(4); ++program) {
    const std::string path = this->path("region" + std::to_string(program));
    MapOptions shape = map_options(1 + random() % 200, TypeParam::kBytes, 64);
    shape.directory = TypeParam::kDirectory;
    Opened opened = Opened::create(path, shape);
    MapProgram<typename TypeParam::Map> steps(random(), 1 + random() % 160, 64);
    for (int step = 0; step < 20; ++step) {
      opened.map->set_order(random() % 2 == 0 ? MapOptions::Order::ordered
                                              : MapOptions::Order::unordered);
      ASSERT_NO_FATAL_FAILURE(steps.step(opened)) << "program " << program << " step " << step;
      ASSERT_NO_FATAL_FAILURE(opened.expect_found(steps.asked, steps.oracle));
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(steps.oracle));
      if (random() % 4 != 0) continue;
      if (random() % 2 == 0) {
        opened.abandon();
      } else {
        opened.close();
      }
      opened = Opened::open(path, {TypeParam::kBytes, 0, TypeParam::kDirectory});
      EXPECT_FALSE(opened.map->recovery().needed());
      EXPECT_EQ(opened.map->recovery().pairs, steps.oracle.size());
    }
  }
}

// Batches with as many keys as there are slots, about: keys move for many of them at once.
TYPED_TEST(HashMapOf, BatchesFillATableUnderAnySchedule) {
  using Opened = MapOpened<typename TypeParam::Map>;
  std::mt19937_64 random(test_seed());
  std::uint64_t slots = 0, taken = 0;
  for (U64 table = 0; table < some_of(3); ++table) {
    const std::string path = this->path("region" + std::to_string(table));
    MapOptions shape = map_options(40 + random() % 80, TypeParam::kBytes, 512);
    shape.directory = TypeParam::kDirectory;
    Opened opened = Opened::create(path, shape);
    const std::size_t count = opened.map->capacity();
#if defined(HOLDFAST_BACKEND_CPU)
    cpu::Schedule schedule = cpu::schedule();
    schedule.seed = random() | 1;
    cpu::set_schedule(schedule);
#endif
    typename Opened::Oracle oracle;
    for (int batch = 0; batch < 3; ++batch) {
      std::vector<typename Opened::Key> keys;
      const std::vector<U64> named = numbers(1000 * batch, batch == 0 ? count : count / 2);
      for (const U64 number : named) keys.push_back(test_key<typename Opened::Key>(number));
      std::vector<MapStatus> status(keys.size());
      opened.map->insert(keys.data(), opened.values_of(named).data(), keys.size(), status.data());
      for (std::size_t i = 0; i < keys.size(); ++i) {
        ASSERT_TRUE(status[i] == MapStatus::inserted || status[i] == MapStatus::full) << i;
        if (status[i] == MapStatus::inserted) oracle[keys[i]] = named[i];
      }
      ASSERT_NO_FATAL_FAILURE(opened.expect_found(keys, oracle));
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
      slots += count;
      taken += oracle.size();
      keys.resize(std::min(keys.size(), count / 2));
      opened.map->erase(keys.data(), keys.size());
      for (const auto& key : keys) oracle.erase(key);
    }
    opened.abandon();
    opened = Opened::open(path, {TypeParam::kBytes, 0, TypeParam::kDirectory});
    EXPECT_FALSE(opened.map->recovery().needed());
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  }
#if defined(HOLDFAST_BACKEND_CPU)
  cpu::set_schedule({});
#endif
  // Half of the longer keys have one label. Without moving it is .98 to .99 at a width of 32.
  const bool is_default = TypeParam::kWidth == 32 && std::is_integral_v<typename Opened::Key>;
  EXPECT_GT(static_cast<double>(taken) / static_cast<double>(slots), is_default ? .994 : .6);
}

class HashMapTest : public Scratch {
 protected:
  using Map = HashMap<U64>;
  using Opened = MapOpened<Map>;
  using Oracle = Opened::Oracle;
};

// The default shape, filled by batches until one does not fit. The paper has 92 %, without moving
// keys.
TEST_F(HashMapTest, IsNinetySixPercentFullBeforeAKeyDoesNotFit) {
  Opened opened = Opened::create(path(), map_options(1 << 14, 8, 128));
  std::mt19937_64 random(test_seed());
  double at_first_failure = 0;
  while (at_first_failure == 0) {
    std::vector<U64> keys(128);
    for (auto& key : keys) key = random() >> 1;
    std::vector<MapStatus> status(keys.size());
    const MapResult result =
        opened.map->insert(keys.data(), keys.data(), keys.size(), status.data());
    if (result.full != 0) at_first_failure = opened.map->load_factor();
  }
  std::printf("load factor at the first key that does not fit: %.4f\n", at_first_failure);
  EXPECT_GT(at_first_failure, 0.96);
  EXPECT_EQ(opened.map->verify(), "");
}

// What does not fit leaves everything else as it was, and is named.
TEST_F(HashMapTest, NamesKeysThatDoNotFitAndLosesNone) {
  using Small = HashMap<U64, MapConfig<4>>;
  auto opened = MapOpened<Small>::create(path(), map_options(12, 128, 64));
  std::unordered_map<U64, U64> oracle;
  std::uint64_t full = 0;
  for (U64 first = 0; first < 64; first += 16) {
    const std::vector<U64> keys = numbers(first, 16);
    std::vector<MapStatus> status(16);
    const MapResult result = opened.map->insert_or_assign(
        keys.data(), opened.values_of(keys).data(), keys.size(), status.data());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (status[i] == MapStatus::inserted) oracle[keys[i]] = keys[i];
    }
    full += result.full;
    ASSERT_EQ(result.inserted + result.full, 16u);
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  }
  EXPECT_GT(full, 64u - 12u - 1u);
  EXPECT_EQ(opened.map->stats().free_places, 12u + 64u - oracle.size());
  // What goes makes room for one of its candidates.
  const U64 gone = oracle.begin()->first;
  opened.map->erase(&gone, 1);
  EXPECT_EQ(opened.map->insert(&gone, opened.values_of({7}).data(), 1).inserted, 1u);
}

// WarpSpeed's ageing test: erased and inserted again at a constant load. Keys that do not fit are
// few (0.3 % in the long run, by simulation), and nothing else is lost.
TEST_F(HashMapTest, AgeingAtEightyFivePercentLoadLosesNothing) {
  Opened opened = Opened::create(path(), map_options(3000, 16, 64));
  const auto target = static_cast<std::size_t>(0.85 * static_cast<double>(opened.map->capacity()));
  Oracle oracle;
  std::vector<U64> live;
  std::mt19937_64 random(test_seed());
  std::uint64_t asked = 0, full = 0;
  const auto insert = [&](std::size_t count) {
    std::vector<U64> keys(count);
    std::vector<MapStatus> status(count);
    for (auto& key : keys) key = random() >> 1;
    const MapResult result =
        opened.map->insert(keys.data(), opened.values_of(keys).data(), keys.size(), status.data());
    ASSERT_EQ(result.inserted + result.full, count);
    for (std::size_t i = 0; i < count; ++i) {
      if (status[i] == MapStatus::full) continue;
      oracle[keys[i]] = keys[i], live.push_back(keys[i]);
    }
    asked += count, full += result.full;
  };
  for (int round = 0; round < 150; ++round) {
    while (live.size() < target) {
      ASSERT_NO_FATAL_FAILURE(insert(std::min<std::size_t>(64, target - live.size())));
    }
    std::vector<U64> gone;
    for (int i = 0; i < 64; ++i) {
      std::swap(live[random() % live.size()], live.back());
      gone.push_back(live.back());
      oracle.erase(live.back());
      live.pop_back();
    }
    ASSERT_EQ(opened.map->erase(gone.data(), gone.size()).erased, 64u);
  }
  EXPECT_LT(full, asked / 100) << "of " << asked;
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

// Every batch assigns all: the places of what was replaced are free for the next one.
TEST_F(HashMapTest, AssigningForeverNeedsNoMorePlaces) {
  Opened opened = Opened::create(path(), map_options(96, 64, 64));
  const std::vector<U64> keys = numbers(0, 64);
  opened.map->insert(keys.data(), opened.values_of(keys).data(), keys.size());
  for (U64 round = 1; round < 40; ++round) {
    ASSERT_EQ(
        opened.map->assign(keys.data(), opened.values_of(numbers(round, 64)).data(), 64).assigned,
        64u);
  }
  EXPECT_EQ(opened.map->verify(), "");
  EXPECT_EQ(opened.map->stats().free_places, opened.map->stats().value_places - 64);
}

TEST_F(HashMapTest, SaysWhatHasNoPlaceForItsValue) {
  MapOptions shape = map_options(96, 64, 16);
  shape.value_places = 10;
  Opened opened = Opened::create(path(), shape);
  const std::vector<U64> keys = numbers(0, 16);
  std::vector<MapStatus> status(16);
  const MapResult result =
      opened.map->insert(keys.data(), opened.values_of(keys).data(), 16, status.data());
  EXPECT_EQ(result.inserted, 10u);
  EXPECT_EQ(result.no_value, 6u);
  Oracle oracle;
  for (std::size_t i = 0; i < 16; ++i) {
    if (status[i] == MapStatus::inserted) oracle[keys[i]] = keys[i];
  }
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  opened.map->erase(keys.data(), 16);
  EXPECT_EQ(opened.map->insert(keys.data(), opened.values_of(keys).data(), 10).inserted, 10u);
}

// Arguments in device memory and in the region, and ordered by place.
TEST_F(HashMapTest, TakesOperationsFromAnywhereInAnyOrder) {
  const MapOptions shape = map_options(200, 32, 100);
  auto region = Region::create(path(), options(Map::region_bytes(shape) + (1 << 20)));
  Map map = Map::create(region, "map", shape);
  const auto keys_there = region.allocate<U64>("keys", 100);
  const DeviceBuffer<std::uint32_t> values(100 * 8), out(100 * 8);
  const DeviceBuffer<std::uint8_t> found(100);
  std::vector<std::uint32_t> given(100 * 8), got(100 * 8);
  for (U64 i = 0; i < 100; ++i) keys_there[i] = 3 * i, write_value(i, &given[i * 8], 32);
  copy_async(map.stream(), values.data(), given.data(), values.bytes());
  for (const auto order : {MapOptions::Order::ordered, MapOptions::Order::unordered}) {
    map.set_order(order);
    EXPECT_EQ(map.insert_or_assign(keys_there.data(), values.data(), 100).not_done(), 0u);
    map.find(keys_there.data(), out.data(), found.data(), 100);
    copy_async(map.stream(), got.data(), out.data(), out.bytes());
    map.stream().synchronize();
    EXPECT_EQ(got, given);
    EXPECT_EQ(map.erase(keys_there.data(), 50).erased, 50u);
  }
  EXPECT_EQ(map.size(), 50u);
  EXPECT_EQ(map.verify(), "");
}

TEST_F(HashMapTest, ExportsSlotsInParts) {
  Opened opened = Opened::create(path(), map_options(300, 8, 200));
  const std::vector<U64> keys = numbers(1, 200);
  opened.map->insert(keys.data(), keys.data(), keys.size());
  std::unordered_set<U64> found;
  for (U64 first = 0; first < opened.map->capacity(); first += 70) {
    std::vector<U64> some(70), values(70);
    const U64 pairs = opened.map->export_batch(first, 70, some.data(), values.data());
    for (U64 i = 0; i < pairs; ++i) {
      EXPECT_TRUE(found.insert(some[i]).second);
      EXPECT_EQ(some[i], values[i]);
    }
  }
  EXPECT_EQ(found.size(), 200u);
  EXPECT_EQ(opened.map->export_batch(opened.map->capacity(), 5, nullptr, nullptr), 0u);
}

// ---- Misuse ------------------------------------------------------------------------------------

TEST_F(HashMapTest, RefusesWhatCannotBeStoredAndChangesNothing) {
  Opened opened = Opened::create(path(), map_options(96, 8, 16));
  const U64 reserved = EmptyValue{}.bits;
  const std::vector<U64> keys = {1, ~U64{0}, 2};
  const std::vector<U64> plain = {1, 2, 3};
  const std::vector<U64> odd = {1, reserved ^ 1, reserved};
  EXPECT_EQ(error_of([&] { opened.map->insert(keys.data(), plain.data(), 3); },
                     {"'map'", "1 operation(s)", "EmptyKey"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { opened.map->erase(keys.data(), 3); }, {"EmptyKey"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { opened.map->insert_or_assign(plain.data(), odd.data(), 3); },
                     {"2 operation(s)", "EmptyValue"}),
            Errc::invalid_argument);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({}));
  ASSERT_NO_FATAL_FAILURE(opened.expect_found(keys, {}));
  EXPECT_EQ(opened.map->insert(plain.data(), plain.data(), 3).inserted, 3u);
}

TEST_F(HashMapTest, TakesOtherEmptyKeysAndValues) {
  const MapOptions shape = map_options(96, 8, 16);
  auto region = Region::create(path(), options(Map::region_bytes(shape)));
  Map map = Map::create(region, "map", shape, EmptyKey<U64>{0}, EmptyValue{2});
  const std::vector<U64> keys = {~U64{0}, 1, 2};
  const std::vector<U64> values = {EmptyValue{}.bits, 0, 1};
  EXPECT_EQ(map.insert(keys.data(), values.data(), 3).inserted, 3u);
  std::vector<U64> out(3);
  std::vector<std::uint8_t> found(3);
  map.find(keys.data(), out.data(), found.data(), 3);
  EXPECT_EQ(out, values);
  const U64 zero = 0;
  EXPECT_EQ(error_of([&] { map.insert(&zero, &zero, 1); }, {"the key 0"}), Errc::invalid_argument);
}

TEST_F(HashMapTest, RefusesOptionsThatCannotBe) {
  auto region = Region::create(path(), options(1 << 20));
  const auto refused = [&](auto&& change, const std::string& word) {
    MapOptions shape = map_options(96, 8, 16);
    change(shape);
    EXPECT_EQ(error_of([&] { Map::create(region, "map", shape); }, {word}), Errc::invalid_argument);
    EXPECT_FALSE(region.contains("map.header"));
  };
  refused([](MapOptions& of) { of.capacity = 0; }, "capacity 0");
  refused([](MapOptions& of) { of.capacity = ~U64{0}; }, "capacity");
  for (const std::uint32_t bytes : {0u, 2u, 6u, 4100u}) {
    refused([&](MapOptions& of) { of.value_bytes = bytes; }, "value_bytes");
  }
  refused([](MapOptions& of) { of.max_batch = 0; }, "max_batch 0");
  refused([](MapOptions& of) { of.max_batch = (1 << 24) + 1; }, "max_batch");
  refused([](MapOptions& of) { of.value_places = 5; }, "value_places 5");
  refused([](MapOptions& of) { of.directory = MapOptions::Directory(7); }, "directory 7");
  EXPECT_EQ(error_of([&] { Map::create(region, "map", map_options(1 << 20, 8)); }, {"takes"}),
            Errc::no_space);
  EXPECT_FALSE(region.contains("map.header"));
}

TEST_F(HashMapTest, RefusesBatchesThatCannotBe) {
  Opened opened = Opened::create(path(), map_options(96, 8, 16));
  const std::vector<U64> keys = numbers(0, 17);
  EXPECT_EQ(error_of([&] { opened.map->insert(keys.data(), keys.data(), 17); }, {"17", "16"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { opened.map->insert(nullptr, keys.data(), 1); }, {"keys"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { opened.map->insert(keys.data(), nullptr, 1); }, {"values"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { opened.map->find_or_insert(keys.data(), keys.data(), nullptr, 1); },
                     {"place"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { opened.map->find(keys.data(), nullptr, nullptr, 1); }, {"found"}),
            Errc::invalid_argument);
  EXPECT_EQ(opened.map->insert(nullptr, nullptr, 0).inserted, 0u);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({}));
}

TEST_F(HashMapTest, RefusesToBeOpenedAsAnotherMap) {
  const MapOptions shape = map_options(96, 8, 16);
  auto region = Region::create(path(), options(Map::region_bytes(shape)));
  Map map = Map::create(region, "map", shape);
  using Narrow = HashMap<std::uint32_t>;
  using Other = HashMap<U64, MapConfig<16>>;
  EXPECT_EQ(error_of([&] { Narrow::open(region, "map"); }, {"keys of 8 bytes", "keys of 4"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { Other::open(region, "map"); }, {"8 ways", "4 ways"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { Map::open(region, "map", {16}); }, {"8 bytes", "16"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of(
                [&] {
                  Map::open(region, "map", {0, 1u << 25});
                },
                {"max_batch"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { Map::open(region, "nap"); }, {"nap"}), Errc::not_found);
  EXPECT_EQ(error_of([&] { Map::create(region, "map", shape); }, {"map"}), Errc::already_exists);
  EXPECT_EQ(map.size(), 0u) << "none of them ended the map";
}

TEST_F(HashMapTest, TheLastOneOpenedIsItsUser) {
  const MapOptions shape = map_options(96, 8, 16);
  auto region = Region::create(path(), options(2 * Map::region_bytes(shape)));
  Map first = Map::create(region, "map", shape);
  Map beside = Map::create(region, "other", shape);
  const U64 key = 5;
  first.insert(&key, &key, 1);
  Map second = Map::open(region, "map", {8, 32});
  EXPECT_EQ(error_of([&] { first.size(); }, {"'map'"}), Errc::closed);
  EXPECT_EQ(second.size(), 1u);
  EXPECT_EQ(second.stats().max_batch, 32u);
  EXPECT_EQ(beside.size(), 0u);
  const Map moved = std::move(second);
  EXPECT_EQ(error_of([&] { second.size(); }, {}), Errc::closed);
  EXPECT_EQ(moved.size(), 1u);
}

}  // namespace
}  // namespace holdfast::test
