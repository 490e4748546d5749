// A map that is killed: at any moment, and at every fence of batches, of growths and of opening;
// and one that is damaged.
#include <set>

#include "durable/header.hpp"
#include "hash_map/format.hpp"
#include "hash_map/map_test.hpp"
#include "support/killed_child.hpp"
#include "support/share.hpp"

namespace holdfast::test {
namespace {

using U64 = std::uint64_t;

// Batch `n` of a map in which some keys never fit. Values name their batch.
constexpr std::size_t kBatch = 40;
constexpr U64 kKeys = 70;

template <class Map>
struct Numbered {
  enum Kind { insert, assign, put, erase };
  using Opened = MapOpened<Map>;
  using Key = typename Opened::Key;
  using Oracle = typename Opened::Oracle;

  explicit Numbered(U64 n, std::size_t count = kBatch) : kind(static_cast<Kind>(n * 7 % 5 % 4)) {
    std::mt19937_64 random(n);
    for (std::size_t i = 0; i < count; ++i) {
      keys.push_back(test_key<Key>(random() % kKeys));
      numbers.push_back(((n + 1) & 0xffffff) << 8 | i);
    }
  }
  void apply(const Opened& opened) const {
    const auto values = opened.values_of(numbers);
    switch (kind) {
      case insert:
        opened.map->insert(keys.data(), values.data(), keys.size());
        return;
      case assign:
        opened.map->assign(keys.data(), values.data(), keys.size());
        return;
      case put:
        opened.map->insert_or_assign(keys.data(), values.data(), keys.size());
        return;
      case erase:
        opened.map->erase(keys.data(), keys.size());
    }
  }
  // The values that a key may have once this batch was begun, from `before`, 0 for none: it is done
  // or not, and an insertion may not have fitted.
  std::vector<U64> outcomes(const Key& key, U64 before) const {
    U64 last = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (keys[i] == key) last = numbers[i];
    }
    if (last == 0) return {before};
    if (kind == erase) return {before, 0};
    const bool sets = before != 0 ? kind != insert : kind != assign;
    return sets ? std::vector<U64>{before, last} : std::vector<U64>{before};
  }
  Kind kind;
  std::vector<Key> keys;
  std::vector<U64> numbers;
};

// A key's value, 0 for none.
template <class Oracle>
U64 value_in(const Oracle& oracle, const typename Oracle::key_type& key) {
  const auto at = oracle.find(key);
  return at == oracle.end() ? 0 : at->second;
}

// What the map holds has to follow from what it held, by this batch, whole or in part.
template <class Map>
void expect_follows(const MapOpened<Map>& opened, const typename MapOpened<Map>::Oracle& before,
                    U64 batch, std::size_t count) {
  const auto now = opened.contents();
  const Numbered<Map> last(batch, count);
  for (U64 number = 0; number < kKeys; ++number) {
    const auto key = test_key<typename MapOpened<Map>::Key>(number);
    const auto may = last.outcomes(key, value_in(before, key));
    ASSERT_NE(std::find(may.begin(), may.end(), value_in(now, key)), may.end())
        << "key " << key << " was " << value_in(before, key) << ", is " << value_in(now, key)
        << " behind batch " << batch;
  }
  ASSERT_EQ(opened.map->size(), now.size());
  ASSERT_EQ(opened.map->verify(), "");
}

using Map = HashMap<U64, MapConfig<8>>;
using Opened = MapOpened<Map>;
using LongMap = HashMap<Bytes<24>, MapConfig<8>>;

// While a ref is out, three batches here, each takes a place for every value that it sets.
MapOptions shape() {
  MapOptions options = map_options(72, 32, kBatch);
  options.value_places = 72 + 4 * kBatch;
  return options;
}

// ---- Kills at any moment -----------------------------------------------------------------------

// Beside what batches run.
enum class Beside { nothing, refs, growths, cache };
Beside beside_from_environment() {
  return static_cast<Beside>(std::stoi(from_environment("HOLDFAST_TEST_BESIDE")));
}

// A step of a growth, or the beginning of one.
template <class Map>
void grow_some(Map& map, U64 step) {
  if (map.stats().left_to_move == 0 && map.capacity() < 72 * 64) map.grow();
  map.migrate(step % 4);
}

// What a lookup finds is what the medium has, wherever it was served from.
template <class Map>
void serve_some(const MapOpened<Map>& opened) {
  std::vector<typename MapOpened<Map>::Key> keys;
  for (std::size_t i = 0; i < kBatch; ++i)
    keys.push_back(test_key<typename MapOpened<Map>::Key>(i));
  std::vector<std::uint32_t> values(kBatch * 8);
  std::vector<std::uint8_t> found(kBatch);
  opened.map->find(keys.data(), values.data(), found.data(), kBatch);
  const auto held = opened.contents();
  for (std::size_t i = 0; i < kBatch; ++i) {
    if (found[i] != 0 ? read_value(&values[i * 8], 32) != value_in(held, keys[i])
                      : held.count(keys[i]) != 0) {
      std::abort();
    }
  }
}

template <class Map>
void run_until_killed() {
  const Beside beside = beside_from_environment();
  MapOpenOptions how;
  if (beside == Beside::cache) how.cache = {16 * 32, MapCache::Policy::lru, 2};
  const auto opened = MapOpened<Map>::open(from_environment("HOLDFAST_TEST_PATH"), how);
  const bool by_ref = beside == Beside::refs;
  for (U64 n = std::stoull(from_environment("HOLDFAST_TEST_BATCH"));; ++n) {
    if (by_ref && n % 3 == 0) (void)opened.map->ref();
    report_batch(n, [&] { Numbered<Map>(n).apply(opened); });
    if (by_ref && n % 3 == 2) opened.map->quiesce();
    if (beside == Beside::growths) grow_some(*opened.map, n);
    if (beside == Beside::cache) serve_some(opened);
  }
}
TEST(HashMapChild, DISABLED_RunsUntilKilled) { run_until_killed<Map>(); }
TEST(HashMapChild, DISABLED_RunsWithLongKeysUntilKilled) { run_until_killed<LongMap>(); }

template <class Map>
class HashMapKills : public Scratch {
 protected:
  using Opened = MapOpened<Map>;
  using Oracle = typename Opened::Oracle;
  // Runs batches in a child until it is killed; between two kills the child says what is done, and
  // this process does the same to a map of its own, which is never killed.
  void kill_often(Beside beside, const char* child_test = "DISABLED_RunsUntilKilled") {
    std::mt19937_64 random(test_seed());
    Opened::create(path(), shape()).region->close();
    U64 next = 0;
    int cut_growths = 0;
    const auto enough = [&] { return next > 12 && (beside != Beside::growths || cut_growths > 0); };
    for (KillRounds rounds(12); rounds.another(enough());) {
      Opened before = Opened::open(path());
      const auto held = before.contents();
      before.abandon();
      const auto [done, begun] = batches_told(
          next, told_until_killed<ToldBatch>(
                    std::string("HashMapChild.") + child_test, arenas(),
                    {{"HOLDFAST_TEST_PATH", path()},
                     {"HOLDFAST_TEST_BATCH", std::to_string(next)},
                     {"HOLDFAST_TEST_BESIDE", std::to_string(static_cast<int>(beside))}},
                    random, rounds.most_microseconds()));
      Opened opened = Opened::open(path());
      const auto now = opened.contents();
      ASSERT_NO_FATAL_FAILURE(judge(opened, held, now, next, done, begun));
      cut_growths += opened.map->stats().left_to_move != 0 ? 1 : 0;
      next = begun;
      opened.abandon();
    }
  }

