// Scores, and batches that evict, against an oracle.
#include "hash_map/hash_map_evict_test.hpp"
#include "support/share.hpp"

namespace holdfast::test {
namespace {

using U64 = std::uint64_t;
using U32 = std::uint32_t;

constexpr U32 kMaxBatch = 64;

template <class K, class C, U32 ValueBytes, MapScores Policy, bool WithDirectory = false,
          U64 CachedRows = 0>
struct Kind {
  using Map = HashMap<K, C>;
  static MapOptions shape(U64 slots) {
    MapOptions options = map_options(slots, ValueBytes, kMaxBatch);
    options.directory = WithDirectory ? MapOptions::Directory::on : MapOptions::Directory::off;
    options.cache = {CachedRows * ((ValueBytes + 15) / 16 * 16), MapCache::Policy::lru, 2};
    options.scores = Policy;
    return options;
  }
};

// `evicts`: with scores, if the policy takes them.
template <class Map>
typename ScoredMap<Map>::Batch draw(std::mt19937_64& random, U64 keys, const MapOptions& shape,
                                    bool evicts = true) {
  typename ScoredMap<Map>::Batch batch;
  const std::size_t count = random() % 3 == 0 ? 1 : 1 + random() % kMaxBatch;
  const bool gives = evicts && (shape.scores == MapScores::custom ||
                                (shape.scores == MapScores::lfu && random() % 2 == 0));
  for (std::size_t i = 0; i < count; ++i) {
    batch.keys.push_back(test_key<typename ScoredMap<Map>::Key>(random() % keys));
    batch.numbers.push_back(random() & (shape.value_bytes == 4 ? 0xffffffff : ~U64{0}));
    if (gives) batch.scores.push_back(random() % 8 == 0 ? random() : random() % 40);
  }
  return batch;
}

template <class Of>
class HashMapEvictOf : public Scratch {};
using Kinds = ::testing::Types<Kind<U64, MapConfig<>, 8, MapScores::lru>,
                               Kind<U32, MapConfig<4>, 4, MapScores::custom>,
                               Kind<U64, MapConfig<8>, 128, MapScores::lfu, true, 10>,
                               Kind<U64, MapConfig<16>, 20, MapScores::lru, true>,
                               Kind<U64, MapConfig<8, 4, 2>, 12, MapScores::custom>,
                               Kind<Bytes<16>, MapConfig<4>, 8, MapScores::custom, true>,
                               Kind<Bytes<32>, MapConfig<>, 36, MapScores::lru, true, 6>,
                               Kind<Bytes<24>, MapConfig<8>, 16, MapScores::lfu>>;
TYPED_TEST_SUITE(HashMapEvictOf, Kinds);

// Of more keys than there are slots, among batches of all kinds, growths, refs, and openings.
TYPED_TEST(HashMapEvictOf, RandomProgramsLoseNothing) {
  using Map = typename TypeParam::Map;
  std::mt19937_64 random(test_seed());
  U64 evicted = 0, turned_away = 0, judged = 0;
  for (U64 program = 0; program < some_of(3) || (evicted <= 20 && program < 3); ++program) {
    const MapOptions shape = TypeParam::shape(12 + random() % 60);
    ScoredMap<Map> scored(this->path("region" + std::to_string(program)), shape);
    Map& (*const map)(ScoredMap<Map>&) = [](ScoredMap<Map>& of) -> Map& { return *of.opened.map; };
    const U64 keys = map(scored).capacity() * (2 + random() % 3);
    for (int step = 0; step < 60; ++step) {
      SCOPED_TRACE(detail::concat("program ", program, " step ", step));
      map(scored).set_order(random() % 2 == 0 ? MapOptions::Order::ordered
                                              : MapOptions::Order::unordered);
      const auto others = draw<Map>(random, keys, shape, false);
      switch (random() % 12) {
        case 0:
        case 1:
          scored.update(static_cast<detail::MapOperation>(random() % 5), others);
          break;
        case 2:
          scored.find(others.keys);
          break;
        case 3:  // of a table that grows
          if (random() % 6 != 0 || map(scored).capacity() > 400) break;
          map(scored).grow();
          scored.update(detail::MapOperation::insert_or_assign, others);
          scored.find(others.keys);
          ASSERT_NO_FATAL_FAILURE(scored.expect_holds());
          while (map(scored).migrate(1 + random() % 8)) {
            scored.update(detail::MapOperation::erase, draw<Map>(random, keys, shape, false));
          }
          break;
        case 4:  // what kernels with refs may do, too
          if (random() % 3 != 0) break;
          (void)map(scored).ref();
          scored.refs_out = true;
          scored.update(detail::MapOperation::erase, others);
          scored.update(detail::MapOperation::insert, draw<Map>(random, keys, shape, false));
          map(scored).quiesce();
          scored.refs_out = false;
          break;
        case 5:
          if (random() % 4 == 0) {
            scored.reopen({0, 0, shape.directory, shape.cache, shape.scores}, random() % 2 == 0);
          }
          break;
        default: {
          const MapEviction said = scored.evict(draw<Map>(random, keys, shape));
          evicted += said.evicted;
          turned_away += said.result.full;
          ASSERT_EQ(said.result.no_value, 0u);
        }
      }
      ASSERT_NO_FATAL_FAILURE(scored.expect_holds());
      if (this->HasFailure()) return;
    }
    judged += scored.judged;
  }
  std::printf(
      "evicted %llu, turned away %llu, compared %llu\n", static_cast<unsigned long long>(evicted),
      static_cast<unsigned long long>(turned_away), static_cast<unsigned long long>(judged));
  EXPECT_GT(evicted, 20u);
}

// Once it is full it stays so, and no place is lost.
TYPED_TEST(HashMapEvictOf, AFullTableStaysFullOverThousandsOfEvictions) {
  using Map = typename TypeParam::Map;
  std::mt19937_64 random(test_seed());
  const MapOptions shape = TypeParam::shape(40);
  ScoredMap<Map> scored(this->path(), shape);
  const U64 capacity = scored.opened.map->capacity();
  U64 evicted = 0;
  bool filled = false;
  const int steps = static_cast<int>(some_of(150, 30));
  for (int step = 0; step < steps; ++step) {
    SCOPED_TRACE(step);
    auto batch = draw<Map>(random, 4000, shape);
    if (shape.scores != MapScores::lru) {  // that rise, so that what is new stays
      batch.scores.clear();
      for (std::size_t i = 0; i < batch.keys.size(); ++i) {
        batch.scores.push_back(static_cast<U64>(step) * 50 + random() % 100);
      }
    }
    evicted += scored.evict(batch).evicted;
    ASSERT_FALSE(this->HasFailure());
    if (filled) {
      ASSERT_EQ(scored.opened.map->load_factor(), 1.0);
    }
    filled = scored.opened.map->size() == capacity;
  }
  ASSERT_NO_FATAL_FAILURE(scored.expect_holds());
  EXPECT_TRUE(filled);
  EXPECT_GT(scored.judged, static_cast<U64>(steps * 2 / 3));
  EXPECT_GT(evicted, static_cast<U64>(steps * 20 / 3));
}

// ---- What is promised --------------------------------------------------------------------------

class HashMapEvict : public Scratch {
 protected:
  using Map = HashMap<U64, MapConfig<4>>;
  using Scored = ScoredMap<Map>;
  using Batch = Scored::Batch;

