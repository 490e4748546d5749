// The record of changes: two maps that are kept in step, through growths, openings and kills of
// either, and what a reader is refused.
#include <algorithm>

#include "durable/header.hpp"
#include "hash_map/changes.hpp"
#include "hash_map/map_test.hpp"
#include "support/killed_child.hpp"

namespace holdfast::test {
namespace {

using U64 = std::uint64_t;

// What export_changes() fills.
template <class Map>
struct Page {
  using Key = typename KeyOf<Map>::type;
  MapChanges changes;
  std::vector<Key> keys, erased;
  std::vector<std::uint32_t> values;

  Page(const Map& from, const MapVersion& since, U64 most)
      : keys(most), erased(most), values(most * from.value_bytes() / 4) {
    changes = from.export_changes(since, most, keys.data(), values.data(), erased.data());
  }
  MapResult apply(Map& to) const {
    return to.apply_changes(changes, keys.data(), values.data(), erased.data());
  }
};

// Until `to` has all of `from`; in pages of so many.
template <class Map>
void catch_up(const Map& from, Map& to, U64 most) {
  for (int pages = 0; to.followed() != from.version(); ++pages) {
    ASSERT_LT(pages, 100000);
    Page<Map>(from, to.followed(), most).apply(to);
  }
}

template <class Map>
MapOptions recorded(std::uint32_t value_bytes, U64 capacity = 400, U64 changes = 8192) {
  MapOptions shape = map_options(capacity, value_bytes, 64);
  shape.changes = changes;
  return shape;
}

template <class K, class C, std::uint32_t ValueBytes>
struct Kind {
  using Map = HashMap<K, C>;
  static constexpr std::uint32_t kBytes = ValueBytes;
};
template <class Of>
class HashMapFollows : public Scratch {};
// Of long keys 8 share a label (test_key()): with 8 slots for it one of two maps may be full where
// the other is not.
using Kinds =
    ::testing::Types<Kind<U64, MapConfig<>, 8>, Kind<U64, MapConfig<8>, 24>,
                     Kind<std::uint32_t, MapConfig<>, 4>, Kind<std::uint32_t, MapConfig<16>, 132>,
                     Kind<Bytes<24>, MapConfig<16>, 8>>;
TYPED_TEST_SUITE(HashMapFollows, Kinds);

// Batches of every kind, sums, growths and openings; a follower that takes some pages at a time,
// and is opened anew as well.
TYPED_TEST(HashMapFollows, RandomProgramsLeaveTheSameInBoth) {
  using Map = typename TypeParam::Map;
  using Opened = MapOpened<Map>;
  using Key = typename Opened::Key;
  std::mt19937_64 random(test_seed());
  for (int program = 0; program < 3; ++program) {
    SCOPED_TRACE(program);
    const std::string at = this->path("source" + std::to_string(program));
    const std::string to = this->path("follower" + std::to_string(program));
    Opened source = Opened::create(at, recorded<Map>(TypeParam::kBytes, 1 + random() % 300));
    Opened follower = Opened::create(to, recorded<Map>(TypeParam::kBytes, 1000, 1));
    follower.map->follow(source.map->version());
    MapProgram<Map> steps(random(), 1 + random() % 300, 64);
    const auto reopen = [&](Opened& opened, const std::string& path) {
      if (random() % 2 == 0) {
        opened.abandon();
      } else {
        opened.close();
      }
      OpenOptions options;
      options.max_size = U64{64} << 20;  // by itself four times what the file has now
      opened = Opened::open(path, {}, options);
    };
    for (int step = 0; step < 60; ++step) {
      SCOPED_TRACE(step);
      ASSERT_NO_FATAL_FAILURE(steps.step(source));
      if (random() % 5 == 0) {  // adds nothing, but is a change of all the same
        const std::vector<Key> keys(steps.asked.begin(), steps.asked.end());
        const std::vector<std::uint32_t> zeros(keys.size() * TypeParam::kBytes / 4);
        source.map->accumulate(keys.data(), zeros.data(), keys.size());
      }
      if (random() % 8 == 0 && source.map->capacity() < 3000) source.map->grow();
      source.map->migrate(random() % 4);
      if (random() % 8 == 0) reopen(source, at);
      if (random() % 8 == 0) reopen(follower, to);
      for (U64 pages = random() % 4; pages > 0; --pages) {
        Page<Map>(*source.map, follower.map->followed(), 1 + random() % 100).apply(*follower.map);
      }
      if (random() % 6 != 0) continue;
      ASSERT_NO_FATAL_FAILURE(catch_up(*source.map, *follower.map, 1 + random() % 80));
      ASSERT_NO_FATAL_FAILURE(follower.expect_holds(steps.oracle));
    }
    ASSERT_NO_FATAL_FAILURE(source.expect_holds(steps.oracle));
  }
}

class HashMapChanges : public Scratch {
 protected:
  using Map = HashMap<U64, MapConfig<8>>;
  using Opened = MapOpened<Map>;

