// The cache of a hash map: batches with loads in between, against std::unordered_map; what is in it
// against what each policy says of the accesses; and values that have gone.
#include <algorithm>
#include <set>

#include "hash_map/map_test.hpp"
#include "support/killed_child.hpp"

namespace holdfast::test {
namespace {

using U64 = std::uint64_t;
using Policy = MapCache::Policy;

constexpr Policy kPolicies[] = {Policy::frozen, Policy::lfu, Policy::lru, Policy::random};

MapOptions cached_options(U64 capacity, std::uint32_t value_bytes, std::uint32_t max_batch,
                          const MapCache& cache) {
  MapOptions options = map_options(capacity, value_bytes, max_batch);
  options.cache = cache;
  return options;
}

std::uint32_t row_bytes(std::uint32_t value_bytes) { return (value_bytes + 15) / 16 * 16; }

// ---- Against an oracle -------------------------------------------------------------------------

template <class K, class C, std::uint32_t ValueBytes>
struct Kind {
  using Map = HashMap<K, C>;
  static constexpr std::uint32_t kBytes = ValueBytes;
};

template <class Of>
class HashMapCacheOf : public Scratch {};
using Kinds = ::testing::Types<Kind<U64, MapConfig<>, 128>, Kind<std::uint32_t, MapConfig<4>, 12>,
                               Kind<U64, MapConfig<8>, 516>, Kind<Bytes<16>, MapConfig<8>, 20>>;
TYPED_TEST_SUITE(HashMapCacheOf, Kinds);

// One step: what may happen between batches, and a batch, which a load may be under way beside.
template <class Program, class Opened>
void cached_step(Program& steps, Opened& opened, std::mt19937_64& random) {
  switch (random() % 8) {
    case 0:
      opened.map->load_cache();
      opened.map->await_cache();
      break;
    case 1:
    case 2:
      opened.map->load_cache();
      break;
    case 3:
      (void)opened.map->ref();  // batches are beside refs then
      ASSERT_NO_FATAL_FAILURE(steps.step(opened));
      ASSERT_NO_FATAL_FAILURE(opened.expect_found(steps.asked, steps.oracle));
      if (random() % 2 == 0) opened.map->load_cache();
      opened.map->quiesce();
      break;
    case 4:
      if (opened.map->stats().left_to_move != 0) {
        opened.map->migrate(1 + random() % 20);
      } else if (opened.map->capacity() < 1000) {
        opened.map->grow();
      }
      break;
    default:
      break;
  }
  ASSERT_NO_FATAL_FAILURE(steps.step(opened));
  ASSERT_NO_FATAL_FAILURE(opened.expect_found(steps.asked, steps.oracle));
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(steps.oracle));
}

TYPED_TEST(HashMapCacheOf, RandomProgramsLeaveWhatAnOracleHas) {
  using Opened = MapOpened<typename TypeParam::Map>;
  std::mt19937_64 random(test_seed());
  U64 hits = 0;
  for (const Policy policy : kPolicies) {
    const std::string path = this->path("region" + std::to_string(static_cast<int>(policy)));
    // From one row to more than there are pairs.
    const U64 rows = random() % 3 == 0 ? 1 : 1 + random() % 100;
    const MapCache cache{rows * row_bytes(TypeParam::kBytes), policy,
                         static_cast<std::uint32_t>(random() % 3)};
    MapOptions shape = cached_options(1 + random() % 160, TypeParam::kBytes, 64, cache);
    shape.value_places = 2 * 160 + 6 * 64;  // beside refs two batches take places for all they set
    Opened opened = Opened::create(path, shape);
    MapProgram<typename TypeParam::Map> steps(random(), 1 + random() % 120, 64);
    for (int step = 0; step < 30; ++step) {
      opened.map->set_order(random() % 2 == 0 ? MapOptions::Order::ordered
                                              : MapOptions::Order::unordered);
      ASSERT_NO_FATAL_FAILURE(cached_step(steps, opened, random))
          << "policy " << static_cast<int>(policy) << " step " << step;
      if (random() % 8 != 0) continue;
      hits += opened.map->stats().cache.hits;
      if (random() % 2 == 0) {
        opened.abandon();
      } else {
        opened.close();
      }
      MapOpenOptions how;
      how.cache = cache;
      OpenOptions options;
      options.max_size = U64{64} << 20;  // by itself four times what the file has now
      opened = Opened::open(path, how, options);
      ASSERT_EQ(opened.map->stats().cache.hits, 0u);
    }
    hits += opened.map->stats().cache.hits;
  }
  EXPECT_GT(hits, 0u);
}

// ---- What each policy has in the cache ---------------------------------------------------------

// A map whose keys are numbers, and what a simulation knows of their accesses.
class HashMapCache : public Scratch {
 protected:
  using Map = HashMap<U64>;
  using Opened = MapOpened<Map>;
  static constexpr std::uint32_t kBytes = 64;
  static constexpr U64 kKeys = 200;
  static constexpr U64 kRows = 20;

