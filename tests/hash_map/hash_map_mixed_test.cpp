// Batches whose operations have a kind each, against one that makes them one after the other.
#include <algorithm>

#include "hash_map/hash_map_mixed_test.hpp"
#include "support/killed_child.hpp"

namespace holdfast::test {
namespace {

// ---- Random programs ---------------------------------------------------------------------------

template <class Of>
class HashMapMixedOf : public Scratch {};
TYPED_TEST_SUITE(HashMapMixedOf, MixedKinds);

// Beside refs that are out, within growths, in any order, reopened; and what is full.
TYPED_TEST(HashMapMixedOf, RandomProgramsDoAsIfOneAfterTheOther) {
  using Opened = MapOpened<typename TypeParam::Map>;
  using Key = typename Opened::Key;
  std::mt19937_64 random(test_seed());
  U64 full = 0;
  for (int program = 0; program < 3; ++program) {
    const std::string path = this->path("region" + std::to_string(program));
    const U64 slots = 20 + random() % 150;
    MapOptions shape = TypeParam::shape(slots);
    if (shape.value_bytes > 8) shape.value_places = slots + 3 * 96;  // beside refs none comes free
    if (shape.cache.bytes != 0) shape.changes = 300;
    Opened opened = Opened::create(path, shape);
    typename Opened::Oracle held;
    const U64 keys = 8 + random() % 120;
    const U64 mask = shape.value_bytes == 4 ? 0xffffffff : ~U64{0};
    for (int step = 0; step < 24; ++step) {
      SCOPED_TRACE(detail::concat("program ", program, " step ", step));
      opened.map->set_order(random() % 2 == 0 ? MapOptions::Order::ordered
                                              : MapOptions::Order::unordered);
      if (random() % 12 == 0 && opened.map->capacity() < 800) opened.map->grow();
      opened.map->migrate(random() % 3);
      const bool by_ref = random() % 3 == 0;
      if (by_ref) (void)opened.map->ref();
      for (U64 batches = 1 + random() % 2; batches > 0; --batches) {
        full += apply(opened, draw<Key>(random, 96, keys, mask), held, random() % 4 != 0);
      }
      if (by_ref) opened.map->quiesce();
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(held));
      if (this->HasFailure()) return;
      if (random() % 6 != 0) continue;
      opened.abandon();
      opened = Opened::open(path, {0, 0, shape.directory, shape.cache});
      EXPECT_FALSE(opened.map->recovery().needed());
    }
  }
  std::printf("operations that did not fit: %llu\n", static_cast<unsigned long long>(full));
}

// ---- What is promised --------------------------------------------------------------------------

class HashMapMixed : public Scratch {
 protected:
  using Map = HashMap<U64, MapConfig<8>>;
  using Opened = MapOpened<Map>;
  using Batch = Mixed<U64>;
  using Statuses = std::vector<MapStatus>;

  static Statuses apply(Opened& opened, const Batch& batch, std::vector<U64>* out = nullptr) {
    Statuses status(batch.size());
    std::vector<U32> rows(batch.size() * opened.map->value_bytes() / 4);
    opened.map->apply(batch.kinds.data(), batch.keys.data(), opened.values_of(batch.numbers).data(),
                      rows.data(), batch.size(), status.data());
    for (std::size_t i = 0; out != nullptr && i < batch.size(); ++i) {
      out->push_back(rows[i * opened.map->value_bytes() / 4]);
    }
    return status;
  }
};

TEST_F(HashMapMixed, LookupsSeeWhatCameBeforeThem) {
  Opened opened = Opened::create(path(), map_options(100, 16, 32));
  Batch batch;
  batch.add(MapOp::find, 1);
  batch.add(MapOp::insert_or_assign, 1, 10);
  batch.add(MapOp::find, 1);
  batch.add(MapOp::insert_or_assign, 1, 20);
  batch.add(MapOp::find_or_insert, 1, 30);
  batch.add(MapOp::erase, 1);
  batch.add(MapOp::find, 1);
  batch.add(MapOp::insert, 1, 40);
  batch.add(MapOp::assign, 2, 50);
  std::vector<U64> out;
  using S = MapStatus;
  EXPECT_EQ(apply(opened, batch, &out),
            (Statuses{S::absent, S::inserted, S::kept, S::assigned, S::kept, S::erased, S::absent,
                      S::inserted, S::absent}));
  EXPECT_EQ(out, (std::vector<U64>{0, 0, 10, 0, 20, 0, 0, 0, 0}));
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({{1, 40}}));
}