  void SetUp() override {
    source_ = Opened::create(path("source"), recorded<Map>(24, 400, 256));
    follower_ = Opened::create(path("follower"), recorded<Map>(24));
  }
  void put(U64 first, U64 count, U64 number) {
    const std::vector<U64> keys = numbers(first, count);
    source_.map->insert_or_assign(keys.data(), source_.values_of(numbers(number, count)).data(),
                                  count);
  }
  Errc refused(const MapVersion& since, const std::vector<std::string>& words) {
    return error_of([&] { Page<Map>(*source_.map, since, 64); }, words);
  }
  Opened source_, follower_;
};

TEST_F(HashMapChanges, AreKeysOnceWithWhatTheyHaveNow) {
  const MapVersion empty = source_.map->version();
  put(0, 40, 100);
  put(20, 40, 200);
  const std::vector<U64> gone = numbers(10, 20), absent = numbers(1000, 3);
  source_.map->erase(gone.data(), gone.size());
  source_.map->erase(absent.data(), absent.size());
  const Page<Map> all(*source_.map, empty, 1000);
  EXPECT_EQ(all.changes.from, empty);
  EXPECT_EQ(all.changes.to.number, 64u) << "max_batch";
  const Page<Map> rest(*source_.map, all.changes.to, 1000);
  EXPECT_EQ(rest.changes.to, source_.map->version());
  EXPECT_EQ(rest.changes.to.number, 40u + 40 + 20 + 3);
  Opened::Oracle pairs;
  std::vector<U64> erased;
  for (const Page<Map>* page : {&all, &rest}) {
    std::unordered_set<U64> seen;
    for (U64 i = 0; i < page->changes.upserts; ++i) {
      EXPECT_TRUE(seen.insert(page->keys[i]).second);
      pairs[page->keys[i]] = read_value(&page->values[i * 6], 24);
    }
    for (U64 i = 0; i < page->changes.tombstones; ++i) {
      EXPECT_TRUE(seen.insert(page->erased[i]).second);
      erased.push_back(page->erased[i]);
    }
  }
  EXPECT_EQ(pairs, source_.contents());
  std::sort(erased.begin(), erased.end());
  erased.erase(std::unique(erased.begin(), erased.end()), erased.end());
  std::vector<U64> expected = gone;
  expected.insert(expected.end(), absent.begin(), absent.end());
  EXPECT_EQ(erased, expected);
  const Page<Map> none(*source_.map, rest.changes.to, 5);
  EXPECT_EQ(none.changes.upserts + none.changes.tombstones, 0u);
  EXPECT_EQ(none.changes.to, rest.changes.to);
}

TEST_F(HashMapChanges, GapsAndRepeatsAreRefused) {
  const MapVersion empty = source_.map->version();
  put(0, 20, 1);
  const Page<Map> first(*source_.map, empty, 20);
  put(10, 20, 2);
  const Page<Map> second(*source_.map, first.changes.to, 20);
  Map& to = *follower_.map;
  EXPECT_EQ(to.followed(), MapVersion{});
  EXPECT_EQ(error_of([&] { first.apply(to); }, {"follows none", "follow()"}), Errc::not_found);
  to.follow(empty);
  EXPECT_EQ(error_of([&] { second.apply(to); }, {"gap", "at 0", "from version 20"}),
            Errc::conflict);
  EXPECT_EQ(to.size(), 0u);
  EXPECT_EQ(first.apply(to).inserted, 20u);
  EXPECT_EQ(error_of([&] { first.apply(to); }, {"in already"}), Errc::conflict);
  follower_.close();
  follower_ = Opened::open(path("follower"));
  EXPECT_EQ(error_of([&] { first.apply(*follower_.map); }, {"in already"}), Errc::conflict);
  EXPECT_EQ(follower_.map->followed(), first.changes.to);
  second.apply(*follower_.map);
  EXPECT_EQ(error_of([&] { second.apply(*follower_.map); }, {"in already"}), Errc::conflict);
  ASSERT_NO_FATAL_FAILURE(follower_.expect_holds(source_.contents()));
}

// A page without operations, which only says that the source was opened again, or what the follower
// has seen, is none the less in once it was applied.
TEST_F(HashMapChanges, ARepeatOfAPageWithoutOperationsIsRefused) {
  follower_.map->follow(source_.map->version());
  put(0, 20, 1);
  ASSERT_NO_FATAL_FAILURE(catch_up(*source_.map, *follower_.map, 20));
  const MapVersion at = follower_.map->followed();
  source_.close();
  source_ = Opened::open(path("source"));
  const Page<Map> reopened(*source_.map, at, 20);
  EXPECT_NE(reopened.changes.to.opening, at.opening);
  put(20, 5, 2);
  const Page<Map> seen(*source_.map, reopened.changes.to, 0);
  EXPECT_NE(seen.changes.to.seen, reopened.changes.to.seen);
  for (const Page<Map>* page : {&reopened, &seen}) {
    EXPECT_EQ(page->changes.to.number, at.number);
    page->apply(*follower_.map);
    EXPECT_EQ(follower_.map->followed(), page->changes.to);
    EXPECT_EQ(error_of([&] { page->apply(*follower_.map); }, {"in already"}), Errc::conflict);
    EXPECT_EQ(follower_.map->followed(), page->changes.to);
  }
  // One that begins and ends where the follower is repeats nothing.
  const Page<Map> none(*source_.map, seen.changes.to, 0);
  none.apply(*follower_.map);
  none.apply(*follower_.map);
  ASSERT_NO_FATAL_FAILURE(catch_up(*source_.map, *follower_.map, 20));
  ASSERT_NO_FATAL_FAILURE(follower_.expect_holds(source_.contents()));
}

// A reader that is too old takes a whole export, and goes on from what was before it, whatever
// changed meanwhile.
TEST_F(HashMapChanges, WhoIsTooOldTakesAWholeExport) {
  const MapVersion empty = source_.map->version();
  for (U64 n = 0; n < 4; ++n) put(n * 64, 64, n);
  EXPECT_EQ(Page<Map>(*source_.map, empty, 64).changes.upserts, 64u) << "256 are kept";
  put(5, 1, 7);
  EXPECT_EQ(refused(empty, {"'map'", "too old", "before 1", "whole export"}), Errc::not_found);
  const MapVersion before = source_.map->version();
  std::vector<U64> keys(64);
  std::vector<std::uint32_t> values(64 * 6);
  for (U64 first = 0; first < source_.map->capacity(); first += 64) {
    const U64 pairs = source_.map->export_batch(first, 64, keys.data(), values.data());
    follower_.map->insert_or_assign(keys.data(), values.data(), pairs);
    put(first % 256, 2, first);
    source_.map->erase(keys.data(), std::min<U64>(pairs, 2));
  }
  follower_.map->follow(before);
  ASSERT_NO_FATAL_FAILURE(catch_up(*source_.map, *follower_.map, 50));
  ASSERT_NO_FATAL_FAILURE(follower_.expect_holds(source_.contents()));
}

TEST_F(HashMapChanges, KernelsWithRefsEndWhatWasKnownBefore) {
  put(0, 9, 1);
  const MapVersion before = source_.map->version();
  (void)source_.map->ref();
  EXPECT_EQ(error_of([&] { source_.map->version(); }, {"quiesce()"}), Errc::invalid_argument);
  EXPECT_EQ(refused(before, {"quiesce()"}), Errc::invalid_argument);
  (void)source_.map->ref();
  put(3, 5, 2);
  source_.abandon();  // as a crash beside the kernels would
  source_ = Opened::open(path("source"));
  EXPECT_EQ(refused(before, {"too old"}), Errc::not_found);
  (void)source_.map->ref();
  source_.map->quiesce();
  const MapVersion behind = source_.map->version();
  put(1, 2, 3);
  EXPECT_EQ(Page<Map>(*source_.map, behind, 64).changes.upserts, 2u);
}

// What was given up by going back to a commit is no version any more, also once there are as many.
TEST_F(HashMapChanges, VersionsThatWereGivenUpAreRefused) {
  put(0, 10, 1);
  const MapVersion committed = source_.map->version();
  source_.region->commit();
  put(10, 10, 2);
  const MapVersion lost = source_.map->version();
  source_.abandon();
  source_ = Opened::open(path("source"), {}, last_commit());
  EXPECT_EQ(refused(lost, {"set back", "behind 10"}), Errc::not_found);
  put(30, 20, 3);
  EXPECT_EQ(refused(lost, {"set back"}), Errc::not_found);
  EXPECT_EQ(Page<Map>(*source_.map, committed, 64).changes.upserts, 20u);
  source_.abandon();
  source_ = Opened::open(path("source"));
  EXPECT_EQ(refused(lost, {"set back"}), Errc::not_found);
  EXPECT_EQ(Page<Map>(*source_.map, committed, 64).changes.upserts, 20u);
  EXPECT_EQ(refused(follower_.map->version(), {"none of this map's"}), Errc::not_found);
}

// A page may have values of what is given up later, behind its end: who has taken it begins anew.
TEST_F(HashMapChanges, WhoHasSeenWhatWasGivenUpIsRefused) {
  Map& to = *follower_.map;
  to.follow(source_.map->version());
  put(0, 10, 1);
  const MapVersion committed = source_.map->version();
  source_.region->commit();
  put(3, 1, 2);
  Page<Map>(*source_.map, to.followed(), 10).apply(to);
  EXPECT_EQ(to.followed().number, committed.number);
  EXPECT_EQ(to.followed().seen, 11u);
  source_.abandon();
  source_ = Opened::open(path("source"), {}, last_commit());
  EXPECT_EQ(refused(to.followed(), {"has seen", "set back", "behind 10"}), Errc::not_found);
  put(20, 10, 3);
  EXPECT_EQ(refused(to.followed(), {"has seen"}), Errc::not_found);
  EXPECT_EQ(Page<Map>(*source_.map, committed, 64).changes.upserts, 10u);
}

// So is who was cut off in the middle of a page; who was not can go on, by that page or any other.
TEST_F(HashMapChanges, WhoWasCutOffInAPageHasSeenIt) {
  follower_.map->follow(source_.map->version());
  put(0, 10, 1);
  source_.region->commit();
  Page<Map>(*source_.map, follower_.map->followed(), 64).apply(*follower_.map);
  put(100, 60, 2);
  const Page<Map> large(*source_.map, follower_.map->followed(), 64);
  Opened small = Opened::create(path("small"), recorded<Map>(24, 12));
  small.map->follow(large.changes.from);
  EXPECT_EQ(error_of([&] { large.apply(*small.map); }, {"reserve()"}), Errc::no_space);
  EXPECT_EQ(small.map->followed().number, 10u);
  EXPECT_EQ(small.map->followed().seen, 70u);
  EXPECT_EQ(error_of([&] { large.apply(*small.map); }, {"reserve()"}), Errc::no_space);
  small.map->reserve(200);
  Page<Map>(*source_.map, small.map->followed(), 4).apply(*small.map);
  EXPECT_EQ(small.map->followed().number, 14u);
  source_.abandon();
  source_ = Opened::open(path("source"), {}, last_commit());
  EXPECT_EQ(refused(small.map->followed(), {"behind 10"}), Errc::not_found);
}

// Of many openings the latest are known.
TEST_F(HashMapChanges, VersionsOfEarlierOpeningsAreKnown) {
  put(0, 10, 1);
  std::vector<MapVersion> versions;
  for (U64 opening = 0; opening < 80; ++opening) {
    versions.push_back(source_.map->version());
    if (opening % 8 == 0) put(opening, 1, opening);
    source_.map.reset();
    source_.map = std::make_unique<Map>(Map::open(*source_.region, "map"));
  }
  for (U64 opening = 0; opening < 80; ++opening) {
    SCOPED_TRACE(opening);
    if (opening < 80 - 62) {
      EXPECT_EQ(refused(versions[opening], {"latest 63 openings"}), Errc::not_found);
    } else {
      EXPECT_EQ(Page<Map>(*source_.map, versions[opening], 64).changes.upserts,
                (79 - opening) / 8 + (opening % 8 == 0 ? 1 : 0));
    }
  }
}

TEST_F(HashMapChanges, WhatFindsNoRoomLeavesTheFollowerWhereItWas) {
  Opened small = Opened::create(path("small"), recorded<Map>(24, 30));
  small.map->follow(source_.map->version());
  for (U64 n = 0; n < 2; ++n) put(n * 64, 64, n);
  const Page<Map> first(*source_.map, small.map->followed(), 64);
  const MapVersion before = small.map->followed();
  for (int time = 0; time < 2; ++time) {
    EXPECT_EQ(error_of([&] { first.apply(*small.map); }, {"no room", "reserve()"}), Errc::no_space);
    EXPECT_EQ(small.map->followed().number, before.number);
  }
  small.map->reserve(400);
  first.apply(*small.map);
  ASSERT_NO_FATAL_FAILURE(catch_up(*source_.map, *small.map, 64));
  ASSERT_NO_FATAL_FAILURE(small.expect_holds(source_.contents()));
}

TEST_F(HashMapChanges, AreOffUnlessTheyAreAskedFor) {
  Opened plain = Opened::create(path("plain"), map_options(40, 24, 64));
  EXPECT_FALSE(plain.region->contains("map.changes.header"));
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { plain.map->version(); },
           [&] { plain.map->followed(); },
           [&] {
             plain.map->follow({1, 2});
           },
           [&] { Page<Map>(*plain.map, {}, 4); },
           [&] { Page<Map>(*source_.map, source_.map->version(), 4).apply(*plain.map); },
       }) {
    EXPECT_EQ(error_of(call, {"'map'", "MapOptions::changes"}), Errc::unsupported);
  }
}