  // A key's possible states, through batches that are done, and one that may be.
  static void judge(const Opened& opened, const Oracle& held, const Oracle& now, U64 first,
                    U64 done, U64 begun) {
    for (U64 number = 0; number < kKeys; ++number) {
      const auto key = test_key<typename Opened::Key>(number);
      std::set<U64> may{value_in(held, key)};
      for (U64 n = first; n < begun; ++n) {
        const Numbered<Map> batch(n);
        std::set<U64> next;
        for (const U64 value : may) {
          const auto outcomes = batch.outcomes(key, value);
          // Of one that is done the change is made, unless it was an insertion that did not fit.
          const bool must = n < done && (value != 0 || batch.kind == Numbered<Map>::erase);
          if (!must) next.insert(outcomes.front());
          next.insert(outcomes.back());
        }
        may = next;
      }
      ASSERT_EQ(may.count(value_in(now, key)), 1u)
          << "key " << key << " is " << value_in(now, key) << " behind batches " << first << " to "
          << begun;
    }
    ASSERT_EQ(opened.map->size(), now.size());
    ASSERT_EQ(opened.map->verify(), "");
    ASSERT_EQ(opened.map->stats().free_places, opened.map->stats().value_places - now.size());
  }
};

using HashMapCrash = HashMapKills<Map>;
TEST_F(HashMapCrash, KilledAtAnyMomentEachOperationIsThereWholeOrNot) {
  kill_often(Beside::nothing);
}
TEST_F(HashMapCrash, KilledAtAnyMomentBesideRefsEachOperationIsThereWholeOrNot) {
  kill_often(Beside::refs);
}
TEST_F(HashMapCrash, KilledAtAnyMomentBesideAServingCacheEachOperationIsThereWholeOrNot) {
  kill_often(Beside::cache);
}
TEST_F(HashMapCrash, KilledAtAnyMomentOfGrowthsEachOperationIsThereWholeOrNot) {
  kill_often(Beside::growths);
}

using HashMapCrashOfLongKeys = HashMapKills<LongMap>;
TEST_F(HashMapCrashOfLongKeys, KilledAtAnyMomentEachOperationIsThereWholeOrNot) {
  kill_often(Beside::nothing, "DISABLED_RunsWithLongKeysUntilKilled");
}
TEST_F(HashMapCrashOfLongKeys, KilledAtAnyMomentBesideRefsEachOperationIsThereWholeOrNot) {
  kill_often(Beside::refs, "DISABLED_RunsWithLongKeysUntilKilled");
}
TEST_F(HashMapCrashOfLongKeys, KilledAtAnyMomentOfGrowthsEachOperationIsThereWholeOrNot) {
  kill_often(Beside::growths, "DISABLED_RunsWithLongKeysUntilKilled");
}

// ---- Kills at every fence ----------------------------------------------------------------------
#ifdef HOLDFAST_INTERCEPT

constexpr std::size_t kShort = 10;

TEST(HashMapChild, DISABLED_DiesAtAFence) {
  const auto number = [](const char* name) { return std::stoull(from_environment(name)); };
  Reaper reaper(number("HOLDFAST_TEST_FENCES"));
  const U64 batch = number("HOLDFAST_TEST_BATCH");
  const bool in_opening = number("HOLDFAST_TEST_OPENING") == 1;
  if (in_opening) cpu::set_listener(&reaper);
  Opened opened = Opened::open(from_environment("HOLDFAST_TEST_PATH"));
  cpu::set_listener(&reaper);
  if (!in_opening) {
    const Beside beside = beside_from_environment();
    if (beside == Beside::refs) (void)opened.map->ref();
    if (beside == Beside::growths) opened.map->grow();
    opened.map->migrate(4);
    Numbered<Map>(batch, kShort).apply(opened);
    opened.map->quiesce();
  }
  opened.map->reserve(0);  // ends a growth
  opened.abandon();
}

// Of batches of every kind, alone, beside a ref and within a growth; every tenth state is opened,
// and a growth ended, with kills, too.
TEST_F(HashMapCrash, KilledAtEveryFenceEachOperationIsThereWholeOrNot) {
  Opened opened = Opened::create(path(), shape());
  for (U64 n = 0; n < 8; ++n) Numbered<Map>(n).apply(opened);
  const auto held = opened.contents();
  opened.close();
  const std::vector<char> image = read_file(path());
  const std::string child = "HashMapChild.DISABLED_DiesAtAFence";
  const auto opening_ends = [&](U64 fences) {
    return came_to_its_end(child, arenas(),
                           {{"HOLDFAST_TEST_PATH", path()},
                            {"HOLDFAST_TEST_BATCH", "0"},
                            {"HOLDFAST_TEST_FENCES", std::to_string(fences)},
                            {"HOLDFAST_TEST_BESIDE", "0"},
                            {"HOLDFAST_TEST_OPENING", "1"}});
  };
  for (U64 batch = 100; batch < 112 && !HasFailure(); ++batch) {
    SCOPED_TRACE(detail::concat("batch ", batch));
    const Beside beside = batch < 105   ? Beside::nothing
                          : batch < 110 ? Beside::refs
                                        : Beside::growths;
    Region::destroy(path());
    write_file(path(), image);
    U64 looks = batch;  // counted, not the fences: a share's stride may never meet a tenth of those
    const auto look = [&](U64, bool) {
      const bool with_kills = looks++ % 10 == 0;
      for (U64 again = 0; with_kills && !opening_ends(again); ++again) {
        ASSERT_FALSE(HasFailure());
      }
      opened = Opened::open(path());
      ASSERT_NO_FATAL_FAILURE(expect_follows(opened, held, batch, kShort));
      const auto now = opened.contents();
      opened.map->reserve(0);
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(now));
      opened.abandon();
    };
    kill_at_fences(child, path(), arenas(),
                   {{"HOLDFAST_TEST_BATCH", std::to_string(batch)},
                    {"HOLDFAST_TEST_BESIDE", std::to_string(static_cast<int>(beside))},
                    {"HOLDFAST_TEST_OPENING", "0"}},
                   5000, all_below(12, 5), look);
  }
}