  // Six slots.
  static MapOptions small(MapScores policy, U32 value_bytes = 8) {
    MapOptions options = map_options(6, value_bytes, 16);
    options.scores = policy;
    return options;
  }
  // Keys 1, 2, ... until all slots are taken.
  static void fill(Scored& scored) {
    for (U64 key = 1; scored.held.size() < scored.opened.map->capacity(); ++key) {
      ASSERT_LT(key, 1000u);
      scored.update(detail::MapOperation::insert, {{key}, {key}, {}});
    }
  }
};

TEST_F(HashMapEvict, ThePairThatWasNotUsedForLongestGoes) {
  Scored scored(path(), small(MapScores::lru));
  fill(scored);
  std::vector<U64> used;
  for (const auto& [key, pair] : scored.held) used.push_back(key);
  for (const U64 key : used) scored.find({key});
  for (U64 key = 1000; key < 1100; ++key) {
    const MapEviction said = scored.evict({{key}, {key}, {}});
    ASSERT_EQ(said.evicted, 1u);
    ASSERT_EQ(said.result.inserted, 1u);
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GE(scored.judged, 300u);
  ASSERT_NO_FATAL_FAILURE(scored.expect_holds());
}

// What is turned away is in what went, with its own value and score.
TEST_F(HashMapEvict, ANewPairOfALesserScoreIsTurnedAway) {
  Scored scored(path(), small(MapScores::custom, 12));
  fill(scored);
  for (const auto& pair : Scored::Held(scored.held)) {
    scored.evict({{pair.first}, {pair.second.number}, {100}});
  }
  const Scored::Held before = scored.held;
  MapEviction said = scored.evict({{5000}, {1}, {99}});
  EXPECT_EQ(said.result.full, 1u);
  EXPECT_EQ(said.evicted, 0u);
  ASSERT_EQ(said.count(), 1u);
  EXPECT_EQ(scored.went[0].key, 5000u);
  EXPECT_EQ(scored.held, before);
  said = scored.evict({{5000}, {1}, {100}});  // of equals the new one stays
  EXPECT_EQ(said.result.inserted, 1u);
  EXPECT_EQ(said.evicted, 1u);
  ASSERT_NO_FATAL_FAILURE(scored.expect_holds());
}

// Pairs that the batch has set do not go: neither what it inserted nor what was there.
TEST_F(HashMapEvict, ABatchDoesNotEvictItsOwn) {
  std::mt19937_64 random(test_seed());
  Scored scored(path(), small(MapScores::custom));
  fill(scored);
  Batch batch;
  for (const auto& [key, pair] : scored.held) {
    batch.keys.push_back(key), batch.numbers.push_back(7), batch.scores.push_back(0);
  }
  for (U64 key = 2000; key < 2010; ++key) {
    batch.keys.push_back(key), batch.numbers.push_back(8), batch.scores.push_back(random());
  }
  MapEviction said = scored.evict(batch);
  EXPECT_EQ(said.evicted, 0u);
  EXPECT_EQ(said.result.assigned, 6u);
  EXPECT_EQ(said.result.full, 10u);
  batch = {};
  for (U64 key = 2000; key < 2016; ++key) {
    batch.keys.push_back(key), batch.numbers.push_back(9), batch.scores.push_back(random());
  }
  said = scored.evict(batch);
  EXPECT_EQ(said.evicted, said.result.inserted);
  EXPECT_LE(said.evicted, 6u);
  EXPECT_GE(said.evicted, 4u);
  ASSERT_NO_FATAL_FAILURE(scored.expect_holds());
}

// Whatever an insertion finds room for evicts nothing.
TEST_F(HashMapEvict, AKeyThatCanMoveIsNotEvicted) {
  Scored plain(path("plain"), small(MapScores::lru)), scored(path(), small(MapScores::lru));
  U64 rounds = 0;
  for (U64 key = 1;; ++key) {
    plain.update(detail::MapOperation::insert, {{key}, {key}, {}});
    const MapEviction said = scored.evict({{key}, {key}, {}});
    if (plain.status[0] == MapStatus::full) {
      EXPECT_EQ(said.evicted, 1u);
      break;
    }
    ++rounds;
    ASSERT_EQ(said.evicted, 0u);
    ASSERT_NO_FATAL_FAILURE(scored.expect_holds());
  }
  EXPECT_GE(rounds, 4u);
}

TEST_F(HashMapEvict, CountsAreOfAccessesAndMayBeGiven) {
  Scored scored(path(), small(MapScores::lfu));
  scored.evict({{1, 2, 1}, {1, 2, 3}, {}});
  scored.evict({{1, 3}, {1, 3}, {5, 7}});
  scored.find({1, 1, 2, 9});
  EXPECT_EQ(scored.held.at(1).score, 1u + 5 + 2);
  EXPECT_EQ(scored.held.at(2).score, 1u + 1);
  EXPECT_EQ(scored.held.at(3).score, 7u);
  ASSERT_NO_FATAL_FAILURE(scored.expect_holds());
  // It does not wrap around.
  scored.evict({{1}, {1}, {~U64{0}}});
  scored.held.at(1).score = ~U64{0};
  ASSERT_NO_FATAL_FAILURE(scored.expect_holds());
  scored.find({1, 1});
  scored.held.at(1).score = ~U64{0};
  ASSERT_NO_FATAL_FAILURE(scored.expect_holds());
}

// A slot that came free has no score for the next pair, whoever erased there.
TEST_F(HashMapEvict, AnErasedPairLeavesNoScore) {
  for (const bool beside : {false, true}) {
    SCOPED_TRACE(beside);
    Scored scored(path(beside ? "beside" : "alone"), small(MapScores::custom));
    fill(scored);
    Batch all;
    for (const auto& [key, pair] : scored.held) {
      all.keys.push_back(key), all.numbers.push_back(1), all.scores.push_back(9);
    }
    scored.evict(all);
    ASSERT_NO_FATAL_FAILURE(scored.expect_holds());
    if (beside) (void)scored.opened.map->ref();
    scored.refs_out = beside;
    scored.update(detail::MapOperation::erase, {all.keys, all.numbers, {}});
    if (beside) scored.opened.map->quiesce();
    scored.refs_out = false;
    fill(scored);
    ASSERT_NO_FATAL_FAILURE(scored.expect_holds());
  }
}

// All of a mixed batch's operations that leave a value count, and so do sums.
TEST_F(HashMapEvict, MixedBatchesAndSumsAreAccesses) {
  Scored scored(path(), small(MapScores::lfu));
  using enum MapOp;
  const std::vector<MapOp> kinds = {insert, find, insert_or_assign, erase, insert, erase};
  const std::vector<U64> keys = {1, 1, 1, 2, 3, 3}, values = {1, 1, 1, 1, 1, 1};
  std::vector<U64> out(6);
  scored.opened.map->apply(kinds.data(), keys.data(), values.data(), out.data(), 6);
  const std::vector<U64> both = {1, 1, 4}, sums = {1, 1, 1};
  scored.opened.map->accumulate(both.data(), sums.data(), 3);
  const std::vector<U64> asked = {1, 2, 3};
  std::vector<U64> scores(3, 9);
  std::vector<std::uint8_t> found(3, 9);
  scored.opened.map->scores(asked.data(), scores.data(), found.data(), 3);
  EXPECT_EQ(scores, (std::vector<U64>{3 + 1, 0, 0}));
  EXPECT_EQ(found, (std::vector<std::uint8_t>{1, 0, 0}));
}

// The record of changes has what went: a map that follows loses it, too.
TEST_F(HashMapEvict, WhatWentIsInTheRecordOfChanges) {
  std::mt19937_64 random(test_seed());
  MapOptions shape = map_options(40, 16, 16);
  shape.changes = 200;
  MapOptions other = shape;
  other.capacity = 400;  // pairs that come find room before those that went are erased
  shape.scores = MapScores::lru;
  Scored scored(path("source"), shape);
  auto follower = MapOpened<Map>::create(path("follower"), other);
  follower.map->follow(scored.opened.map->version());
  U64 evicted = 0;
  for (int step = 0; step < 60; ++step) {
    Batch batch;
    for (int i = 0; i < 16; ++i) {
      batch.keys.push_back(1 + random() % 200), batch.numbers.push_back(random());
    }
    evicted += scored.evict(batch).evicted;
    if (step % 2 == 0) continue;
    while (follower.map->followed() != scored.opened.map->version()) {
      std::vector<U64> keys(16), erased(16), values(32);
      const MapChanges changes = scored.opened.map->export_changes(
          follower.map->followed(), 16, keys.data(), values.data(), erased.data());
      follower.map->apply_changes(changes, keys.data(), values.data(), erased.data());
    }
    MapOpened<Map>::Oracle numbers;
    for (const auto& [key, pair] : scored.held) numbers[key] = pair.number;
    ASSERT_NO_FATAL_FAILURE(follower.expect_holds(numbers));
  }
  EXPECT_GT(evicted, 100u);
}

// A row of the cache, whose pair went, serves nobody.
TEST_F(HashMapEvict, TheCacheDoesNotServeWhatWent) {
  std::mt19937_64 random(test_seed());
  MapOptions shape = map_options(6, 64, 16);
  shape.scores = MapScores::lru;
  shape.cache = {6 * 64, MapCache::Policy::lru};
  Scored scored(path(), shape);
  fill(scored);
  std::vector<U64> all = numbers(1, 60);
  for (U64 key = 1; key < 60; ++key) {
    scored.find({1 + random() % 60, 1 + random() % 60});
    scored.opened.map->load_cache();
    if (random() % 2 == 0) scored.opened.map->await_cache();
    scored.evict({{key}, {key * 7}, {}});
    scored.find({key});
    ASSERT_NO_FATAL_FAILURE(scored.expect_holds());
    for (std::size_t first = 0; first < all.size(); first += 16) {
      const std::size_t end = std::min<std::size_t>(all.size(), first + 16);
      scored.find({all.begin() + static_cast<long>(first), all.begin() + static_cast<long>(end)});
    }
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(scored.opened.map->stats().cache.hits, 0u);
}

// Where there is no place for a value nothing is evicted, and the new pair is what went.
TEST_F(HashMapEvict, WithoutAPlaceTheNewPairGoes) {
  MapOptions shape = small(MapScores::lru, 16);
  shape.value_places = 6;
  Scored scored(path(), shape);
  fill(scored);
  MapEviction said = scored.evict({{500, 501}, {1, 2}, {}});
  EXPECT_EQ(said.evicted, 0u);
  EXPECT_EQ(said.result.no_value, 2u);
  ASSERT_NO_FATAL_FAILURE(scored.expect_holds());
  const U64 there = scored.held.begin()->first;
  said = scored.evict({{there, 500}, {3, 4}, {}});  // its value from before stays
  EXPECT_EQ(said.result.no_value, 2u);
  EXPECT_EQ(said.count(), 2u);
  ASSERT_NO_FATAL_FAILURE(scored.expect_holds());
}

// A key whose new value has no place stays with the old one, whoever wants its slot.
TEST_F(HashMapEvict, AKeyThatFindsNoPlaceIsNotEvicted) {
  std::mt19937_64 random(test_seed());
  U64 without = 0;
  for (int round = 0; round < 12; ++round) {
    MapOptions shape = small(MapScores::custom, 16);
    shape.value_places = 7;
    Scored scored(path("region" + std::to_string(round)), shape);
    fill(scored);
    Batch batch;
    for (const auto& [key, pair] : scored.held) {
      if (batch.keys.size() < 5) batch.keys.push_back(key);
    }
    batch.keys.push_back(500 + random() % 100);
    for (std::size_t i = 0; i < batch.keys.size(); ++i) {
      batch.numbers.push_back(i), batch.scores.push_back(i);
    }
    without += scored.evict(batch).result.no_value;
    ASSERT_NO_FATAL_FAILURE(scored.expect_holds());
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(without, 0u);
}

// Of many keys that find no room at once some make room for others; what is `full` in the end has
// no slot free, and no value lacks a place.
TEST_F(HashMapEvict, WhatIsFullHasNoSlotFree) {
  std::mt19937_64 random(test_seed());
  using Wide = HashMap<U64, MapConfig<8>>;
  U64 full = 0;
  const U64 rounds = some_of(40);
  for (U64 round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    MapOptions shape = map_options(24 + random() % 40, 16, kMaxBatch);
    shape.scores = MapScores::lru;
    ScoredMap<Wide> scored(path("region" + std::to_string(round)), shape);
    for (int step = 0; step < 3; ++step) {
      ScoredMap<Wide>::Batch batch;
      for (U32 i = 0; i < kMaxBatch; ++i)
        batch.keys.push_back(random()), batch.numbers.push_back(i);
      ASSERT_EQ(scored.evict(batch).result.no_value, 0u);
      for (U32 i = 0; i < kMaxBatch; ++i) {
        if (scored.status[i] != MapStatus::full) continue;
        ++full;
        for (const U64 slot : scored.slots_of(batch.keys[i])) {
          U64 key = 0;
          ASSERT_EQ(scored.opened.map->export_batch(slot, 1, &key, nullptr), 1u);
        }
      }
      ASSERT_NO_FATAL_FAILURE(scored.expect_holds());
    }
  }
  EXPECT_GT(full, 100 * rounds / 40);
}

// Arguments and results in device memory and in pinned memory.
TEST_F(HashMapEvict, TakesAndGivesFromAnywhere) {
  MapOptions shape = map_options(6, 16, 8);
  shape.scores = MapScores::custom;
  Scored scored(path(), shape);
  fill(scored);
  const DeviceBuffer<U64> keys(2), scores(2), went_keys(2), went_scores(2);
  const DeviceBuffer<U64> values(4);
  PinnedBuffer<U64> went_values(4);
  const DeviceBuffer<MapStatus> status(2);
  Stream& stream = scored.opened.map->stream();
  const std::vector<U64> of = {700, 701}, by = {50, 60};
  copy_async(stream, keys.data(), of.data(), keys.bytes());
  copy_async(stream, scores.data(), by.data(), scores.bytes());
  const auto given = scored.opened.values_of({1, 2});
  copy_async(stream, values.data(), given.data(), values.bytes());
  stream.synchronize();
  const MapEviction said = scored.opened.map->insert_and_evict(
      keys.data(), values.data(), scores.data(), 2, went_keys.data(), went_values.data(),
      went_scores.data(), status.data());
  ASSERT_EQ(said.evicted, 2u);
  std::vector<U64> gone(2), gone_scores(2, 9);
  copy_async(stream, gone.data(), went_keys.data(), went_keys.bytes());
  copy_async(stream, gone_scores.data(), went_scores.data(), went_scores.bytes());
  stream.synchronize();
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(read_value(&went_values[2 * i], 16), scored.held.at(gone[i]).number);
    EXPECT_EQ(gone_scores[i], 0u);
    scored.held.erase(gone[i]);
    scored.held[of[i]] = {U64(i) + 1, by[i]};
  }
  ASSERT_NO_FATAL_FAILURE(scored.expect_holds());
}

TEST_F(HashMapEvict, RefusesWhatCannotBeAndChangesNothing) {
  Scored scored(path(), small(MapScores::custom));
  fill(scored);
  Map& map = *scored.opened.map;
  std::vector<U64> keys = {900, 901}, values = {1, 2}, scores = {3, 4}, out(2), went(2);
  const auto refused = [&](const std::vector<std::string>& words, auto&& call) {
    EXPECT_EQ(error_of(call, words), Errc::invalid_argument);
    if (!scored.refs_out) {
      ASSERT_NO_FATAL_FAILURE(scored.expect_holds());
    }
  };
  const auto evict = [&](const U64* by) {
    return [&, by] {
      map.insert_and_evict(keys.data(), values.data(), by, 2, went.data(), out.data(), nullptr);
    };
  };
  refused({"without scores", "custom"}, evict(nullptr));
  refused({"no place", "room"}, [&] {
    map.insert_and_evict(keys.data(), values.data(), scores.data(), 2, nullptr, out.data(),
                         nullptr);
  });
  refused({"no place", "room"}, [&] {
    map.insert_and_evict(keys.data(), values.data(), scores.data(), 2, went.data(), nullptr,
                         nullptr);
  });
  refused({"`values`", "its own"}, [&] {
    map.insert_and_evict(keys.data(), values.data(), scores.data(), 2, went.data(), values.data(),
                         nullptr);
  });
  refused({"`values`", "its own"}, [&] {
    map.insert_and_evict(keys.data(), values.data(), scores.data(), 2, went.data(),
                         reinterpret_cast<std::byte*>(values.data()) + 1, nullptr);
  });
  refused({"without keys"}, [&] {
    map.insert_and_evict(nullptr, values.data(), scores.data(), 2, went.data(), out.data(),
                         nullptr);
  });
  refused({"17 operations", "split"}, [&] {
    map.insert_and_evict(keys.data(), values.data(), scores.data(), 17, went.data(), out.data(),
                         nullptr);
  });
  keys[1] = EmptyKey<U64>{}.value;
  refused({"1 operation(s)", "EmptyKey"}, evict(scores.data()));
  keys[1] = 901, values[0] = EmptyValue{}.bits;
  refused({"1 operation(s)", "EmptyValue"}, evict(scores.data()));
  values[0] = 1;
  refused({"no place for scores"}, [&] {
    std::vector<std::uint8_t> found(2);
    map.scores(keys.data(), nullptr, found.data(), 2);
  });
  (void)map.ref();
  scored.refs_out = true;
  refused({"insert_and_evict()", "a ref is out"}, evict(scores.data()));
  map.quiesce();
  scored.refs_out = false;
  map.grow();
  refused({"while the table grows", "migrate()"}, evict(scores.data()));
  map.reserve(1);
  const MapEviction none =
      map.insert_and_evict(nullptr, nullptr, nullptr, 0, nullptr, nullptr, nullptr);
  EXPECT_EQ(none.count(), 0u);
  scored.reopen({0, 0, {}, {}, MapScores::lru});
  Map& again = *scored.opened.map;
  refused({"with scores", "lru"}, [&] {
    again.insert_and_evict(keys.data(), values.data(), scores.data(), 2, went.data(), out.data(),
                           nullptr);
  });
  scored.reopen({});
  Map& plain = *scored.opened.map;
  refused({"opened without", "MapOpenOptions"}, [&] {
    plain.insert_and_evict(keys.data(), values.data(), nullptr, 2, went.data(), out.data(),
                           nullptr);
  });
  const auto opens = [&] {
    MapOpenOptions how;
    how.scores = static_cast<MapScores>(9);
    (void)Map::open(*scored.opened.region, "map", how);
  };
  EXPECT_EQ(error_of(opens, {"scores 9", "lfu"}), Errc::invalid_argument);
}

}  // namespace
}  // namespace holdfast::test