// In a batch that is ordered, those that certainly get what was there before get it in front of all
// changes. Of a key with few, and with many insertions in front of its first lookup.
TEST_F(HashMapMixed, LookupsInOrderOfPlacesSeeWhatCameBeforeThem) {
  Opened opened = Opened::create(path(), map_options(100, 16, 4096));
  opened.map->set_order(MapOptions::Order::ordered);
  Opened::Oracle held;
  Batch first, batch;
  for (U64 key = 1; key <= 60; ++key) first.add(MapOp::insert, key, 100 + key);
  holdfast::test::apply(opened, first, held);
  for (U64 key = 1; key <= 70; ++key) {
    for (U64 i = 0; i < key; ++i) batch.add(MapOp::insert, key, 1000 + i);
    batch.add(key % 2 == 0 ? MapOp::find : MapOp::find_or_insert, key, 2000 + key);
    batch.add(MapOp::find, key);
    batch.add(MapOp::assign, key, 3000 + key);
    batch.add(MapOp::find, key);
    if (key % 3 == 0) batch.add(MapOp::erase, key);
    batch.add(MapOp::find, key);
  }
  holdfast::test::apply(opened, batch, held);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(held));
}

// What a batch does not leave takes no room; where there is none, no operation of the key sets a
// value.
TEST_F(HashMapMixed, WhatFindsNoRoomSetsNothing) {
  using Small = HashMap<U64, MapConfig<4>>;
  auto opened = MapOpened<Small>::create(path(), map_options(12, 16, 64));
  const std::vector<U64> keys = numbers(100, 64);
  std::vector<MapStatus> status(64);
  opened.map->insert(keys.data(), opened.values_of(keys).data(), 64, status.data());
  const auto at = std::find(status.begin(), status.end(), MapStatus::full);
  ASSERT_NE(at, status.end());
  const U64 homeless = keys[static_cast<std::size_t>(at - status.begin())];
  auto held = opened.contents();
  Mixed<U64> batch;
  for (const MapOp kind : {MapOp::insert, MapOp::assign, MapOp::find, MapOp::erase,
                           MapOp::find_or_insert, MapOp::insert_or_assign}) {
    batch.add(kind, homeless, 7);
  }
  EXPECT_EQ(holdfast::test::apply(opened, batch, held), 3u);
  batch.add(MapOp::erase, homeless);
  EXPECT_EQ(holdfast::test::apply(opened, batch, held), 0u);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(held));
}

TEST_F(HashMapMixed, WithoutAPlaceForAValueOnlyErasuresAreMade) {
  MapOptions shape = map_options(96, 16, 16);
  shape.value_places = 2;
  Opened opened = Opened::create(path(), shape);
  Batch both, batch;
  both.add(MapOp::insert, 1, 10), both.add(MapOp::insert, 2, 20);
  apply(opened, both);
  batch.add(MapOp::find, 1);
  batch.add(MapOp::assign, 1, 11);
  batch.add(MapOp::find, 1);
  batch.add(MapOp::erase, 2);
  batch.add(MapOp::insert, 2, 21);
  batch.add(MapOp::insert, 3, 30);
  batch.add(MapOp::find_or_insert, 4, 40);  // and is gone again
  batch.add(MapOp::erase, 4);
  std::vector<U64> out;
  using S = MapStatus;
  EXPECT_EQ(apply(opened, batch, &out),
            (Statuses{S::kept, S::no_value, S::kept, S::erased, S::no_value, S::no_value,
                      S::inserted, S::erased}));
  EXPECT_EQ(out, (std::vector<U64>{10, 0, 10, 0, 0, 0, 40, 0}));
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({{1, 10}}));
  EXPECT_EQ(opened.map->stats().free_places, 1u);
  EXPECT_EQ(apply(opened, both), (Statuses{S::kept, S::inserted}));
}