TEST_F(HashMapChanges, OptionsThatCannotBeAreRefused) {
  auto region = Region::create(path(), options(1 << 20));
  const auto refuse = [&](const std::string& name, U64 changes, std::uint32_t max_batch,
                          const std::vector<std::string>& words) {
    MapOptions shape = map_options(40, 24, max_batch);
    shape.changes = changes;
    const Errc code = error_of([&] { Map::create(region, name, shape); }, words);
    EXPECT_TRUE(region.objects().empty());
    return code;
  };
  EXPECT_EQ(refuse("map", ~U64{0}, 64, {"changes"}), Errc::invalid_argument);
  EXPECT_EQ(refuse("map", 1 << 20, 64, {"takes"}), Errc::no_space);
  EXPECT_EQ(refuse(std::string(41, 'n'), 10, 64, {"shorter"}), Errc::invalid_argument);
  EXPECT_EQ(refuse("map", 80'000, 32'000, {"takes"}), Errc::no_space) << "room for one of them";
  source_.map.reset();
  EXPECT_EQ(error_of(
                [&] {
                  Map::open(*source_.region, "map", {0, 65});
                },
                {"64", "65"}),
            Errc::invalid_argument);
  // A creation that was cut off, and a map that was removed, leave a record; a later map has its
  // own.
  (void)map::ChangesObject::create(region, "map.changes", map::changes_parameters(7, 8, 3));
  Map plain = Map::create(region, "map", map_options(40, 24, 64));
  EXPECT_FALSE(region.contains("map.changes.header"));
  EXPECT_EQ(error_of([&] { Map::create(region, "map", recorded<Map>(24)); }, {"map"}),
            Errc::already_exists);
  EXPECT_FALSE(region.contains("map.changes.header"));
  const MapOptions exact = recorded<Map>(24);
  auto tight = Region::create(path("tight"), options(Map::region_bytes(exact)));
  EXPECT_EQ(Map::create(tight, "map", exact).version().number, 0u);
}