#endif  // HOLDFAST_INTERCEPT

// ---- Damage ------------------------------------------------------------------------------------

class HashMapDamage : public HashMapCrash {
 protected:
  // A map of `count` keys, closed, and the bytes of its table.
  void SetUp() override {
    Opened opened = Opened::create(path(), shape());
    const std::vector<U64> numbers{5, 6, 7, 8, 9, 10, 11, 12};
    opened.map->insert(numbers.data(), opened.values_of(numbers).data(), numbers.size());
    held_ = opened.contents();
    opened.abandon();
  }
  // Opens the region alone.
  Region open_region() { return Region::open(path()); }
  static std::span<std::uint8_t> table_of(Region& region) {
    return region.find<std::uint8_t>("map.table");
  }
  static constexpr std::size_t kBucketBytes = 2 * 8 + 2 * 8;  // two ways
  // The slot of a key: its bucket's first byte, and its way.
  static std::pair<std::uint8_t*, std::size_t> slot_of(Region& region, U64 key) {
    const auto table = table_of(region);
    for (std::size_t bucket = 0; bucket < table.size(); bucket += kBucketBytes) {
      for (std::size_t way = 0; way < 2; ++way) {
        U64 held;
        std::memcpy(&held, &table[bucket + way * 8], 8);
        if (~held == key) return {&table[bucket], way};
      }
    }
    ADD_FAILURE() << "key " << key << " is nowhere";
    return {};
  }
  static U64& word(std::pair<std::uint8_t*, std::size_t> slot) {
    return *reinterpret_cast<U64*>(slot.first + 16 + slot.second * 8);
  }
  static U64& key(std::pair<std::uint8_t*, std::size_t> slot) {
    return *reinterpret_cast<U64*>(slot.first + slot.second * 8);
  }
  void expect_damaged(Region& region, const std::string& what) {
    const auto table = table_of(region);
    const std::vector<std::uint8_t> before(table.begin(), table.end());
    EXPECT_EQ(error_of([&] { Map::open(region, "map"); }, {"'map'", "bucket"}), Errc::damaged)
        << what;
    EXPECT_TRUE(std::equal(before.begin(), before.end(), table.begin())) << what << ": changed";
  }
  // Whether it is refused by name; if not, everything is done to it, and it has to be sound.
  static bool is_refused(Region& region) {
    try {
      Map map = Map::open(region, "map", {0, kBatch});
      EXPECT_EQ(map.verify(), "");
      const std::uint32_t bytes = map.value_bytes();
      const std::vector<U64> keys{5, 6, 7, 8, 500, 501};
      std::vector<std::uint32_t> values(keys.size() * bytes / 4, 3);
      std::vector<std::uint8_t> found(keys.size());
      map.find(keys.data(), values.data(), found.data(), keys.size());
      map.insert_or_assign(keys.data(), values.data(), keys.size());
      map.erase(keys.data(), 2);
      U64 pairs = 0;
      map.for_each([&](U64, const void*) { ++pairs; });
      EXPECT_EQ(pairs, map.size());
      map.migrate(2);
      EXPECT_EQ(map.verify(), "");
      return false;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("'map'"), std::string::npos) << error.what();
      const bool named = error.code() == Errc::damaged || error.code() == Errc::invalid_argument ||
                         error.code() == Errc::newer_version || error.code() == Errc::unsupported ||
                         error.code() == Errc::not_found;
      EXPECT_TRUE(named) << error.what();
      return true;
    }
  }
  Opened::Oracle held_;
};