  void open(Policy policy, U64 rows = kRows, std::uint32_t load_every = 0) {
    opened_ = std::make_unique<Opened>(Opened::create(
        path(), cached_options(kKeys * 2, kBytes, kKeys, {rows * kBytes, policy, load_every})));
    for (U64 key = 0; key < kKeys; ++key) oracle_[key] = key;
    put(all_keys());
  }
  static std::vector<U64> all_keys() {
    std::vector<U64> keys(kKeys);
    for (U64 key = 0; key < kKeys; ++key) keys[key] = key;
    return keys;
  }
  // An update batch counts one access of each of its keys, a lookup each.
  void put(const std::vector<U64>& keys) {
    std::vector<U64> numbers;
    for (const U64 key : keys) numbers.push_back(oracle_[key] += kKeys);
    map().insert_or_assign(keys.data(), opened_->values_of(numbers).data(), keys.size());
    ++batch_;
    for (const U64 key : std::set<U64>(keys.begin(), keys.end())) note(key);
    for (std::size_t i = 0; i < keys.size(); ++i) oracle_[keys[i]] = numbers[i];  // the last wins
  }
  // Returns how many were hits.
  U64 look_up(const std::vector<U64>& keys) {
    const MapCacheStats before = map().stats().cache;
    std::vector<std::uint32_t> values(keys.size() * kBytes / 4);
    std::vector<std::uint8_t> found(keys.size());
    map().find(keys.data(), values.data(), found.data(), keys.size());
    ++batch_;
    U64 there = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto pair = oracle_.find(keys[i]);
      EXPECT_EQ(found[i], pair != oracle_.end());
      if (pair == oracle_.end()) continue;
      EXPECT_EQ(read_value(values.data() + i * kBytes / 4, kBytes), pair->second);
      ++there;
      note(keys[i]);
    }
    const MapCacheStats after = map().stats().cache;
    EXPECT_EQ(after.hits - before.hits + after.misses - before.misses, there);
    return after.hits - before.hits;
  }
  void load() {
    map().load_cache();
    map().await_cache();
  }
  // The keys that are in the cache, by a lookup of each alone. That they count is undone.
  std::set<U64> cached() {
    std::set<U64> keys;
    for (const auto& [key, number] : std::unordered_map<U64, U64>(oracle_)) {
      if (look_up({key}) == 1) keys.insert(key);
    }
    return keys;
  }
  // A skewed batch: few keys are most of it.
  std::vector<U64> skewed(std::size_t count) {
    std::vector<U64> keys;
    for (std::size_t i = 0; i < count; ++i) {
      const double unit = static_cast<double>(random_() % 1000) / 1000;
      keys.push_back(static_cast<U64>(unit * unit * unit * kKeys) * 7 % kKeys);
    }
    return keys;
  }
  Map& map() { return *opened_->map; }

  using Scores = std::unordered_map<U64, U64>;
  // That these are a greatest part of all that have a score, `rows` at most.
  static void expect_greatest(const std::set<U64>& held, const Scores& scores, U64 rows) {
    ASSERT_EQ(held.size(), std::min<U64>(rows, scores.size()));
    U64 least = ~U64{0}, most_outside = 0;
    for (const auto& [key, score] : scores) {
      if (held.count(key) != 0) {
        least = std::min(least, score);
      } else {
        most_outside = std::max(most_outside, score);
      }
    }
    EXPECT_GE(least, most_outside);
  }

  std::unique_ptr<Opened> opened_;
  Opened::Oracle oracle_;
  Scores count_, last_;  // by key: accesses, the latest batch
  U64 batch_ = 0;
  std::mt19937_64 random_{test_seed()};

 private:
  void note(U64 key) {
    ++count_[key];
    last_[key] = batch_;
  }
};

TEST_F(HashMapCache, LfuHasTheKeysWithTheMostAccesses) {
  open(Policy::lfu);
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 4; ++i) look_up(skewed(150));
    put(skewed(20));
    load();
    const Scores at_load = count_;
    const std::set<U64> held = cached();
    ASSERT_NO_FATAL_FAILURE(expect_greatest(held, at_load, kRows));
    const std::vector<U64> keys = skewed(200);
    U64 expected = 0;
    for (const U64 key : keys) expected += held.count(key);
    EXPECT_EQ(look_up(keys), expected);
    EXPECT_EQ(map().verify(), "");
  }
  EXPECT_EQ(map().stats().cache.loads, 4u);
  EXPECT_EQ(map().stats().cache.rows, kRows);
}