// Whatever else is called as a map's record would be is another's: it stays, and goes on.
TEST_F(HashMapChanges, WhatIsCalledAsARecordAndIsNoneStays) {
  const auto objects = [](const Region& region) {
    std::vector<std::string> names;
    for (const ObjectInfo& info : region.objects()) names.push_back(info.name);
    return names;
  };
  for (const U64 of_other : {0, 10}) {
    auto region = Region::create(path(), options(1 << 22));
    Map other = Map::create(region, "x.changes", recorded<Map>(8, 400, of_other));
    const std::vector<U64> keys = numbers(0, 60), more = numbers(60, 60);
    ASSERT_EQ(other.insert(keys.data(), keys.data(), keys.size()).inserted, keys.size());
    const std::vector<std::string> before = objects(region);
    for (const U64 changes : {0, 10}) {
      EXPECT_EQ(error_of([&] { Map::create(region, "x", recorded<Map>(8, 400, changes)); },
                         {"'x'", "'x.changes'", "is a hash map"}),
                Errc::already_exists);
      EXPECT_EQ(objects(region), before);
    }
    EXPECT_EQ(other.insert(more.data(), more.data(), more.size()).inserted, more.size());
    EXPECT_EQ(other.size(), 120u);
    EXPECT_EQ(other.verify(), "");
    // Made in the other order, they are two maps.
    Map plain = Map::create(region, "y", recorded<Map>(8, 400, 0));
    plain.insert(keys.data(), keys.data(), keys.size());
    Map::create(region, "y.changes", recorded<Map>(8, 400, of_other));
    Map again = Map::open(region, "y");
    EXPECT_EQ(again.size(), keys.size());
    EXPECT_EQ(error_of([&] { again.version(); }, {"without a record"}), Errc::unsupported);
    region.abandon();
    Region::destroy(path());
  }
  auto region = Region::create(path(), options(1 << 22));
  // The making of a map x.changes was cut off, behind that of a map x without a record.
  Map::create(region, "x", recorded<Map>(8, 400, 0));
  Map::create(region, "x.changes", recorded<Map>(8, 400, 0));
  auto& header = region.find<durable::Header>("x.changes.header")[0];
  header.magic = durable::Header::kMaking;
  EXPECT_EQ(Map::open(region, "x").size(), 0u);
  for (const ObjectInfo& info : region.objects()) region.remove(info.name);

  region.allocate<U64>("x.changes.header", 8)[3] = 7;
  EXPECT_EQ(error_of([&] { Map::create(region, "x", recorded<Map>(8)); }, {"'x.changes'"}),
            Errc::already_exists);
  EXPECT_EQ(region.find<U64>("x.changes.header")[3], 7u);
}

