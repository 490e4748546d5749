// What tests of mixed batches share: an oracle that makes their operations one after the other.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <unordered_map>
#include <vector>

#include "hash_map/map_test.hpp"

namespace holdfast::test {

using U64 = std::uint64_t;
using U32 = std::uint32_t;
using Value = std::optional<U64>;  // none: the key is not there

// A batch, values by their numbers.
template <class Key>
struct Mixed {
  std::vector<MapOp> kinds;
  std::vector<Key> keys;
  std::vector<U64> numbers;

  void add(MapOp kind, const Key& key, U64 number = 0) {
    kinds.push_back(kind), keys.push_back(key), numbers.push_back(number);
  }
  std::size_t size() const { return keys.size(); }
};

struct Answer {
  MapStatus status;
  Value out;  // none: its row is left as it is
};

// What one operation does to a key, if `failed` says why no value can be set, or is none.
inline Answer make_one(MapOp kind, U64 number, MapStatus failed, Value& value) {
  const auto set = [&](MapStatus done) -> Answer {
    if (failed != MapStatus{}) return {failed, {}};
    value = number;
    return {done, kind == MapOp::find_or_insert ? value : Value()};
  };
  switch (kind) {
    case MapOp::insert:
      return value ? Answer{MapStatus::kept, {}} : set(MapStatus::inserted);
    case MapOp::find_or_insert:
      return value ? Answer{MapStatus::kept, value} : set(MapStatus::inserted);
    case MapOp::insert_or_assign:
      return set(value ? MapStatus::assigned : MapStatus::inserted);
    case MapOp::assign:
      return value ? set(MapStatus::assigned) : Answer{MapStatus::absent, {}};
    case MapOp::find:
      return value ? Answer{MapStatus::kept, value} : Answer{MapStatus::absent, {}};
    case MapOp::erase:
      break;
  }
  const bool there = value.has_value();
  value.reset();
  return {there ? MapStatus::erased : MapStatus::absent, {}};
}

// Makes them one after the other in `held`. `said`: what the map has said, which alone knows what
// finds no room: then that is so of all operations of the key that set a value. Null: none.
template <class Key, class Oracle>
std::vector<Answer> make_all(const Mixed<Key>& batch, Oracle& held, const MapStatus* said) {
  std::unordered_map<Key, MapStatus> failed;
  for (std::size_t i = 0; said != nullptr && i < batch.size(); ++i) {
    if (said[i] == MapStatus::full || said[i] == MapStatus::no_value) {
      failed.emplace(batch.keys[i], said[i]);
    }
  }
  std::vector<Answer> answers;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto at = held.find(batch.keys[i]);
    Value value = at == held.end() ? Value() : Value(at->second);
    const auto why = failed.find(batch.keys[i]);
    answers.push_back(make_one(batch.kinds[i], batch.numbers[i],
                               why == failed.end() ? MapStatus{} : why->second, value));
    if (value) {
      held[batch.keys[i]] = *value;
    } else {
      held.erase(batch.keys[i]);
    }
  }
  return answers;
}

// Applies it, and compares with the oracle all that the map says. Returns how many did not fit.
template <class Map>
U64 apply(MapOpened<Map>& opened, const Mixed<typename MapOpened<Map>::Key>& batch,
          typename MapOpened<Map>::Oracle& held, bool asks = true,
          std::vector<MapStatus>* said = nullptr) {
  constexpr U32 kUntouched = 0x5a5a5a5a;
  const std::size_t words = opened.map->value_bytes() / 4;
  const auto values = opened.values_of(batch.numbers);
  std::vector<U32> out(values.size(), kUntouched);
  std::vector<MapStatus> status(batch.size());
  const MapResult result =
      opened.map->apply(batch.kinds.data(), batch.keys.data(), values.data(),
                        asks ? out.data() : nullptr, batch.size(), status.data());
  const auto answers = make_all(batch, held, status.data());
  if (said != nullptr) *said = status;
  std::map<MapStatus, U64> counts;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    EXPECT_EQ(status[i], answers[i].status)
        << "operation " << i << " of kind " << static_cast<int>(batch.kinds[i]) << " of key "
        << batch.keys[i];
    ++counts[answers[i].status];
    const U32* const row = out.data() + i * words;
    if (asks && answers[i].out) {
      EXPECT_EQ(read_value(row, opened.map->value_bytes()), *answers[i].out) << "operation " << i;
    } else {
      EXPECT_EQ(std::count(row, row + words, kUntouched), words) << "operation " << i;
    }
  }
  const U64 reported[] = {result.inserted, result.assigned,   result.kept, result.erased,
                          result.absent,   result.superseded, result.full, result.no_value};
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(reported[i], counts[static_cast<MapStatus>(i + 1)]) << "status " << i + 1;
  }
  return result.not_done();
}

template <class Key>
Mixed<Key> draw(std::mt19937_64& random, std::size_t most, U64 keys, U64 mask) {
  Mixed<Key> batch;
  const std::size_t count = random() % 4 == 0 ? most : 1 + random() % most;
  // Mostly of few keys, so that one has more operations than a group has threads.
  const U64 few = random() % 2 == 0 ? 1 + random() % 4 : keys;
  for (std::size_t i = 0; i < count; ++i) {
    const U64 number = random() % (random() % 3 == 0 ? keys : few);
    batch.add(static_cast<MapOp>(1 + random() % 6), test_key<Key>(number), random() & mask);
  }
  return batch;
}

// Maps of all kinds of keys, groups and values; some with a directory, and a cache.
template <class K, class C, U32 ValueBytes, bool WithDirectory = false, U64 CachedRows = 0>
struct MixedKind {
  using Map = HashMap<K, C>;
  static MapOptions shape(U64 slots) {
    MapOptions options = map_options(slots, ValueBytes, 96);
    options.directory = WithDirectory ? MapOptions::Directory::on : MapOptions::Directory::off;
    options.cache = {CachedRows * ((ValueBytes + 15) / 16 * 16), MapCache::Policy::lru, 2};
    return options;
  }
};

using MixedKinds =
    ::testing::Types<MixedKind<U64, MapConfig<>, 8>, MixedKind<U32, MapConfig<4>, 4>,
                     MixedKind<U64, MapConfig<8>, 128, true, 10>,
                     MixedKind<U64, MapConfig<16>, 20, true>, MixedKind<Bytes<16>, MapConfig<4>, 8>,
                     MixedKind<Bytes<32>, MapConfig<>, 36, true, 6>>;

}  // namespace holdfast::test