// A lookup of a value that is in the cache is an access, and so is a change; both see what is
// there.
TEST_F(HashMapMixed, ServesAndKeepsTheCache) {
  MapOptions shape = map_options(100, 64, 32);
  shape.cache = {2 * 64, MapCache::Policy::lru};
  Opened opened = Opened::create(path(), shape);
  Batch fill, looks;
  for (U64 key = 0; key < 20; ++key) fill.add(MapOp::insert, key, key + 100);
  apply(opened, fill);
  looks.add(MapOp::find, 7);
  looks.add(MapOp::insert_or_assign, 8, 1);
  looks.add(MapOp::insert_or_assign, 8, 2);
  apply(opened, looks);
  opened.map->load_cache();
  opened.map->await_cache();
  const std::vector<U64> keys = {7, 8, 9};
  ASSERT_NO_FATAL_FAILURE(opened.expect_found(keys, {{7, 107}, {8, 2}, {9, 109}}));
  EXPECT_EQ(opened.map->stats().cache.hits, 2u);
  Batch changes;
  changes.add(MapOp::find, 7), changes.add(MapOp::assign, 7, 3), changes.add(MapOp::find, 7);
  std::vector<U64> out;
  apply(opened, changes, &out);
  EXPECT_EQ(out, (std::vector<U64>{107, 0, 3}));
  EXPECT_EQ(opened.map->verify(), "");
}

// Another map that takes the changes has the same pairs, erased ones included.
TEST_F(HashMapMixed, IsInTheRecordOfChanges) {
  std::mt19937_64 random(test_seed());
  MapOptions shape = map_options(300, 16, 96);
  shape.changes = 400;
  Opened source = Opened::create(path("source"), shape);
  Opened follower = Opened::create(path("follower"), shape);
  follower.map->follow(source.map->version());
  Opened::Oracle held;
  for (int step = 0; step < 12; ++step) {
    EXPECT_EQ(holdfast::test::apply(source, draw<U64>(random, 96, 60, ~U64{0}), held), 0u);
    while (follower.map->followed() != source.map->version()) {
      std::vector<U64> keys(50), erased(50), values(100);
      const MapChanges changes = source.map->export_changes(
          follower.map->followed(), 50, keys.data(), values.data(), erased.data());
      follower.map->apply_changes(changes, keys.data(), values.data(), erased.data());
    }
    ASSERT_NO_FATAL_FAILURE(follower.expect_holds(held));
  }
}

// Arguments in device memory and in pinned memory.
TEST_F(HashMapMixed, TakesOperationsFromAnywhere) {
  Opened opened = Opened::create(path(), map_options(200, 32, 64));
  const DeviceBuffer<MapOp> kinds(64);
  const DeviceBuffer<U64> keys(64);
  const DeviceBuffer<U32> values(64 * 8);
  PinnedBuffer<U32> out(64 * 8);
  const DeviceBuffer<MapStatus> status(64);
  std::vector<MapOp> kinds_given;
  std::vector<U64> given;
  for (U64 i = 0; i < 64; ++i) {
    kinds_given.push_back(i % 2 == 0 ? MapOp::insert : MapOp::find);
    given.push_back(i / 2);
  }
  Stream& stream = opened.map->stream();
  copy_async(stream, kinds.data(), kinds_given.data(), kinds.bytes());
  copy_async(stream, keys.data(), given.data(), keys.bytes());
  const auto values_given = opened.values_of(numbers(5, 64));
  copy_async(stream, values.data(), values_given.data(), values.bytes());
  stream.synchronize();
  const MapResult result =
      opened.map->apply(kinds.data(), keys.data(), values.data(), out.data(), 64, status.data());
  EXPECT_EQ(result.inserted, 32u);
  EXPECT_EQ(result.kept, 32u);
  for (U64 i = 1; i < 64; i += 2) EXPECT_EQ(read_value(&out[i * 8], 32), 5 + i - 1);
}