TEST_F(HashMapChanges, ALostHeaderOfTheRecordIsDamage) {
  put(0, 40, 1);
  source_.map.reset();
  auto& header = source_.region->find<durable::Header>("map.changes.header")[0];
  const durable::Header before = header;
  for (const std::size_t bytes : {std::size_t{8}, sizeof(header)}) {
    std::memset(&header, 0, bytes);
    EXPECT_EQ(
        error_of([&] { Map::open(*source_.region, "map"); }, {"'map", "header", "last commit"}),
        Errc::damaged);
    header = before;
  }
  EXPECT_EQ(Map::open(*source_.region, "map").version().number, 40u);
}

// Of a damaged head no wrong change is given: it is refused, or is as it was.
TEST_F(HashMapChanges, DamageOfTheRecordIsRefused) {
  put(0, 40, 1);
  follower_.map->follow(source_.map->version());
  for (Opened* const opened : {&source_, &follower_}) {
    const MapVersion version = opened->map->version(), followed = opened->map->followed();
    opened->map.reset();
    const auto head = opened->region->find<U64>("map.changes.head");
    const std::vector<U64> whole(head.begin(), head.end());
    int refused = 0;
    std::mt19937_64 random(test_seed());
    const auto round = [&](std::size_t word, U64 value) {
      std::copy(whole.begin(), whole.end(), head.begin());
      if (whole[word] == value) return;
      head[word] = value;
      try {
        Map map = Map::open(*opened->region, "map");
        EXPECT_GE(map.version().number, version.number) << "word " << word;
        EXPECT_EQ(map.followed(), followed) << "word " << word;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::damaged) << error.what();
        ++refused;
      }
    };
    for (std::size_t word = 0; word < head.size(); ++word) {
      if (word > 20 && word + 6 < head.size() && random() % 8 != 0) continue;  // openings are alike
      for (const unsigned bit : {0, 1, 7, 31, 47, 48, 63}) round(word, whole[word] ^ U64{1} << bit);
      round(word, 0);
      round(word, whole[random() % head.size()]);
    }
    EXPECT_GT(refused, 40);
  }
}

