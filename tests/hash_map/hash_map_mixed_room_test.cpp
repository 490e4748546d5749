// Mixed batches whose keys find their slots taken: room is made for them, by erasures of the batch
// or by another key that moves, and their operations are as if it had been there at first.
#include <set>

#include "hash_map/hash_map_mixed_test.hpp"

namespace holdfast::test {
namespace {

template <class Of>
class HashMapMixedRoomOf : public Scratch {};
TYPED_TEST_SUITE(HashMapMixedRoomOf, MixedKinds);

// Of more keys than there are slots, mostly set.
template <class Key>
Mixed<Key> fill(std::mt19937_64& random, U64 keys, U64 mask) {
  Mixed<Key> batch;
  const std::size_t count = 1 + random() % 96;
  for (std::size_t i = 0; i < count; ++i) {
    const auto any = static_cast<MapOp>(1 + random() % 6);
    const MapOp kind = random() % 3 == 0 ? any : MapOp::insert;
    batch.add(kind, test_key<Key>(random() % keys), random() & mask);
  }
  return batch;
}

// Batches of one kind make room by themselves: where they find none, there is none.
TYPED_TEST(HashMapMixedRoomOf, WhatIsLeftFullNoInsertTakes) {
  using Opened = MapOpened<typename TypeParam::Map>;
  using Key = typename Opened::Key;
  std::mt19937_64 random(test_seed());
  U64 full = 0;
  for (int program = 0; program < 3; ++program) {
    MapOptions shape = TypeParam::shape(20 + random() % 150);
    if (shape.value_bytes > 8 && program == 2) shape.value_places = 96;  // too few
    Opened opened = Opened::create(this->path("region" + std::to_string(program)), shape);
    typename Opened::Oracle held;
    const U64 keys = opened.map->capacity() * 5 / 4;
    const U64 mask = shape.value_bytes == 4 ? 0xffffffff : ~U64{0};
    for (int step = 0; step < 25; ++step) {
      SCOPED_TRACE(detail::concat("program ", program, " step ", step));
      opened.map->set_order(random() % 2 == 0 ? MapOptions::Order::ordered
                                              : MapOptions::Order::unordered);
      const Mixed<Key> batch = fill<Key>(random, keys, mask);
      std::vector<MapStatus> said;
      apply(opened, batch, held, random() % 4 != 0, &said);
      std::vector<Key> left;
      for (std::size_t i = 0; i < batch.size(); ++i) {
        if (said[i] == MapStatus::full) left.push_back(batch.keys[i]);
      }
      full += left.size();
      const auto values = opened.values_of(numbers(0, left.size()));
      EXPECT_EQ(opened.map->insert(left.data(), values.data(), left.size()).inserted, 0u);
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(held));
      if (this->HasFailure()) return;
    }
  }
  EXPECT_GT(full, 0u) << "no table was full";
}

using HashMapMixedRoom = Scratch;

// As by batches of one kind (HashMapTest.IsNinetySixPercentFullBeforeAKeyDoesNotFit).
TEST_F(HashMapMixedRoom, IsNinetySixPercentFullBeforeAKeyDoesNotFit) {
  auto opened = MapOpened<HashMap<U64>>::create(path(), map_options(1 << 14, 8, 128));
  MapOpened<HashMap<U64>>::Oracle held;
  std::mt19937_64 random(test_seed());
  for (U64 full = 0; full == 0;) {
    Mixed<U64> batch;
    while (batch.size() < 120) {
      const U64 key = random() >> 1;
      if (random() % 2 == 0) batch.add(MapOp::find_or_insert, key, random());
      batch.add(random() % 2 == 0 ? MapOp::insert : MapOp::insert_or_assign, key, random());
      if (random() % 4 == 0) batch.add(MapOp::find, key);
    }
    full = apply(opened, batch, held);
    ASSERT_FALSE(HasFailure());
  }
  const double at_first_failure = opened.map->load_factor();
  std::printf("load factor at the first key that does not fit: %.4f\n", at_first_failure);
  EXPECT_GT(at_first_failure, 0.96);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(held));
}

// All of a key's operations are gone over again: their statuses, and what lookups get.
TEST_F(HashMapMixedRoom, OperationsAreAsIfTheRoomHadBeenThereAtFirst) {
  for (const U32 value_bytes : {8, 24}) {
    auto opened =
        MapOpened<HashMap<U64, MapConfig<4>>>::create(path(), map_options(6, value_bytes, 16));
    for (const U64 key : numbers(3, 5)) {  // five of six slots, none of them free for key 8
      opened.map->insert(&key, opened.values_of({key}).data(), 1);
    }
    auto held = opened.contents();
    Mixed<U64> batch;
    batch.add(MapOp::find, 8);
    batch.add(MapOp::erase, 8);
    batch.add(MapOp::find, 5);
    batch.add(MapOp::insert, 8, 10);
    batch.add(MapOp::find, 8);
    batch.add(MapOp::assign, 5, 50);
    batch.add(MapOp::erase, 8);
    batch.add(MapOp::find_or_insert, 8, 20);
    batch.add(MapOp::assign, 8, 30);
    batch.add(MapOp::find, 5);
    batch.add(MapOp::find, 8);
    EXPECT_EQ(apply(opened, batch, held), 0u);
    EXPECT_EQ(held.at(8), 30u);
    EXPECT_EQ(opened.map->size(), 6u);
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(held));
    opened.abandon();
    Region::destroy(path());
  }
}

// Where no key can move, what the batch erases makes room, also behind the key that takes it: which
// keys come first in a batch is not said, so that several that found no room are tried.
TEST_F(HashMapMixedRoom, ErasuresOfTheBatchMakeRoom) {
  const std::vector<U64> keys = numbers(100, 64);
  std::size_t tried = 0;
  for (std::size_t which = 0; tried < 12; ++which) {
    auto opened = MapOpened<HashMap<U64, MapConfig<4>>>::create(path(), map_options(12, 8, 64));
    std::vector<MapStatus> status(64);
    opened.map->insert(keys.data(), opened.values_of(keys).data(), 64, status.data());
    auto held = opened.contents();
    while (which < keys.size() && held.count(keys[which]) != 0) ++which;
    ASSERT_LT(which, keys.size());
    ++tried;
    const U64 homeless = keys[which];
    Mixed<U64> batch;
    batch.add(MapOp::insert, homeless, 7);
    EXPECT_EQ(apply(opened, batch, held), 1u);
    for (const U64 key : keys) {
      if (held.count(key) != 0) batch.add(MapOp::erase, key);
    }
    EXPECT_EQ(apply(opened, batch, held), 0u) << "key " << homeless;
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds({{homeless, 7}}));
    opened.abandon();
    Region::destroy(path());
  }
}

}  // namespace
}  // namespace holdfast::test