TEST_F(HashMapMixed, RefusesWhatCannotBeAndChangesNothing) {
  MapOptions shape = map_options(100, 8, 4);
  shape.changes = 100;
  Opened opened = Opened::create(path(), shape);
  const U64 bad_value = EmptyValue{}.bits;
  const std::vector<U64> keys = {1, 2, 3}, values = {bad_value, 20, bad_value ^ 1};
  std::vector<MapOp> kinds = {MapOp::erase, MapOp::insert,
                              MapOp::find};  // its rows may be anything
  EXPECT_EQ(opened.map->apply(kinds.data(), keys.data(), values.data(), nullptr, 3).inserted, 1u);
  const MapVersion before = opened.map->version();
  std::vector<U64> out(4);
  const auto refused = [&](const std::vector<std::string>& words, const MapOp* of,
                           const U64* of_keys, const U64* with, std::size_t count = 3) {
    EXPECT_EQ(error_of([&] { opened.map->apply(of, of_keys, with, out.data(), count); }, words),
              Errc::invalid_argument);
    EXPECT_EQ(opened.map->version(), before);
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds({{2, 20}}));
  };
  kinds = {MapOp::erase, MapOp::erase, MapOp::insert};
  refused({"1 operation(s)", "EmptyValue"}, kinds.data(), keys.data(), values.data());
  refused({"1 operation(s)", "no values"}, kinds.data(), keys.data(), nullptr);
  refused({"an `out` that meets `values`"}, kinds.data(), keys.data(), out.data());
  refused({"without operations or keys"}, nullptr, keys.data(), values.data());
  refused({"without operations or keys"}, kinds.data(), nullptr, values.data());
  refused({"5 operations", "split"}, kinds.data(), keys.data(), values.data(), 5);
  const std::vector<U64> empty = {2, EmptyKey<U64>{}.value, 2};
  kinds = {MapOp::erase, MapOp::find, MapOp::erase};
  refused({"1 operation(s)", "EmptyKey"}, kinds.data(), empty.data(), nullptr);
  for (const int none : {0, 7, 255}) {
    kinds[1] = static_cast<MapOp>(none);
    refused({"1 operation(s)", "MapOp"}, kinds.data(), keys.data(), values.data());
  }
  EXPECT_EQ(opened.map->apply(nullptr, nullptr, nullptr, nullptr, 0).kept, 0u);
}

// ---- Kills -------------------------------------------------------------------------------------

constexpr U64 kKeys = 60;

// Batch `n`, on few keys; values name it.
Mixed<U64> numbered(U64 n, std::size_t count = 50) {
  std::mt19937_64 random(n);
  Mixed<U64> batch;
  for (std::size_t i = 0; i < count; ++i) {
    batch.add(static_cast<MapOp>(1 + random() % 6), test_key<U64>(random() % kKeys),
              ((n + 1) & 0xffffff) << 8 | i);
  }
  return batch;
}

class HashMapMixedKills : public HashMapMixed {
 protected:
  static MapOptions shape() {
    MapOptions options = map_options(500, 32, 50);
    options.value_places = 500 + 4 * 50;
    return options;
  }
  // Each key has what it had behind batch `done`, or what all operations of the next one leave.
  static void expect_follows(const Opened& opened, const Opened::Oracle& before,
                             const Mixed<U64>& batch) {
    Opened::Oracle after = before;
    make_all(batch, after, nullptr);
    const auto now = opened.contents();
    const auto value_in = [](const Opened::Oracle& held, U64 key) {
      const auto at = held.find(key);
      return at == held.end() ? Value() : Value(at->second);
    };
    for (U64 number = 0; number < kKeys; ++number) {
      const U64 key = test_key<U64>(number);
      const Value value = value_in(now, key);
      ASSERT_TRUE(value == value_in(before, key) || value == value_in(after, key))
          << "key " << key << " is " << (value ? *value : 0);
    }
    ASSERT_EQ(opened.map->size(), now.size());
    ASSERT_EQ(opened.map->verify(), "");
    ASSERT_EQ(opened.map->stats().free_places, opened.map->stats().value_places - now.size());
  }
};