TEST_F(HashMapDamage, IsRefusedByNameAndNothingIsChanged) {
  Region region = open_region();
  const auto five = slot_of(region, 5);
  const auto six = slot_of(region, 6);
  const U64 five_word = word(five), five_key = key(five);
  word(five) = (five_word >> 32 << 32) | 1'000'000;
  expect_damaged(region, "a place that is none");
  for (unsigned bit = 32; bit < 64; ++bit) {
    word(five) = five_word ^ U64 { 1 } << bit;
    expect_damaged(region, "a word without its tag");
  }
  word(five) = word(six);
  expect_damaged(region, "a place of another's");
  word(five) = five_word;
  key(five) = ~U64{123456789};
  expect_damaged(region, "a key in none of its buckets");
  key(five) = five_key;
  Map map = Map::open(region, "map");
  EXPECT_EQ(map.size(), held_.size());
  EXPECT_EQ(map.verify(), "");
}

// Of every bit of the table that is changed, opening either says so, or the map is sound: it holds
// no key twice, and no more than that one slot has changed.
TEST_F(HashMapDamage, EveryByteOfTheTableIsLookedAt) {
  Region region = open_region();
  std::mt19937_64 random(test_seed());
  std::vector<std::uint8_t> whole;
  {
    const auto table = table_of(region);
    whole.assign(table.begin(), table.end());
  }
  int refused = 0;
  for (std::size_t byte = 0; byte < whole.size(); ++byte) {
    const auto table = table_of(region);
    std::copy(whole.begin(), whole.end(), table.begin());
    table[byte] ^= static_cast<std::uint8_t>(1 + random() % 255);
    try {
      Map map = Map::open(region, "map");
      ASSERT_EQ(map.verify(), "") << "byte " << byte;
      const U64 size = map.size();
      ASSERT_LE(size, held_.size() + 1) << "byte " << byte;
      ASSERT_GE(size + 1, held_.size()) << "byte " << byte;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), Errc::damaged) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 50);
}

