// Operations of a hash map beside those that set and erase: sums, initialisers, export by a
// predicate, and lookups that nobody waits for.
#include "hash_map/hash_map_operations_test.hpp"

#include <algorithm>
#include <map>

#include "hash_map/map_test.hpp"
#include "support/killed_child.hpp"

namespace holdfast::test {
namespace {

using U64 = std::uint64_t;
using U32 = std::uint32_t;
using Opened = MapOpened<OperationsMap>;

class HashMapOperations : public Scratch {
 protected:
  static MapOptions shape_of(std::uint32_t value_bytes, U64 cached_rows = 0) {
    MapOptions options = map_options(200, value_bytes, 64);
    options.cache.bytes = cached_rows * ((value_bytes + 15) / 16 * 16);
    return options;
  }
};

// ---- Sums --------------------------------------------------------------------------------------

// Elements are small whole numbers, so that sums of any kind are exact in any order.
template <class T>
class Sums {
 public:
  Sums(Opened& opened, U64 seed) : opened_(opened), random_(seed) {}

  void put() {
    const std::vector<U64> keys = draw();
    const std::vector<T> values = elements(keys.size());
    opened_.map->insert_or_assign(keys.data(), values.data(), keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) held_[keys[i]] = part(values, i);
  }
  void erase() {
    const std::vector<U64> keys = draw();
    opened_.map->erase(keys.data(), keys.size());
    for (const U64 key : keys) held_.erase(key);
  }
  void accumulate() {
    const std::vector<U64> keys = draw();
    const std::vector<T> deltas = elements(keys.size());
    std::vector<MapStatus> status(keys.size());
    const MapResult result =
        opened_.map->accumulate(keys.data(), deltas.data(), keys.size(), status.data());
    U64 assigned = 0, absent = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const bool last = std::find(keys.begin() + static_cast<std::ptrdiff_t>(i) + 1, keys.end(),
                                  keys[i]) == keys.end();
      const bool there = held_.count(keys[i]) != 0;
      const MapStatus expected = !last   ? MapStatus::superseded
                                 : there ? MapStatus::assigned
                                         : MapStatus::absent;
      ASSERT_EQ(status[i], expected) << "operation " << i << " of key " << keys[i];
      assigned += expected == MapStatus::assigned;
      absent += expected == MapStatus::absent;
      if (!there) continue;
      std::vector<T>& value = held_[keys[i]];
      for (std::size_t at = 0; at < value.size(); ++at) {
        value[at] = static_cast<T>(value[at] + deltas[i * value.size() + at]);
      }
    }
    ASSERT_EQ(result.assigned, assigned);
    ASSERT_EQ(result.absent, absent);
    ASSERT_EQ(result.superseded, keys.size() - assigned - absent);
    ASSERT_EQ(result.not_done(), 0u);
  }
  void expect_held() {
    std::map<U64, std::vector<T>> found;
    opened_.map->for_each([&](U64 key, const void* value) {
      const auto* const at = static_cast<const T*>(value);
      found[key] = std::vector<T>(at, at + each());
    });
    ASSERT_EQ(found, held_);
    ASSERT_EQ(opened_.map->verify(), "");
  }

 private:
  std::size_t each() const { return opened_.map->value_bytes() / sizeof(T); }
  std::vector<U64> draw() {
    std::vector<U64> keys(1 + random_() % 64);
    for (U64& key : keys) key = random_() % 40;
    return keys;
  }
  std::vector<T> elements(std::size_t values) {
    std::vector<T> result(values * each());
    for (T& element : result) element = static_cast<T>(random_() % 1000) - static_cast<T>(300);
    return result;
  }
  std::vector<T> part(const std::vector<T>& values, std::size_t i) const {
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(i * each());
    return {at, at + static_cast<std::ptrdiff_t>(each())};
  }