TEST_F(HashMapCache, LruHasTheKeysOfTheLatestBatches) {
  open(Policy::lru);
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 6; ++i) look_up(skewed(1 + random_() % 8));
    put(skewed(3));
    load();
    const Scores at_load = last_;
    ASSERT_NO_FATAL_FAILURE(expect_greatest(cached(), at_load, kRows));
    EXPECT_EQ(map().verify(), "");
  }
}

TEST_F(HashMapCache, FrozenStaysAsItWasAtFirst) {
  open(Policy::frozen);
  for (int i = 0; i < 4; ++i) look_up(skewed(150));
  load();
  const Scores at_load = count_;
  const std::set<U64> held = cached();
  ASSERT_NO_FATAL_FAILURE(expect_greatest(held, at_load, kRows));
  // Others are used more from here on. Assigned keys stay in it.
  std::vector<U64> others;
  for (U64 key = 0; key < kKeys; ++key) {
    if (held.count(key) == 0) others.push_back(key);
  }
  for (int i = 0; i < 5; ++i) look_up(others);
  put(std::vector<U64>(held.begin(), held.end()));
  load();
  EXPECT_EQ(cached(), held);
  EXPECT_EQ(map().stats().cache.loads, 1u);
  EXPECT_EQ(map().verify(), "");
}

TEST_F(HashMapCache, RandomHasAnyKeys) {
  open(Policy::random);
  std::unordered_map<U64, int> times;
  std::set<std::set<U64>> different;
  constexpr int kLoads = 16;
  for (int i = 0; i < kLoads; ++i) {
    load();
    const std::set<U64> held = cached();
    ASSERT_EQ(held.size(), kRows);
    for (const U64 key : held) ++times[key];
    different.insert(held);
  }
  EXPECT_EQ(different.size(), static_cast<std::size_t>(kLoads));
  // Each is in a tenth of them: that one is in none is .9^16 = .19.
  EXPECT_GT(times.size(), kKeys * 2 / 3);
  for (const auto& [key, count] : times) EXPECT_LT(count, 12) << "key " << key;
}

TEST_F(HashMapCache, LoadsByItself) {
  open(Policy::lfu, kRows, 2);
  while (map().stats().cache.loads < 3) look_up(skewed(100));
  EXPECT_GT(look_up(skewed(200)), 0u);
}

TEST_F(HashMapCache, HasRoomForAll) {
  open(Policy::lfu, 2 * kKeys);
  EXPECT_EQ(look_up(all_keys()), 0u);
  load();
  EXPECT_EQ(look_up(all_keys()), kKeys);
  EXPECT_EQ(map().verify(), "");
}

// ---- Values that have gone ---------------------------------------------------------------------

TEST_F(HashMapCache, NeverHasAValueThatHasGone) {
  open(Policy::lfu, kKeys);
  look_up(all_keys());
  load();
  // Replaced: the new value is there at once.
  put({3, 4, 5, 3});
  EXPECT_EQ(look_up({3, 4, 5}), 3u);
  // Erased, and there again in a place that was another's.
  const std::vector<U64> gone = {3, 6, 7};
  map().erase(gone.data(), gone.size());
  for (const U64 key : gone) oracle_.erase(key);
  EXPECT_EQ(look_up({3, 6, 7, 8}), 1u);
  put({7, 6, 3});
  EXPECT_EQ(look_up({3, 6, 7}), 0u);
  EXPECT_EQ(map().verify(), "");
  load();
  EXPECT_EQ(look_up({3, 6, 7}), 3u);
  // Replaced beside refs: lookups see the table then; behind quiesce() the cache has no old ones.
  (void)map().ref();
  for (const U64 key : {U64{8}, U64{9}}) oracle_[key] = 77;
  const std::vector<U64> keys = {8, 9};
  map().insert_or_assign(keys.data(), opened_->values_of({77, 77}).data(), keys.size());
  std::vector<std::uint32_t> values(2 * kBytes / 4);
  std::vector<std::uint8_t> found(2);
  map().find(keys.data(), values.data(), found.data(), 2);
  EXPECT_EQ(read_value(values.data(), kBytes), 77u);
  map().quiesce();
  EXPECT_EQ(look_up({8, 9, 10}), 1u);
  EXPECT_EQ(map().verify(), "");
  load();
  EXPECT_EQ(look_up({8, 9, 10}), 3u) << "they were used before refs were";
}

// A value that is replaced, or goes, while its row is being loaded: batches run between all phases.
TEST_F(HashMapCache, FollowsValuesWhileTheyAreLoaded) {
  open(Policy::lfu, kKeys / 2);
  for (int round = 0; round < 6; ++round) {
    for (int i = 0; i < 3; ++i) look_up(skewed(100));
    const U64 loads = map().stats().cache.loads;
    map().load_cache();
    while (map().stats().cache.loads == loads) {
      const std::vector<U64> keys = skewed(40);
      put(keys);
      const U64 gone = keys[random_() % keys.size()];
      map().erase(&gone, 1);
      oracle_.erase(gone);
      count_.erase(gone);
      look_up(skewed(40));
      ASSERT_EQ(map().verify(), "");
    }
    look_up(all_keys());
    ASSERT_EQ(map().verify(), "");
  }
}