void apply_numbered(const MapOpened<HashMap<U64, MapConfig<8>>>& opened, const Mixed<U64>& batch) {
  const auto values = opened.values_of(batch.numbers);
  std::vector<U32> out(values.size());
  const MapResult result = opened.map->apply(batch.kinds.data(), batch.keys.data(), values.data(),
                                             out.data(), batch.size());
  if (result.not_done() != 0) std::abort();
}

TEST(HashMapMixedChild, DISABLED_RunsUntilKilled) {
  const auto opened =
      MapOpened<HashMap<U64, MapConfig<8>>>::open(from_environment("HOLDFAST_TEST_PATH"));
  const bool by_ref = from_environment("HOLDFAST_TEST_BESIDE") == "1";
  for (U64 n = std::stoull(from_environment("HOLDFAST_TEST_BATCH"));; ++n) {
    if (by_ref && n % 3 == 0) (void)opened.map->ref();
    apply_numbered(opened, numbered(n));
    report(n + 1);
    if (by_ref && n % 3 == 2) opened.map->quiesce();
  }
}

TEST_F(HashMapMixedKills, KilledAtAnyMomentEachKeyIsAsBeforeItsOperationsOrBehindAll) {
  std::mt19937_64 random(test_seed());
  Opened::create(path(), shape()).close();
  Opened::Oracle held;
  U64 next = 0;
  for (KillRounds rounds(12); rounds.another(next > 24);) {
    const auto done =
        told_until_killed<U64>("HashMapMixedChild.DISABLED_RunsUntilKilled", arenas(),
                               {{"HOLDFAST_TEST_PATH", path()},
                                {"HOLDFAST_TEST_BATCH", std::to_string(next)},
                                {"HOLDFAST_TEST_BESIDE", std::to_string(rounds.number() % 2)}},
                               random, rounds.most_microseconds());
    ASSERT_FALSE(done.empty());
    for (; next < done.back(); ++next) make_all(numbered(next), held, nullptr);
    Opened opened = Opened::open(path());
    ASSERT_NO_FATAL_FAILURE(expect_follows(opened, held, numbered(next)));
    held = opened.contents();
    opened.abandon();
  }
}

#ifdef HOLDFAST_INTERCEPT

TEST(HashMapMixedChild, DISABLED_DiesAtAFence) {
  const auto number = [](const char* name) { return std::stoull(from_environment(name)); };
  Reaper reaper(number("HOLDFAST_TEST_FENCES"));
  auto opened = MapOpened<HashMap<U64, MapConfig<8>>>::open(from_environment("HOLDFAST_TEST_PATH"));
  if (number("HOLDFAST_TEST_BESIDE") == 1) (void)opened.map->ref();
  cpu::set_listener(&reaper);
  apply_numbered(opened, numbered(number("HOLDFAST_TEST_BATCH"), 12));
  opened.map->quiesce();
  opened.abandon();
}

TEST_F(HashMapMixedKills, KilledAtEveryFenceEachKeyIsAsBeforeItsOperationsOrBehindAll) {
  Opened opened = Opened::create(path(), shape());
  for (U64 n = 0; n < 4; ++n) apply_numbered(opened, numbered(n));
  const auto held = opened.contents();
  opened.close();
  const std::vector<char> image = read_file(path());
  for (U64 batch = 100; batch < 104 && !HasFailure(); ++batch) {
    SCOPED_TRACE(detail::concat("batch ", batch));
    Region::destroy(path());
    write_file(path(), image);
    const auto look = [&](U64, bool) {
      opened = Opened::open(path());
      ASSERT_NO_FATAL_FAILURE(expect_follows(opened, held, numbered(batch, 12)));
      opened.abandon();
    };
    kill_at_fences("HashMapMixedChild.DISABLED_DiesAtAFence", path(), arenas(),
                   {{"HOLDFAST_TEST_BATCH", std::to_string(batch)},
                    {"HOLDFAST_TEST_BESIDE", std::to_string(batch % 2)}},
                   5000, all_below(12, 7), look);
  }
}