  Opened& opened_;
  std::mt19937_64 random_;
  std::map<U64, std::vector<T>> held_;
};

template <class T>
class HashMapSums : public HashMapOperations {};
using Elements = ::testing::Types<float, double, std::int32_t, std::uint64_t>;
TYPED_TEST_SUITE(HashMapSums, Elements);

// In slots and in places, cached and not, alone and beside refs.
TYPED_TEST(HashMapSums, AddWhatTheBatchHasToWhatIsThere) {
  std::mt19937_64 random(test_seed());
  for (const std::uint32_t bytes : {4u, 8u, 16u, 136u}) {
    if (bytes % sizeof(TypeParam) != 0) continue;
    SCOPED_TRACE(bytes);
    MapOptions shape = this->shape_of(bytes, bytes > 8 && random() % 2 == 0 ? 20 : 0);
    shape.cache.load_every = 3;
    if (bytes > 8) shape.value_places = 200 + 12 * 64;
    Opened opened = Opened::create(this->path(std::to_string(bytes)), shape);
    Sums<TypeParam> sums(opened, random());
    for (int step = 0; step < 25; ++step) {
      opened.map->set_order(random() % 2 == 0 ? MapOptions::Order::ordered
                                              : MapOptions::Order::unordered);
      const bool by_ref = random() % 3 == 0;
      if (by_ref) (void)opened.map->ref();
      if (random() % 3 == 0) sums.put();
      if (random() % 4 == 0) sums.erase();
      ASSERT_NO_FATAL_FAILURE(sums.accumulate());
      ASSERT_NO_FATAL_FAILURE(sums.expect_held());
      if (by_ref) opened.map->quiesce();
    }
  }
}

// Deltas need not be values: of a key that is there, of one that is not, and of one that is there
// twice, alone as beside refs.
TEST_F(HashMapOperations, TakesDeltasThatAreNoValuesWhereTheirSumsAre) {
  const U64 none = EmptyValue{}.bits;
  const U64 values[] = {10, 20};
  const U64 keys[] = {1, 3, 2, 2}, deltas[] = {none, none ^ 1, none, none};
  std::vector<MapStatus> expected = {MapStatus::assigned, MapStatus::absent, MapStatus::superseded,
                                     MapStatus::assigned};
  for (const bool by_ref : {false, true}) {
    SCOPED_TRACE(by_ref);
    Opened opened = Opened::create(path(by_ref ? "refs" : "alone"), shape_of(8));
    opened.map->insert(keys + 0, values, 1);
    opened.map->insert(keys + 2, values + 1, 1);
    if (by_ref) (void)opened.map->ref();
    std::vector<MapStatus> status(4);
    opened.map->accumulate(keys, deltas, 4, status.data());
    EXPECT_EQ(status, expected);
    if (by_ref) opened.map->quiesce();
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds({{1, 10 + none}, {2, 20 + 2 * none}}));
  }
}

TEST_F(HashMapOperations, RefusesSumsThatCannotBe) {
  Opened opened = Opened::create(path(), shape_of(8));
  OperationsMap& map = *opened.map;
  const U64 keys[] = {1, 2}, values[] = {10, EmptyValue{}.bits - 5}, deltas[] = {1, 5};
  map.insert(keys, values, 2);
  EXPECT_EQ(error_of([&] { map.accumulate(keys, deltas, 2); }, {"1 operation(s)", "EmptyValue"}),
            Errc::invalid_argument);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({{1, values[0]}, {2, values[1]}}));
  (void)map.ref();
  MapStatus status[2];
  EXPECT_EQ(map.accumulate(keys, deltas, 2, status).no_value, 1u);
  EXPECT_EQ(status[0], MapStatus::assigned);
  EXPECT_EQ(status[1], MapStatus::no_value);
  map.quiesce();
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({{1, 11}, {2, values[1]}}));
  const U64 bad[] = {1, EmptyKey<U64>{}.value};
  EXPECT_EQ(error_of([&] { map.accumulate(bad, deltas, 2); }, {"EmptyKey"}),
            Errc::invalid_argument);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({{1, 11}, {2, values[1]}}));
  EXPECT_EQ(
      error_of([&] { map.accumulate(keys, static_cast<const U64*>(nullptr), 1); }, {"values"}),
      Errc::invalid_argument);
  Opened narrow = Opened::create(path("narrow"), shape_of(12));
  EXPECT_EQ(error_of([&] { narrow.map->accumulate(keys, deltas, 1); }, {"8 bytes", "12"}),
            Errc::invalid_argument);
}

TEST(HashMapOperationsChild, DISABLED_RunsUntilKilled) {
  const Opened opened = Opened::open(from_environment("HOLDFAST_TEST_PATH"));
  // Each key twice.
  std::vector<U64> keys(60);
  for (U64 i = 0; i < keys.size(); ++i) keys[i] = i % 30;
  const std::vector<U32> deltas(keys.size() * 8, 1);
  for (U64 n = std::stoull(from_environment("HOLDFAST_TEST_BATCH"));; ++n) {
    opened.map->accumulate(keys.data(), deltas.data(), keys.size());
    report(n + 1);
  }
}