// ---- Kills -------------------------------------------------------------------------------------

constexpr U64 kKeys = 60;

// Batches on one map, and another one that follows it, in one process.
void run_both(const MapOpened<HashMap<U64, MapConfig<8>>>& source,
              const MapOpened<HashMap<U64, MapConfig<8>>>& follower, U64 seed, bool forever) {
  std::mt19937_64 random(seed);
  for (int step = 0; forever || step < 3; ++step) {
    std::vector<U64> keys(1 + random() % 40);
    for (U64& key : keys) key = random() % kKeys;
    const auto values = source.values_of(std::vector<U64>(keys.size(), random() >> 8));
    if (random() % 3 == 0) {
      source.map->erase(keys.data(), keys.size());
    } else {
      source.map->insert_or_assign(keys.data(), values.data(), keys.size());
    }
    if (step % 16 == 3 && source.map->capacity() < 4000) source.map->grow();
    source.map->migrate(random() % 8);
    // Rarely, so that what the follower wants is about to be overwritten.
    const auto behind = [&] {
      return source.map->version().number - follower.map->followed().number;
    };
    while (behind() > 70 || random() % 8 == 0) {
      Page<HashMap<U64, MapConfig<8>>>(*source.map, follower.map->followed(), 1 + random() % 50)
          .apply(*follower.map);
    }
    if (forever) report(step);
  }
}