// Another group of the key, that acts once, behind the n-th access to its slot.
class Other : public cpu::Listener {
 public:
  // `inserts`: the value 99, where the key is not there; else it erases it, where it is.
  Other(U64* label, U64* word, U64 key, bool inserts, U64 n)
      : label_(label), word_(word), key_(key), inserts_(inserts), left_(n) {}
  void on_event(const cpu::Event& event) override {
    if (event.host || acted_) return;
    if (due_) return act();
    if (event.address != label_ && event.address != word_) return;
    due_ = left_-- == 0;
  }
  bool acted() const { return acted_; }
  bool has_changed() const { return changed_; }

 private:
  void act() {
    acted_ = true;
    const bool there = *word_ > detail::kMapGone;
    changed_ = there != inserts_ && *word_ != detail::kMapGone;
    if (!changed_) return;
    *label_ = ~key_;
    *word_ = inserts_ ? 99 ^ EmptyValue {}.bits : detail::kMapGone;
  }
  U64* label_;
  U64* word_;
  U64 key_;
  bool inserts_;
  U64 left_;
  bool due_ = false, acted_ = false, changed_ = false;
};

// A key that another one inserts or erases between the group's look and its change.
TEST_F(HashMapMixed, BesideOthersBeginsAgainWhereTheKeyHasComeOrGone) {
  constexpr U64 kKey = 5;
  for (const bool inserts : {true, false}) {
    U64 before = 0, behind = 0;  // how often the other one came first, and last
    for (U64 n = 0, acted = true; acted; ++n) {
      SCOPED_TRACE(detail::concat(inserts ? "inserts" : "erases", " behind access ", n));
      Opened opened = Opened::create(path(), map_options(64, 8, 8));
      const U64 ten = 10;
      opened.map->insert(&kKey, &ten, 1);
      const auto table = opened.region->find<std::uint8_t>("map.table");
      auto* const words = reinterpret_cast<U64*>(table.data());
      U64* const label = std::find(words, words + table.size() / 8, ~kKey);
      if (inserts) opened.map->erase(&kKey, 1);  // the same slot will be taken
      (void)opened.map->ref();
      Other other(label, label + 2, kKey, inserts, n);  // two ways
      Batch batch;
      batch.add(inserts ? MapOp::insert : MapOp::erase, kKey, 20);
      batch.add(MapOp::find, kKey);
      std::vector<U64> out;
      cpu::Listener* const listener = cpu::set_listener(&other);
      const Statuses status = apply(opened, batch, &out);
      cpu::set_listener(listener);
      acted = other.acted();
      const bool first = other.has_changed();
      (first ? before : behind) += 1;
      using S = MapStatus;
      if (inserts) {
        EXPECT_EQ(status, (first ? Statuses{S::kept, S::kept} : Statuses{S::inserted, S::kept}));
        EXPECT_EQ(out[1], first ? 99u : 20u);
      } else {
        EXPECT_EQ(status,
                  (first ? Statuses{S::absent, S::absent} : Statuses{S::erased, S::absent}));
      }
      opened.map->quiesce();
      EXPECT_EQ(opened.map->verify(), "");
      EXPECT_EQ(opened.map->size(), inserts ? 1u : 0u);
      opened.abandon();
      Region::destroy(path());
      if (HasFailure()) return;
    }
    EXPECT_GT(before, 1u);
    EXPECT_GT(behind, 1u);
  }
}

#endif  // HOLDFAST_INTERCEPT

}  // namespace
}  // namespace holdfast::test