TEST_F(HashMapCache, IsEmptyAtOpen) {
  open(Policy::lfu);
  look_up(all_keys());
  load();
  opened_->abandon();
  MapOpenOptions how;
  how.cache.bytes = kRows * kBytes;
  *opened_ = Opened::open(path(), how);
  EXPECT_EQ(look_up(all_keys()), 0u);
  // It is an option of who opens it, not of the map.
  opened_->abandon();
  *opened_ = Opened::open(path());
  EXPECT_EQ(map().stats().cache.rows, 0u);
}

// What a lookup has found in the cache has to survive a kill.
struct Seen {
  U64 batch;
  U64 hits;
};

TEST(HashMapCacheChild, DISABLED_RunsUntilKilled) {
  using Opened = MapOpened<HashMap<U64, MapConfig<8>>>;
  MapOpenOptions how;
  how.cache = {16 * 32, Policy::lfu, 2};
  const Opened opened = Opened::open(from_environment("HOLDFAST_TEST_PATH"), how);
  std::vector<U64> keys(40), found_numbers(40);
  for (U64 i = 0; i < keys.size(); ++i) keys[i] = i;
  for (U64 batch = std::stoull(from_environment("HOLDFAST_TEST_BATCH"));; ++batch) {
    const auto values = opened.values_of(std::vector<U64>(keys.size(), batch));
    opened.map->insert_or_assign(keys.data(), values.data(), keys.size());
    std::vector<std::uint32_t> seen(keys.size() * 32 / 4);
    std::vector<std::uint8_t> found(keys.size());
    opened.map->find(keys.data(), seen.data(), found.data(), keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (found[i] != 1 || read_value(seen.data() + i * 8, 32) != batch) std::abort();
    }
    report(Seen{batch, opened.map->stats().cache.hits});
  }
}

TEST_F(HashMapCache, WhatItServedSurvivesAKill) {
  using Small = MapOpened<HashMap<U64, MapConfig<8>>>;
  Small::create(path(), map_options(120, 32, 40)).region->close();
  U64 next = 1, hits = 0;
  for (KillRounds rounds(6); rounds.another(hits > 0);) {
    const auto told = told_until_killed<Seen>(
        "HashMapCacheChild.DISABLED_RunsUntilKilled", arenas(),
        {{"HOLDFAST_TEST_PATH", path()}, {"HOLDFAST_TEST_BATCH", std::to_string(next)}}, random_,
        rounds.most_microseconds());
    ASSERT_FALSE(told.empty());
    const Seen seen = told.back();
    hits += seen.hits;
    Small opened = Small::open(path());
    for (const auto& [key, batch] : opened.contents()) {
      EXPECT_GE(batch, seen.batch) << "key " << key;
      EXPECT_LE(batch, seen.batch + 1) << "key " << key;
    }
    EXPECT_EQ(opened.map->size(), 40u);
    EXPECT_EQ(opened.map->verify(), "");
    next = seen.batch + 1;
    opened.abandon();
  }
}

// ---- Misuse ------------------------------------------------------------------------------------

TEST_F(HashMapCache, RefusesWhatCannotBe) {
  auto region = Region::create(path(), options(1 << 20));
  const auto refused = [&](auto&& change, const std::vector<std::string>& words) {
    MapOptions shape = cached_options(96, 64, 16, {640, Policy::lfu, 0});
    change(shape);
    EXPECT_EQ(error_of([&] { Map::create(region, "map", shape); }, words), Errc::invalid_argument);
    EXPECT_FALSE(region.contains("map.header"));
  };
  refused([](MapOptions& of) { of.directory = MapOptions::Directory::off; }, {"cache.bytes 640"});
  refused([](MapOptions& of) { of.value_bytes = 8; }, {"cache.bytes 640", "8 bytes"});
  refused([](MapOptions& of) { of.cache.bytes = 63; }, {"cache.bytes 63", "64"});
  refused([](MapOptions& of) { of.cache.policy = Policy(9); }, {"cache.policy 9"});
  Map map = Map::create(region, "map", map_options(96, 64, 16));
  EXPECT_EQ(error_of([&] { map.load_cache(); }, {"'map'", "no cache"}), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { map.await_cache(); }, {"no cache"}), Errc::invalid_argument);
  EXPECT_EQ(map.size(), 0u);
}

}  // namespace
}  // namespace holdfast::test