TEST_F(HashMapOperations, SumsAreWholeOrNotThereBehindAKill) {
  std::mt19937_64 random(test_seed());
  {
    Opened opened = Opened::create(path(), shape_of(32));
    std::vector<U64> keys(30);
    for (U64 i = 0; i < keys.size(); ++i) keys[i] = i;
    opened.map->insert(keys.data(), std::vector<U32>(keys.size() * 8).data(), keys.size());
    opened.close();
  }
  U64 done = 0;  // batches, by key at least
  std::vector<U32> before(30, 0);
  for (KillRounds rounds(5); rounds.another(done > 5);) {
    const auto told =
        told_until_killed<U64>("HashMapOperationsChild.DISABLED_RunsUntilKilled", arenas(),
                               {{"HOLDFAST_TEST_PATH", path()}, {"HOLDFAST_TEST_BATCH", "0"}},
                               random, rounds.most_microseconds());
    ASSERT_FALSE(told.empty());
    const U64 now = told.back();
    Opened opened = Opened::open(path());
    opened.map->for_each([&](U64 key, const void* value) {
      const auto* const words = static_cast<const U32*>(value);
      for (int i = 1; i < 8; ++i) EXPECT_EQ(words[i], words[0]);
      const U32 added = words[0] - before[key];
      EXPECT_TRUE(added == 2 * now || added == 2 * now + 2) << "key " << key << ": " << added;
      before[key] = words[0];
    });
    EXPECT_EQ(opened.map->size(), 30u);
    EXPECT_EQ(opened.map->verify(), "");
    done += now;
    opened.abandon();
  }
}

// ---- Initialisers ------------------------------------------------------------------------------

TEST_F(HashMapOperations, InitialisersMakeTheValuesOfNewKeys) {
  std::mt19937_64 random(test_seed());
  for (const std::uint32_t bytes : {4u, 8u, 20u, 128u}) {
    Opened opened =
        Opened::create(path(std::to_string(bytes)), shape_of(bytes, bytes > 8 ? 16 : 0));
    std::map<U64, U32> seed_of;  // by key: of the batch that inserted it
    for (U32 seed = 1; seed < 8; ++seed) {
      std::vector<U64> keys(1 + random() % 64);
      for (U64& key : keys) key = random() % 80;
      std::vector<U32> out(keys.size() * bytes / 4, 0x5a5a5a5a);
      std::vector<MapStatus> status(keys.size());
      const MapResult result = find_or_initialise(*opened.map, keys.data(), seed, out.data(),
                                                  keys.size(), status.data());
      const std::size_t before = seed_of.size();
      for (std::size_t i = keys.size(); i-- > 0;) {
        const bool is_new = seed_of.emplace(keys[i], seed).second;
        if (status[i] == MapStatus::superseded) {
          ASSERT_FALSE(is_new);
          continue;
        }
        ASSERT_EQ(status[i], is_new ? MapStatus::inserted : MapStatus::kept);
        for (U32 word = 0; word < bytes / 4; ++word) {
          ASSERT_EQ(out[i * bytes / 4 + word], initial_word(keys[i], seed_of[keys[i]], word));
        }
      }
      ASSERT_EQ(result.inserted, seed_of.size() - before);
    }
    std::size_t pairs = 0;
    opened.map->for_each([&](U64 key, const void* value) {
      ++pairs;
      EXPECT_EQ(*static_cast<const U32*>(value), initial_word(key, seed_of.at(key), 0));
    });
    EXPECT_EQ(pairs, seed_of.size());
    EXPECT_EQ(opened.map->verify(), "");
    const U64 bad = EmptyKey<U64>{}.value;
    U32 out[32];
    EXPECT_EQ(
        error_of([&] { find_or_initialise(*opened.map, &bad, 1, out, 1, nullptr); }, {"EmptyKey"}),
        Errc::invalid_argument);
  }
}

// ---- Export ------------------------------------------------------------------------------------