// Everything of a map that may be damaged: its header, its word of growth, its table, levels and
// values, of one that never grew, one that grows and one that has grown. In each round some bytes
// of one of them are flipped, or drawn, or are another one's. Opening says so by its own words; or
// the map does all that it can do, and is sound.
TEST_F(HashMapDamage, OfAnythingEndsInAClearErrorOrASoundMap) {
  std::mt19937_64 random(test_seed());
  for (int growths = 0; growths < 3; ++growths) {
    {
      Opened opened = Opened::open(path());
      if (growths != 0) opened.map->grow();
      if (growths == 2) opened.map->reserve(0);
      opened.map->migrate(3);
      opened.close();
    }
    Region region = open_region();
    std::vector<std::vector<std::uint8_t>> whole;
    std::vector<std::span<std::uint8_t>> objects;
    for (const ObjectInfo& info : region.objects()) {
      auto* const first = static_cast<std::uint8_t*>(region.address(info));
      objects.emplace_back(first, info.bytes());
      whole.emplace_back(first, first + info.bytes());
    }
    int refused = 0;
    const int rounds = static_cast<int>(some_of(1200));
    for (int round = 0; round < rounds; ++round) {
      SCOPED_TRACE(detail::concat("growths ", growths, " round ", round));
      for (std::size_t i = 0; i < objects.size(); ++i) {
        std::copy(whole[i].begin(), whole[i].end(), objects[i].begin());
      }
      const auto object = objects[random() % objects.size()];
      std::size_t at = random() % object.size();
      if (random() % 4 == 0) at = random() % std::min<std::size_t>(object.size(), 256);
      const std::size_t bytes = std::min<std::size_t>(object.size() - at, 1 + random() % 16);
      const auto other = objects[random() % objects.size()];
      const int kind = static_cast<int>(random() % 3);
      for (std::size_t i = at; i < at + bytes; ++i) {
        if (kind == 0) object[i] ^= static_cast<std::uint8_t>(1u << random() % 8);
        if (kind == 1) object[i] = static_cast<std::uint8_t>(random());
        if (kind == 2) object[i] = other[(i * 8 + random() % 8) % other.size()];
      }
      refused += is_refused(region);
    }
    EXPECT_GT(refused, rounds / 20);
    EXPECT_LT(refused, rounds);
    for (std::size_t i = 0; i < objects.size(); ++i) {
      std::copy(whole[i].begin(), whole[i].end(), objects[i].begin());
    }
    ASSERT_NO_FATAL_FAILURE(EXPECT_FALSE(is_refused(region)));
    region.abandon();
  }
}