TEST(HashMapChangesChild, DISABLED_RunsUntilKilled) {
  using Opened = MapOpened<HashMap<U64, MapConfig<8>>>;
  const Opened source = Opened::open(from_environment("HOLDFAST_TEST_SOURCE"));
  const Opened follower = Opened::open(from_environment("HOLDFAST_TEST_FOLLOWER"));
  run_both(source, follower, std::stoull(from_environment("HOLDFAST_TEST_BATCH")), true);
}

// What cannot be stored, or is no page's, is refused before anything is done.
TEST_F(HashMapChanges, APageThatCannotBeIsRefusedWhole) {
  Map& to = *follower_.map;
  to.follow(source_.map->version());
  put(0, 40, 1);
  Page<Map>(*source_.map, to.followed(), 64).apply(to);
  const std::vector<U64> some{1, 2, 3};
  source_.map->erase(some.data(), some.size());
  put(100, 30, 2);
  const Page<Map> page(*source_.map, to.followed(), 64);
  ASSERT_EQ(page.changes.tombstones, 3u);
  const auto held = follower_.contents();
  const MapVersion at = to.followed();
  const auto refused = [&](const Page<Map>& bad, const std::vector<std::string>& said) {
    EXPECT_EQ(error_of([&] { bad.apply(to); }, said), Errc::invalid_argument);
    EXPECT_EQ(to.followed(), at);
    EXPECT_EQ(follower_.contents(), held);
  };
  for (const bool erased : {false, true}) {
    Page<Map> bad = page;
    (erased ? bad.erased : bad.keys)[1] = EmptyKey<U64>{}.value;
    refused(bad, {"EmptyKey"});
  }
  const auto counts = [&](auto&& change) {
    Page<Map> bad = page;
    change(bad.changes);
    refused(bad, {"no page", "export them again"});
  };
  counts([](MapChanges& of) { of.upserts = U64{1} << 62; });
  counts([](MapChanges& of) { of.tombstones = ~U64{0}; });
  counts([](MapChanges& of) { of.upserts = ~U64{0}, of.tombstones = 2; });
  counts([](MapChanges& of) { of.to.number = of.from.number - 1; });
  counts([](MapChanges& of) { of.to.seen = of.to.number - 1; });
  counts([](MapChanges& of) { of.to.opening = 0; });
  EXPECT_EQ(error_of([&] { to.apply_changes(page.changes, nullptr, nullptr, nullptr); },
                     {"no keys, values or erased"}),
            Errc::invalid_argument);
  EXPECT_EQ(to.followed(), at);
  page.apply(to);
  ASSERT_NO_FATAL_FAILURE(follower_.expect_holds(source_.contents()));
}

// Values that stand in slots, where two bit patterns are none.
TEST_F(HashMapChanges, APageWithAValueThatCannotBeStoredIsRefusedWhole) {
  const Opened from = Opened::create(path("from"), recorded<Map>(8));
  const Opened to = Opened::create(path("to"), recorded<Map>(8));
  to.map->follow(from.map->version());
  const MapVersion at = to.map->followed();
  const std::vector<U64> some = numbers(0, 20), gone = numbers(0, 5);
  from.map->insert(some.data(), from.values_of(some).data(), some.size());
  from.map->erase(gone.data(), gone.size());
  Page<Map> page(*from.map, at, 64);
  const std::vector<std::uint32_t> values = page.values;
  for (const U64 none : {EmptyValue{}.bits, EmptyValue{}.bits ^ 1}) {
    std::memcpy(&page.values[6], &none, sizeof(none));
    EXPECT_EQ(error_of([&] { page.apply(*to.map); }, {"EmptyValue"}), Errc::invalid_argument);
    EXPECT_EQ(to.map->followed(), at);
    EXPECT_EQ(to.map->size(), 0u);
  }
  page.values = values;
  page.apply(*to.map);
  ASSERT_NO_FATAL_FAILURE(to.expect_holds(from.contents()));
}