TEST_F(HashMapOperations, ExportsPagesOfWhatThePredicateHolds) {
  std::mt19937_64 random(test_seed());
  for (const std::uint32_t bytes : {4u, 8u, 40u}) {
    Opened opened = Opened::create(path(std::to_string(bytes)), shape_of(bytes));
    Opened::Oracle oracle;
    std::vector<U64> keys, numbers;
    for (U64 i = 0; i < 60; ++i) {
      keys.push_back(random() >> 8);
      numbers.push_back(random() % 1000);
      oracle[keys.back()] = numbers.back();
    }
    opened.map->insert(keys.data(), opened.values_of(numbers).data(), keys.size());
    const U64 remainder = random() % 3;
    const U32 least = static_cast<U32>(random() % 700);
    Opened::Oracle expected, found;
    for (const auto& [key, number] : oracle) {
      if (key % 3 == remainder && number >= least) expected[key] = number;
    }
    const U64 slots = opened.map->capacity();
    U64 with_keys_alone = 0;
    for (U64 first = 0; first < slots;) {
      const U64 page = 1 + random() % 50;
      std::vector<U64> there(page + 1, 77), again(page + 1);
      std::vector<U32> values(page * bytes / 4);
      const U64 pairs =
          export_some(*opened.map, first, page, remainder, least, there.data(), values.data());
      ASSERT_LE(pairs, page);
      ASSERT_EQ(there[pairs], 77u) << "no more than it says";
      for (U64 i = 0; i < pairs; ++i) {
        EXPECT_TRUE(
            found.emplace(there[i], read_value(values.data() + i * bytes / 4, bytes)).second);
      }
      with_keys_alone +=
          export_some(*opened.map, first, page, remainder, least, again.data(), nullptr);
      first += page;
    }
    EXPECT_EQ(found, expected);
    EXPECT_EQ(with_keys_alone, expected.size());
  }
}

// ---- Lookups that nobody waits for -------------------------------------------------------------

TEST_F(HashMapOperations, LookupsAreInTheOrderOfTheCallersStream) {
  std::mt19937_64 random(test_seed());
  for (const U64 rows : {0u, 30u}) {
    MapOptions shape = shape_of(48, rows);
    shape.cache.load_every = 2;
    Opened opened = Opened::create(path(std::to_string(rows)), shape);
    Opened::Oracle oracle;
    Stream by;
    PinnedBuffer<U64> keys(64);
    DeviceBuffer<U64> keys_there(64);
    PinnedBuffer<U32> values(64 * 12);
    PinnedBuffer<std::uint8_t> found(64), contained(64);
    for (int step = 0; step < 20; ++step) {
      opened.map->set_order(random() % 2 == 0 ? MapOptions::Order::ordered
                                              : MapOptions::Order::unordered);
      std::vector<U64> put(8), numbers(8);
      for (std::size_t i = 0; i < put.size(); ++i) {
        put[i] = random() % 50;
        oracle[put[i]] = numbers[i] = random();
      }
      opened.map->insert_or_assign(put.data(), opened.values_of(numbers).data(), put.size());
      // The keys come by the caller's stream, and what is found goes by it.
      for (std::size_t i = 0; i < 64; ++i) keys[i] = random() % 100;
      fill_async(by, keys_there.data(), 0xff, keys_there.bytes());
      copy_async(by, keys_there.data(), keys.data(), keys_there.bytes());
      opened.map->find_async(by, keys_there.data(), values.data(), found.data(), 64);
      opened.map->contains_async(by, keys_there.data(), contained.data(), 64);
      std::vector<U32> copy(64 * 12);
      copy_async(by, copy.data(), values.data(), copy.size() * 4);
      if (rows != 0 && step >= 10) opened.map->await_cache();  // before, it serves when it does
      const bool beside = random() % 2 == 0;  // a batch behind it does not overtake it
      std::unordered_map<U64, U64> seen = oracle;
      if (beside) {
        opened.map->erase(put.data(), put.size());
        for (const U64 key : put) oracle.erase(key);
      }
      by.synchronize();
      for (std::size_t i = 0; i < 64; ++i) {
        ASSERT_EQ(found[i], seen.count(keys[i]));
        ASSERT_EQ(contained[i], found[i]);
        if (found[i] == 0) continue;
        ASSERT_EQ(read_value(copy.data() + i * 12, 48), seen.at(keys[i]));
      }
      ASSERT_EQ(opened.map->verify(), "");
    }
    EXPECT_EQ(opened.map->stats().cache.hits != 0, rows != 0);
    std::vector<U64> elsewhere(1);
    EXPECT_EQ(
        error_of(
            [&] { opened.map->find_async(by, elsewhere.data(), values.data(), found.data(), 1); },
            {"keys", "pinned"}),
        Errc::invalid_argument);
    EXPECT_EQ(error_of([&] { opened.map->find_async(by, keys.data(), values.data(), nullptr, 1); },
                       {"found"}),
              Errc::invalid_argument);
  }
}

}  // namespace
}  // namespace holdfast::test