// A header whose sum is right, as no damage leaves it: of parameters that no map has.
TEST_F(HashMapDamage, OfParametersUnderARightSumIsRefused) {
  Region region = open_region();
  auto& header = *static_cast<durable::Header*>(region.address(region.object("map.header")));
  const durable::Header whole = header;
  std::mt19937_64 random(test_seed());
  for (int round = 0; round < 2000; ++round) {
    SCOPED_TRACE(round);
    header = whole;
    const std::size_t field = random() % (sizeof(map::MapParameters) / 4);
    const std::uint32_t drawn = random() % 2 == 0   ? 1u << random() % 32
                                : random() % 2 == 0 ? static_cast<std::uint32_t>(random())
                                                    : static_cast<std::uint32_t>(random() % 40);
    std::memcpy(header.parameters + field * 4, &drawn, 4);
    if (random() % 2 == 0) {  // two of them
      const std::uint32_t more = 1u << random() % 32;
      std::memcpy(header.parameters + random() % (sizeof(map::MapParameters) / 4) * 4, &more, 4);
    }
    header.checksum = durable::checksum_of(header);
    (void)is_refused(region);
  }
  header = whole;
  EXPECT_FALSE(is_refused(region));
}

// Slots as a crash may leave them, and duplicates, which it cannot: each is put in order, counted.
TEST_F(HashMapDamage, OpeningClearsWhatIsNoPairAndResolvesDuplicates) {
  Region region = open_region();
  word(slot_of(region, 5)) = 0;  // its insertion was cut off
  word(slot_of(region, 6)) = 1;  // it was erased
  key(slot_of(region, 7)) = 0;   // it was erased, and the word stayed
  // Key 8 once more, in a slot of one of its other buckets.
  const auto eight = slot_of(region, 8);
  const auto table = table_of(region);
  const std::uint32_t top = static_cast<std::uint32_t>(table.size() / kBucketBytes / 3 * 2);
  using Shape = detail::MapShape<U64, MapConfig<8>>;
  int copies = 0;
  for (unsigned which = 0; which < 2; ++which) {
    for (unsigned level = 0; level < 2; ++level) {
      std::uint8_t* const bucket =
          &table[Shape::bucket_at(top, Shape::top_bucket(top, 8, which), level) * kBucketBytes];
      for (std::size_t way = 0; way < 2; ++way) {
        if (bucket == eight.first || key({bucket, way}) != 0 || word({bucket, way}) != 0) continue;
        if (copies > 0) continue;
        key({bucket, way}) = key(eight);
        word({bucket, way}) = word(eight);
        ++copies;
      }
    }
  }
  ASSERT_EQ(copies, 1);
  for (int time = 0; time < 2; ++time) {
    Map map = Map::open(region, "map");
    EXPECT_EQ(map.recovery().pairs, held_.size() - 3);
    EXPECT_EQ(map.recovery().cleared, time == 0 ? 2u : 0u);
    EXPECT_EQ(map.recovery().erased, time == 0 ? 1u : 0u);
    EXPECT_EQ(map.recovery().duplicates, time == 0 ? 1u : 0u);
    EXPECT_EQ(map.verify(), "");
    const std::vector<U64> keys{8, 9};
    std::vector<std::uint8_t> found(2);
    map.contains(keys.data(), found.data(), 2);
    EXPECT_EQ(found, (std::vector<std::uint8_t>{1, 1}));
  }
}

}  // namespace
}  // namespace holdfast::test
