// Keys of 16 bytes and more: told apart by all of their bytes, and slots as a crash may leave them.
#include <set>

#include "hash_map/map_test.hpp"
#ifdef HOLDFAST_INTERCEPT
#include "hash_map/hash_map_ref_test.hpp"
#include "holdfast/cpu/listener.hpp"
#endif

namespace holdfast::test {
namespace {

using U64 = std::uint64_t;
using Key = Bytes<32>;
using Map = HashMap<Key, MapConfig<8>>;
using Opened = MapOpened<Map>;

constexpr std::size_t kWords = sizeof(Key) / 8;
constexpr std::size_t kWays = 2;
constexpr std::size_t kBucketWords = kWays * (2 + kWords);

class HashMapLongKeys : public Scratch {
 protected:
  // As docs/format.md has it: labels, words, keys.
  struct Slot {
    U64* label;
    U64* word;
    U64* key;
    bool is_empty() const {
      return *label == 0 && *word == 0 && std::count(key, key + kWords, 0) == kWords;
    }
  };
  static std::vector<Slot> slots_of(Region& region) {
    const auto table = region.find<std::uint8_t>("map.table");
    std::vector<Slot> slots;
    for (std::size_t at = 0; at + kBucketWords * 8 <= table.size(); at += kBucketWords * 8) {
      U64* const bucket = reinterpret_cast<U64*>(&table[at]);
      for (std::size_t way = 0; way < kWays; ++way) {
        slots.push_back({bucket + way, bucket + kWays + way, bucket + kWays * 2 + way * kWords});
      }
    }
    return slots;
  }
  // Slots with a label.
  static std::vector<Slot> slots_with(Region& region, U64 label) {
    std::vector<Slot> slots = slots_of(region);
    std::erase_if(slots, [&](const Slot& slot) { return *slot.label != label; });
    return slots;
  }
  static MapOptions shape() { return map_options(48, 8, 32); }
};

TEST_F(HashMapLongKeys, KeysOfOneLabelAreApart) {
  std::set<U64> labels;
  std::vector<Key> keys;
  for (U64 n = 0; n < 12; ++n) {
    keys.push_back(alike_key<Key>(n / 6, n));
    labels.insert(label_of(keys.back()));
  }
  ASSERT_EQ(labels.size(), 2u) << "the test has no keys of one label";
  Opened opened = Opened::create(path(), shape());
  const auto values = numbers(100, 12);
  Opened::Oracle oracle;
  std::vector<MapStatus> status(12);
  opened.map->insert(keys.data(), values.data(), 12, status.data());
  for (std::size_t i = 0; i < 12; ++i) {
    if (status[i] == MapStatus::inserted) oracle[keys[i]] = values[i];
  }
  EXPECT_GE(oracle.size(), 8u);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  ASSERT_NO_FATAL_FAILURE(opened.expect_found(keys, oracle));
  // One of them goes, and the others stay.
  const Key gone = oracle.begin()->first;
  EXPECT_EQ(opened.map->erase(&gone, 1).erased, 1u);
  oracle.erase(gone);
  ASSERT_NO_FATAL_FAILURE(opened.expect_found(keys, oracle));
}

TEST_F(HashMapLongKeys, EveryByteAndBitTellsKeysApart) {
  Opened opened = Opened::create(path(), map_options(1200, 8, 512));
  std::vector<Key> keys(1);
  for (std::size_t bit = 0; bit < sizeof(Key) * 8; ++bit) {
    keys.emplace_back();
    keys.back().bytes[bit / 8] = static_cast<std::byte>(1 << bit % 8);
  }
  keys.emplace_back();
  std::memset(&keys.back(), 0xff, sizeof(Key));  // no key is reserved
  const auto values = numbers(1, keys.size());
  EXPECT_EQ(opened.map->insert(keys.data(), values.data(), keys.size()).inserted, keys.size());
  Opened::Oracle oracle;
  for (std::size_t i = 0; i < keys.size(); ++i) oracle[keys[i]] = values[i];
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
  ASSERT_NO_FATAL_FAILURE(opened.expect_found(keys, oracle));
}

// Whatever of its stores are there: label, word, words of the key.
TEST_F(HashMapLongKeys, OpeningClearsEveryPartOfAPair) {
  const std::vector<Key> keys{alike_key<Key>(1, 1), alike_key<Key>(1, 2)};
  const std::vector<U64> values{5, 6};
  for (unsigned parts = 0; parts < 1u << (kWords + 2); ++parts) {
    SCOPED_TRACE(parts);
    {
      Opened opened = Opened::create(path(), shape());
      opened.map->insert(keys.data(), values.data(), 2);
      opened.abandon();
    }
    Region region = Region::open(path());
    const std::vector<Slot> alike = slots_with(region, label_of(keys[0]));
    ASSERT_EQ(alike.size(), 2u);
    U64 first;
    std::memcpy(&first, &keys[0], 8);
    const Slot& slot = (alike[0].key[0] & ~detail::kMapWordIsSet) == first ? alike[0] : alike[1];
    if ((parts & 1) == 0) *slot.label = 0;
    if ((parts & 2) == 0) *slot.word = 0;
    for (std::size_t i = 0; i < kWords; ++i) {
      if ((parts >> (2 + i) & 1) == 0) slot.key[i] = 0;
    }
    const bool whole = parts == (1u << (kWords + 2)) - 1;
    {
      Map map = Map::open(region, "map");
      EXPECT_EQ(map.recovery().pairs, whole ? 2u : 1u);
      EXPECT_EQ(map.recovery().cleared, whole || parts == 0 ? 0u : 1u);
      EXPECT_EQ(slot.is_empty(), !whole);
      EXPECT_EQ(map.verify(), "");
      std::vector<std::uint8_t> found(2);
      map.contains(keys.data(), found.data(), 2);
      EXPECT_EQ(found, (std::vector<std::uint8_t>{whole, 1}));
      EXPECT_EQ(map.insert_or_assign(keys.data(), values.data(), 2).inserted, whole ? 0u : 1u);
    }
    region.abandon();
    Region::destroy(path());
  }
}

// A key's bytes are looked at: its label follows from them.
TEST_F(HashMapLongKeys, EveryByteOfTheTableIsLookedAt) {
  std::vector<Key> keys;
  for (U64 n = 0; n < 8; ++n) keys.push_back(test_key<Key>(n));
  {
    Opened opened = Opened::create(path(), shape());
    ASSERT_EQ(opened.map->insert(keys.data(), numbers(1, 8).data(), 8).inserted, 8u);
    opened.abandon();
  }
  Region region = Region::open(path());
  std::mt19937_64 random(test_seed());
  const auto first = region.find<std::uint8_t>("map.table");
  const std::vector<std::uint8_t> whole(first.begin(), first.end());
  int refused = 0;
  for (std::size_t byte = 0; byte < whole.size(); ++byte) {
    const auto table = region.find<std::uint8_t>("map.table");
    std::copy(whole.begin(), whole.end(), table.begin());
    table[byte] ^= static_cast<std::uint8_t>(1 + random() % 255);
    try {
      Map map = Map::open(region, "map");
      ASSERT_EQ(map.verify(), "") << "byte " << byte;
      ASSERT_LE(map.size(), 8u) << "byte " << byte;
      ASSERT_GE(map.size(), 7u) << "byte " << byte;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Errc::damaged) << error.what();
      ++refused;
    }
  }
  EXPECT_GE(refused, 8 * static_cast<int>(sizeof(Key) + 7)) << "bytes of keys and labels";
}

// The highest bit of each word says that the word is there; a key without one is found by nobody.
TEST_F(HashMapLongKeys, TheBitThatAWordIsSetByIsLookedAt) {
  const std::vector<Key> keys{alike_key<Key>(1, 1), alike_key<Key>(2, 2)};
  Opened opened = Opened::create(path(), shape());
  ASSERT_EQ(opened.map->insert(keys.data(), numbers(5, 2).data(), 2).inserted, 2u);
  opened.map.reset();
  Region& region = *opened.region;
  int cleared = 0;
  for (const Slot& slot : slots_of(region)) {
    for (std::size_t i = 0; i < kWords && !slot.is_empty(); ++i) {
      const U64 before = slot.key[i];
      if (before == detail::kMapWordIsSet) continue;  // would be 0: a word that is not there
      {
        Map map = Map::open(region, "map", {.directory = MapOptions::Directory::off});
        EXPECT_EQ(map.verify(), "");
        slot.key[i] &= ~detail::kMapWordIsSet;
        EXPECT_NE(map.verify(), "") << "word " << i;
      }
      EXPECT_EQ(error_of([&] { Map::open(region, "map"); }), Errc::damaged) << "word " << i;
      EXPECT_EQ(slot.key[i], before & ~detail::kMapWordIsSet);
      slot.key[i] = before;
      ++cleared;
    }
  }
  EXPECT_GE(cleared, 4);
  EXPECT_EQ(Map::open(region, "map").size(), 2u);
}

TEST_F(HashMapLongKeys, OtherSizesAreRefused) {
  auto region = Region::create(path(), options(1 << 20));
  Map::create(region, "map", shape());
  using Wider = HashMap<Bytes<40>, MapConfig<8>>;
  using Short = HashMap<U64, MapConfig<8>>;
  EXPECT_EQ(error_of([&] { Wider::open(region, "map"); }, {"keys of 32 bytes", "keys of 40"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { Short::open(region, "map"); }, {"keys of 32 bytes", "keys of 8"}),
            Errc::invalid_argument);
}

#ifdef HOLDFAST_INTERCEPT
// ---- Keys of one label, inserted beside each other ---------------------------------------------

// A group that has claimed a slot, and given it so many of its key's words, when another one that
// inserts the same key looks: it has seen this slot empty, and sees a later slot, which a group
// with another key has claimed.
class Claimer : public cpu::Listener {
 public:
  Claimer(U64* label, U64* words, const Key& key, std::size_t done)
      : label_(label), words_(words), done_(done) {
    const U64 all = test::label_of(key);
    std::memcpy(key_, &key, sizeof(key_));
    its_label_ = all;
  }
  void on_event(const cpu::Event& event) override {
    const bool looks = event.kind == cpu::EventKind::load && event.address == label_;
    if (!std::exchange(looked_, looked_ || looks) || std::exchange(claimed_, true)) return;
    *label_ = its_label_;
    go_on(done_);
  }
  bool has_claimed() const { return claimed_; }
  // Stores words up to number `end`; whether they are its own.
  bool go_on(std::size_t end) {
    for (std::size_t i = 0; i < end; ++i) {
      const U64 mine = key_[i] | detail::kMapWordIsSet;
      if (words_[i] == 0) words_[i] = mine;
      if (words_[i] != mine) return false;
    }
    return true;
  }

 private:
  U64* label_;
  U64* words_;
  U64 key_[kWords];
  U64 its_label_;
  std::size_t done_;
  bool looked_ = false;
  bool claimed_ = false;
};

// However far the first group has come, the key is in one slot in the end.
TEST_F(HashMapLongKeys, AKeyThatTwoGroupsClaimSlotsForIsThereOnce) {
  const Key key = alike_key<Key>(0, 1);
  for (std::size_t done = 0; done <= kWords; ++done) {
    SCOPED_TRACE(done);
    Opened opened = Opened::create(path(), shape());
    Region& region = *opened.region;
    // The slots that the key can have, in their order: the first two ways of two buckets.
    const std::vector<Key> four{key, alike_key<Key>(0, 2)};
    opened.map->insert(four.data(), numbers(1, 2).data(), 2);
    const std::vector<Slot> alike = slots_with(region, label_of(key));
    ASSERT_EQ(alike.size(), 2u);
    opened.map->erase(four.data(), 2);
    // Slot 1 is claimed for another key of the label, of which no word is there yet.
    *alike[1].label = label_of(key);
    Claimer claimer(alike[0].label, alike[0].key, key, done);
    const DeviceBuffer<Key> key_there(1);
    const DeviceBuffer<MapStep> step(1);
    const DeviceBuffer<U64> value(1), out(1);
    const DeviceBuffer<unsigned long long> clock(1);
    const MapStep insert{MapCall::insert, {}, 0, 0, 0, 0};
    Stream& stream = opened.map->stream();
    const U64 seven = 7;
    copy_async(stream, key_there.data(), &key, sizeof(key));
    copy_async(stream, value.data(), &seven, 8);
    copy_async(stream, step.data(), &insert, sizeof(insert));
    stream.synchronize();
    cpu::Listener* const before = cpu::set_listener(&claimer);
    make_steps(stream, *opened.map,
               {step.data(), key_there.data(), 1, reinterpret_cast<std::uint32_t*>(value.data()),
                reinterpret_cast<std::uint32_t*>(out.data()), clock.data(), 1},
               1);
    stream.synchronize();
    cpu::set_listener(before);
    ASSERT_TRUE(claimer.has_claimed());
    // The first group goes on: it has seen no other slot of its label, and so need not look again.
    if (claimer.go_on(kWords) && *alike[0].word == 0) *alike[0].word = 9;
    EXPECT_EQ(opened.map->verify(), "");
    opened.map->quiesce();
    EXPECT_EQ(opened.map->recovery().duplicates, 0u);
    EXPECT_EQ(opened.map->size(), 1u);
    EXPECT_EQ(opened.map->verify(), "");
    opened.abandon();
    Region::destroy(path());
  }
}
#endif

}  // namespace
}  // namespace holdfast::test