class HashMapChangesCrash : public HashMapChanges {
 protected:
  void begin() {
    source_ = Opened::create(path("tight"), recorded<Map>(24, 400, 110));
    follower_.map->follow(source_.map->version());
    put(0, 30, 1);
    source_.abandon();
    follower_.abandon();
  }
  // Whatever was cut off, the follower gets to what the source has, from where it was.
  void expect_in_step() {
    source_ = Opened::open(path("tight"));
    follower_ = Opened::open(path("follower"));
    ASSERT_NO_FATAL_FAILURE(catch_up(*source_.map, *follower_.map, 64));
    ASSERT_NO_FATAL_FAILURE(follower_.expect_holds(source_.contents()));
    ASSERT_EQ(source_.map->verify(), "");
    source_.abandon();
    follower_.abandon();
  }
};

TEST_F(HashMapChangesCrash, KilledAtAnyMomentTheyGetInStepAgain) {
  begin();
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 30; ++round) {
    SCOPED_TRACE(round);
    const auto told =
        told_until_killed<int>("HashMapChangesChild.DISABLED_RunsUntilKilled", arenas(),
                               {{"HOLDFAST_TEST_SOURCE", path("tight")},
                                {"HOLDFAST_TEST_FOLLOWER", path("follower")},
                                {"HOLDFAST_TEST_BATCH", std::to_string(random())}},
                               random, 8'000);
    ASSERT_FALSE(told.empty());
    ASSERT_NO_FATAL_FAILURE(expect_in_step());
  }
}

#ifdef HOLDFAST_INTERCEPT

TEST(HashMapChangesChild, DISABLED_DiesAtAFence) {
  using Opened = MapOpened<HashMap<U64, MapConfig<8>>>;
  Reaper reaper(std::stoull(from_environment("HOLDFAST_TEST_FENCES")));
  cpu::set_listener(&reaper);
  const Opened source = Opened::open(from_environment("HOLDFAST_TEST_SOURCE"));
  const Opened follower = Opened::open(from_environment("HOLDFAST_TEST_FOLLOWER"));
  run_both(source, follower, std::stoull(from_environment("HOLDFAST_TEST_BATCH")), false);
}

TEST(HashMapChangesChild, DISABLED_DiesInABatch) {
  using Opened = MapOpened<HashMap<U64, MapConfig<8>>>;
  const Opened source = Opened::open(from_environment("HOLDFAST_TEST_SOURCE"));
  Reaper reaper(std::stoull(from_environment("HOLDFAST_TEST_FENCES")));
  cpu::set_listener(&reaper);
  const std::vector<U64> keys = numbers(2000, 64);
  source.map->erase(keys.data(), keys.size());
}

// What a batch that is cut off stores of its keys is in nobody's way: who is as far behind as can
// be, 110 operations, still gets them all.
TEST_F(HashMapChangesCrash, KilledInABatchTheOldestChangesAreThere) {
  begin();
  for (U64 fence = 0; fence < 128; fence += 9) {
    SCOPED_TRACE(fence);
    ASSERT_NO_FATAL_FAILURE(expect_in_step());
    source_ = Opened::open(path("tight"));
    put(fence, 55, fence);
    put(fence + 100, 55, fence);
    source_.abandon();
    ASSERT_FALSE(came_to_its_end("HashMapChangesChild.DISABLED_DiesInABatch", arenas(),
                                 {{"HOLDFAST_TEST_SOURCE", path("tight")},
                                  {"HOLDFAST_TEST_FENCES", std::to_string(fence)}}));
    ASSERT_FALSE(HasFailure());
  }
  ASSERT_NO_FATAL_FAILURE(expect_in_step());
}

// Openings, batches and the following of both; the states build on one another.
TEST_F(HashMapChangesCrash, KilledAtEveryFenceTheyGetInStepAgain) {
  begin();
  for (U64 fence = 0, finished = 0; finished < 3; fence += 1 + fence / 32) {
    SCOPED_TRACE(fence);
    ASSERT_LT(fence, 100000u);
    const bool ended = came_to_its_end("HashMapChangesChild.DISABLED_DiesAtAFence", arenas(),
                                       {{"HOLDFAST_TEST_SOURCE", path("tight")},
                                        {"HOLDFAST_TEST_FOLLOWER", path("follower")},
                                        {"HOLDFAST_TEST_BATCH", std::to_string(fence)},
                                        {"HOLDFAST_TEST_FENCES", std::to_string(fence)}});
    finished += ended ? 1 : 0;
    ASSERT_FALSE(HasFailure());
    ASSERT_NO_FATAL_FAILURE(expect_in_step());
  }
}

#endif  // HOLDFAST_INTERCEPT

}  // namespace
}  // namespace holdfast::test
