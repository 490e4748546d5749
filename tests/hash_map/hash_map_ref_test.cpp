// Operations of kernels on few keys at once. What they were answered has to be what some order of
// them answers, in which each stands between its call and its return; key by key. The search for
// that order knows nothing of the map.
#include "hash_map/hash_map_ref_test.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <type_traits>

#include "hash_map/map_test.hpp"
#include "support/error_of.hpp"
#include "support/linearizable.hpp"
#include "support/share.hpp"
#if defined(HOLDFAST_BACKEND_CPU)
#include "holdfast/cpu/executor.hpp"
#endif

namespace holdfast::test {
namespace {

using U64 = std::uint64_t;
static_assert(std::is_trivially_copyable_v<HashMapRef<U64>>);
using State = std::optional<U64>;  // a key's value, or none

// A step with what it set, and got.
struct Called {
  MapStep step;
  U64 set;
  U64 got;
  int behind = -1;  // that of these, which comes before it
};

// Whether the answer is what a key in this state gives; changes the state.
bool answers(const Called& called, State& state) {
  const auto puts = [&](bool keeps) {
    switch (called.step.status) {
      case MapStatus::inserted:
        if (state) return false;
        state = called.set;
        return true;
      case MapStatus::full:
        return !state.has_value();
      case MapStatus::kept:
        return keeps && state.has_value();
      case MapStatus::assigned:
        if (keeps || !state) return false;
        state = called.set;
        return true;
      default:
        return false;
    }
  };
  switch (called.step.call) {
    case MapCall::insert:
      return puts(true);
    case MapCall::insert_or_assign:
      return puts(false);
    case MapCall::assign:
      if (called.step.status == MapStatus::absent) return !state.has_value();
      return called.step.status == MapStatus::assigned && puts(false);
    case MapCall::find_or_insert:
      if (!puts(true)) return false;
      return called.step.status == MapStatus::full || called.got == *state;
    case MapCall::erase:
      if (called.step.status == MapStatus::absent) return !state.has_value();
      if (called.step.status != MapStatus::erased || !state) return false;
      state.reset();
      return true;
    case MapCall::accumulate:
      if (called.step.status == MapStatus::absent) return !state.has_value();
      if (called.step.status != MapStatus::assigned || !state) return false;
      *state += called.set;
      return true;
    case MapCall::find:
      return called.step.found != 0 ? state.has_value() && called.got == *state
                                    : !state.has_value();
    default:
      return (called.step.found != 0) == state.has_value();
  }
}

std::string text_of(const std::vector<Called>& calls) {
  static constexpr const char* kNames[] = {
      "insert", "insert_or_assign", "assign",    "find_or_insert", "erase",
      "find",   "contains",         "accumulate"};
  std::string text;
  for (const Called& called : calls) {
    text += detail::concat("  ", called.step.begun, "..", called.step.ended, " ",
                           kNames[static_cast<int>(called.step.call)], " set ", called.set,
                           " status ", static_cast<int>(called.step.status), " found ",
                           called.step.found, " got ", called.got, "\n");
  }
  return text;
}

// Keys by numbers. Those of 16 bytes and more, of one history, have one label.
template <class Key, unsigned Width>
class Histories {
 public:
  using Map = HashMap<Key, MapConfig<Width>>;
  using Opened = MapOpened<Map>;

  // `growing`: on keys of the level that is emptied, from which nothing moves.
  Histories(const std::string& path, std::uint32_t value_bytes, U64 seed, bool growing)
      : random_(seed),
        growing_table_(growing),
        opened_(Opened::create(path, map_options(growing      ? 96
                                                 : Width == 4 ? 12
                                                              : 2 * Width,
                                                 value_bytes, 512))) {
    if (growing) grow();
  }
  bool exhausted() const { return growing_ && old_.size() < 3; }

  // One kernel of inserts of keys that are not there, by a group each.
  void race(unsigned groups) {
    const std::vector<U64> keys{next_, next_ + 1, next_ + 2};
    std::map<U64, State> first;
    for (const U64 key : keys) first[key];
    std::vector<MapStep> steps(groups);
    std::vector<U64> numbers(groups);
    for (std::size_t i = 0; i < groups; ++i) {
      steps[i].call = MapCall::insert;
      steps[i].key = keys[random_() % keys.size()];
      numbers[i] = next_++;
    }
    std::vector<std::uint32_t> out;
    make(steps, numbers, out, groups, 1);
    judge(steps, numbers, out, first);
  }

  // One kernel of random steps on one to three keys, from a random state, and its end; `beside`: a
  // batch of the host's on the same keys, meanwhile.
  void run(unsigned groups, unsigned each, unsigned erase_percent, bool beside) {
    const std::vector<U64> keys = draw_keys();
    std::map<U64, State> first;
    for (const U64 key : keys) {
      first[key];
      const Key itself = key_of(key);
      if (random_() % 2 == 0) {
        opened_.map->erase(&itself, 1);
        continue;
      }
      first[key] = next_++;
      const auto value = opened_.values_of({*first[key]});
      const MapResult put = opened_.map->insert_or_assign(&itself, value.data(), 1);
      ASSERT_EQ(growing_ ? put.assigned : put.inserted, 1u);
    }
    const std::size_t count = std::size_t{groups} * each;
    std::vector<MapStep> steps(count);
    std::vector<U64> numbers(count);
    for (std::size_t i = 0; i < count; ++i) {
      const bool erases = random_() % 100 < erase_percent;
      steps[i].call = erases ? MapCall::erase
                             : static_cast<MapCall>(random_() % static_cast<int>(MapCall::kinds));
      steps[i].key = keys[random_() % keys.size()];
      numbers[i] = next_++;
    }
    std::vector<std::uint32_t> out;
    batch_ = beside ? keys : std::vector<U64>();
    make(steps, numbers, out, groups, each);
    judge(steps, numbers, out, first);
  }

 private:
  // Fills the table, and leaves what is on its lower level.
  void grow() {
    std::vector<U64> numbers(200);
    for (auto& number : numbers) number = random_() >> (std::is_integral_v<Key> ? 1 : 24);
    std::unordered_map<Key, U64> number_of;
    std::vector<Key> keys;
    for (const U64 number : numbers) keys.push_back(key_of(number));
    for (std::size_t i = 0; i < keys.size(); ++i) number_of[keys[i]] = numbers[i];
    opened_.map->insert(keys.data(), opened_.values_of(numbers).data(), keys.size());
    const U64 capacity = opened_.map->capacity(), above = capacity / 3 * 2;
    keys.resize(above);
    keys.resize(opened_.map->export_batch(0, above, keys.data(), nullptr));
    opened_.map->erase(keys.data(), keys.size());
    keys.resize(capacity - above);
    keys.resize(opened_.map->export_batch(above, keys.size(), keys.data(), nullptr));
    for (const Key& key : keys) old_.push_back(number_of.at(key));
    ASSERT_GT(old_.size(), 3u);
    growing_ = true;
    opened_.map->grow();
  }
  Key key_of(U64 number) const {
    if constexpr (std::is_integral_v<Key>) {
      return number;
    } else {
      // In a table that grows as many labels as fill it.
      return alike_key<Key>(growing_table_ ? number % 64 : 0, number);
    }
  }
  std::vector<U64> draw_keys() {
    std::vector<U64> keys(1 + random_() % 3);
    for (std::size_t i = 0; i < keys.size(); ++i) {
      keys[i] = i + 1;
      if (!growing_) continue;
      keys[i] = old_.back();
      old_.pop_back();
    }
    return keys;
  }

  void make(std::vector<MapStep>& steps, std::vector<U64>& numbers, std::vector<std::uint32_t>& out,
            unsigned groups, unsigned each) {
    std::vector<std::uint32_t> values = opened_.values_of(numbers);
    const std::size_t words = values.size() / numbers.size();
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].call != MapCall::accumulate) continue;
      // The value of a sum is the sum, but for what write_value() adds to each word.
      for (std::uint32_t word = 2; word < words; ++word) values[i * words + word] -= word;
    }
    out.assign(values.size(), 0);
    std::vector<Key> keys;
    for (const MapStep& step : steps) keys.push_back(key_of(step.key));
    const DeviceBuffer<Key> keys_there(keys.size());
    const DeviceBuffer<MapStep> steps_there(steps.size());
    const DeviceBuffer<std::uint32_t> values_there(values.size()), out_there(values.size());
    const DeviceBuffer<unsigned long long> clock(1);
    Stream stream;
    copy_async(stream, keys_there.data(), keys.data(), keys_there.bytes());
    copy_async(stream, steps_there.data(), steps.data(), steps_there.bytes());
    copy_async(stream, values_there.data(), values.data(), values_there.bytes());
    make_steps<Key, Width>(stream, *opened_.map,
                           {steps_there.data(), keys_there.data(), each, values_there.data(),
                            out_there.data(), clock.data(), groups},
                           2);
    of_kernel_ = steps.size();
    std::vector<MapStep> made = batch_.empty() ? std::vector<MapStep>() : make_batch(numbers);
    copy_async(stream, steps.data(), steps_there.data(), steps_there.bytes());
    copy_async(stream, out.data(), out_there.data(), out_there.bytes());
    stream.synchronize();
    steps.insert(steps.end(), made.begin(), made.end());
    if (!made.empty()) out.insert(out.end(), batch_out_.begin(), batch_out_.end());
  }

  // One batch of any kind. Of its moments it is known that they are within those of the kernel's
  // call, so that each of its operations may come anywhere. Appends what it sets, and got.
  std::vector<MapStep> make_batch(std::vector<U64>& numbers) {
    if (random_() % 3 == 0) return make_mixed_batch(numbers);
    const std::size_t count = batch_.size();
    std::vector<U64> set(count);
    for (U64& number : set) number = next_++;
    const auto call = static_cast<MapCall>(random_() % static_cast<int>(MapCall::kinds));
    std::vector<std::uint32_t> values = opened_.values_of(set), got(values.size());
    const std::size_t words = values.size() / count;
    std::vector<MapStatus> status(count);
    std::vector<std::uint8_t> found(count);
    std::vector<Key> named;
    for (const U64 number : batch_) named.push_back(key_of(number));
    const Key* const keys = named.data();
    Map& map = *opened_.map;
    switch (call) {
      case MapCall::insert:
        map.insert(keys, values.data(), count, status.data());
        break;
      case MapCall::insert_or_assign:
        map.insert_or_assign(keys, values.data(), count, status.data());
        break;
      case MapCall::assign:
        map.assign(keys, values.data(), count, status.data());
        break;
      case MapCall::find_or_insert:
        map.find_or_insert(keys, values.data(), got.data(), count, status.data());
        break;
      case MapCall::erase:
        map.erase(keys, count, status.data());
        break;
      case MapCall::accumulate:
        for (std::size_t i = 0; i < values.size(); ++i) {
          if (i % words >= 2) values[i] -= static_cast<std::uint32_t>(i % words);
        }
        map.accumulate(keys, values.data(), count, status.data());
        break;
      case MapCall::find:
        map.find(keys, got.data(), found.data(), count);
        break;
      default:
        map.contains(keys, found.data(), count);
    }
    std::vector<MapStep> steps;
    for (std::size_t i = 0; i < count; ++i) {
      steps.push_back({call, status[i], found[i], batch_[i], 0, ~0ull - 2});
    }
    numbers.insert(numbers.end(), set.begin(), set.end());
    batch_out_ = std::move(got);
    return steps;
  }

  // One of several kinds, of which several may have one key: those come one after the other.
  std::vector<MapStep> make_mixed_batch(std::vector<U64>& numbers) {
    const std::size_t keys = batch_.size();
    for (int i = 0; i < 4; ++i) batch_.push_back(batch_[random_() % keys]);
    const std::size_t count = batch_.size();
    std::vector<MapOp> kinds(count);
    for (MapOp& kind : kinds) kind = static_cast<MapOp>(1 + random_() % 6);
    std::vector<U64> set(count);
    for (U64& number : set) number = next_++;
    std::vector<Key> named;
    for (const U64 number : batch_) named.push_back(key_of(number));
    const auto values = opened_.values_of(set);
    batch_out_.assign(values.size(), 0);
    std::vector<MapStatus> status(count);
    opened_.map->apply(kinds.data(), named.data(), values.data(), batch_out_.data(), count,
                       status.data());
    std::vector<MapStep> steps;
    for (std::size_t i = 0; i < count; ++i) {
      const auto call = kinds[i] == MapOp::find
                            ? MapCall::find
                            : static_cast<MapCall>(static_cast<int>(kinds[i]) - 1);
      steps.push_back({call, status[i], status[i] == MapStatus::kept, batch_[i], 0, ~0ull - 2});
    }
    numbers.insert(numbers.end(), set.begin(), set.end());
    return steps;
  }

  void judge(const std::vector<MapStep>& steps, const std::vector<U64>& numbers,
             const std::vector<std::uint32_t>& out, const std::map<U64, State>& first) {
    const std::uint32_t bytes = opened_.map->value_bytes();
    ASSERT_EQ(opened_.map->verify(), "");
    opened_.map->quiesce();
    ASSERT_EQ(opened_.map->verify(), "");
    const auto left = opened_.contents();
    for (const auto& [key, state] : first) {
      std::vector<Called> calls;
      int of_batch = -1;  // the latest one
      for (std::size_t i = 0; i < steps.size(); ++i) {
        if (steps[i].key != key) continue;
        const int behind = of_batch;
        if (i >= of_kernel_) of_batch = static_cast<int>(calls.size());
        const bool got =
            (steps[i].call == MapCall::find && steps[i].found != 0) ||
            (steps[i].call == MapCall::find_or_insert && steps[i].status != MapStatus::full);
        calls.push_back({steps[i], numbers[i],
                         got ? read_value(out.data() + i * bytes / 4, bytes) : 0, behind});
      }
      // What is left is what a last lookup finds.
      const auto there = left.find(key_of(key));
      MapStep last{MapCall::find, {}, there != left.end(), key, ~0ull - 1, ~0ull};
      calls.push_back({last, 0, last.found != 0 ? there->second : 0});
      ASSERT_TRUE(is_explained(calls, state))
          << "key " << key << ", at first " << (state ? *state : 0) << ":\n"
          << text_of(calls);
    }
    std::vector<Key> keys;
    for (const auto& [key, state] : first) {
      if (left.count(key_of(key)) != 0) keys.push_back(key_of(key));
    }
    ASSERT_EQ(left.size(), keys.size() + old_.size());
    opened_.map->erase(keys.data(), keys.size());
    ASSERT_EQ(opened_.map->size(), old_.size());
    ASSERT_EQ(opened_.map->verify(), "");
  }

  std::mt19937_64 random_;
  U64 next_ = 1;
  const bool growing_table_;
  Opened opened_;
  bool growing_ = false;
  std::size_t of_kernel_ = 0;             // steps
  std::vector<U64> batch_;                // keys of the batch beside the kernel
  std::vector<std::uint32_t> batch_out_;  // what it got
  std::vector<U64> old_;                  // keys on the level that is emptied, of no history yet
};

class HashMapRefTest : public Scratch {
 protected:
  // Each under a schedule of its own.
  template <unsigned Width, class Key = U64>
  void explore(std::uint32_t value_bytes, unsigned histories, bool growing = false,
               bool beside = false, bool racing = false) {
    const U64 seed = test_seed();
    std::mt19937_64 random(seed);
    std::optional<Histories<Key, Width>> all;
    for (U64 i = 0; i < some_of(histories, 15); ++i) {
#if defined(HOLDFAST_BACKEND_CPU)
      cpu::set_schedule({});
#endif
      if (!all || all->exhausted()) {
        all.reset();
        all.emplace(path(std::to_string(i)), value_bytes, random(), growing);
      }
#if defined(HOLDFAST_BACKEND_CPU)
      cpu::Schedule schedule = cpu::schedule();
      schedule.seed = random() | 1;
      cpu::set_schedule(schedule);
#endif
      if (racing) {
        ASSERT_NO_FATAL_FAILURE(all->race(3 + static_cast<unsigned>(random() % 4)))
            << "history " << i << ", seed " << seed;
        continue;
      }
      const unsigned groups = 2 + static_cast<unsigned>(random() % 5);
      const unsigned each = 1 + static_cast<unsigned>(random() % (24 / groups));
      const unsigned erase_percent = random() % 2 == 0 ? 15 : 40;
      ASSERT_NO_FATAL_FAILURE(all->run(groups, each, erase_percent, beside))
          << "history " << i << ", seed " << seed;
    }
  }
  void TearDown() override {
#if defined(HOLDFAST_BACKEND_CPU)
    cpu::set_schedule({});
#endif
  }
};

TEST_F(HashMapRefTest, OperationsOnFewKeysAreLinearisableWidth4) { explore<4>(8, 3000); }
TEST_F(HashMapRefTest, OperationsOnFewKeysAreLinearisableWidth4InPlaces) { explore<4>(24, 2500); }
TEST_F(HashMapRefTest, OperationsOnFewKeysAreLinearisableWidth8) { explore<8>(8, 2500); }
TEST_F(HashMapRefTest, OperationsOnFewKeysAreLinearisableWidth8InPlaces) { explore<8>(16, 1500); }
TEST_F(HashMapRefTest, OperationsOnFewKeysAreLinearisableWidth32) { explore<32>(12, 600); }

// Batches beside kernels with refs make their operations by the contract of refs.
TEST_F(HashMapRefTest, BatchesBesideRefsAreLinearisableWidth4) { explore<4>(8, 200, false, true); }
TEST_F(HashMapRefTest, BatchesBesideRefsAreLinearisableWidth8InPlaces) {
  explore<8>(16, 150, false, true);
}
TEST_F(HashMapRefTest, BatchesBesideRefsOnKeysThatHaveNotMovedYetAreLinearisable) {
  explore<8>(16, 100, true, true);
}

TEST_F(HashMapRefTest, OperationsOnKeysThatHaveNotMovedYetAreLinearisableWidth4) {
  explore<4>(16, 700, true);
}
TEST_F(HashMapRefTest, OperationsOnKeysThatHaveNotMovedYetAreLinearisableWidth8) {
  explore<8>(8, 500, true);
}

TEST_F(HashMapRefTest, BatchesBesideRefsOnKeysOfOneLabelAreLinearisable) {
  explore<8, Bytes<16>>(16, 100, false, true);
}
TEST_F(HashMapRefTest, InsertsOfNewKeysOfOneLabelAreLinearisable) {
  explore<4, Bytes<16>>(8, 300, false, false, true);
}
TEST_F(HashMapRefTest, OperationsOnKeysOfOneLabelAreLinearisableWidth4) {
  explore<4, Bytes<16>>(8, 1000);
}
TEST_F(HashMapRefTest, OperationsOnKeysOfOneLabelAreLinearisableWidth8InPlaces) {
  explore<8, Bytes<40>>(16, 500);
}
TEST_F(HashMapRefTest, OperationsOnKeysOfOneLabelThatHaveNotMovedYetAreLinearisableWidth4) {
  explore<4, Bytes<40>>(16, 150, true);
}
TEST_F(HashMapRefTest, OperationsOnKeysOfOneLabelThatHaveNotMovedYetAreLinearisableWidth8) {
  explore<8, Bytes<16>>(8, 100, true);
}

// Groups of a warp take the operations of their threads in turn.
TEST_F(HashMapRefTest, ThreadsHaveTheirOperationsMadeInTurn) {
  using Map = HashMap<U64, MapConfig<32>>;
  auto opened = MapOpened<Map>::create(path(), map_options(400, 8));
  PinnedBuffer<U64> keys(150);
  typename MapOpened<Map>::Oracle oracle;
  for (U64 i = 0; i < 150; ++i) keys[i] = 7 * i, oracle[7 * i] = 7 * i;
  insert_by_thread(opened.map->stream(), *opened.map, keys.data(), 150);
  opened.map->stream().synchronize();
  EXPECT_EQ(opened.map->size(), 150u);
  opened.map->quiesce();
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

// Four levels are fuller than two when a key does not fit.
TEST_F(HashMapRefTest, MapsOfOtherShapesAndHashesAreMadeWhereTheyAreUsed) {
  auto region = Region::create(path(), options(1 << 20));
  double load = 0;
  EXPECT_EQ(fill_other_map(region, &load), "");
  EXPECT_GT(load, 0.9);
  using Default = HashMap<U64>;
  EXPECT_EQ(error_of([&] { Default::open(region, "other"); }, {"4 levels", "2 levels"}),
            Errc::invalid_argument);
}

TEST_F(HashMapRefTest, KeysAreClassesOfTheProgram) {
  auto region = Region::create(path(), options(1 << 20));
  EXPECT_EQ(use_named_keys(region), "");
}

TEST_F(HashMapRefTest, MapsOfOtherShapesGrow) {
  auto region = Region::create(path(), options(1 << 20));
  EXPECT_EQ(grow_other_maps(region), "");
}

// While a ref is out batches follow its contract: places and slots come free when it has ended.
TEST_F(HashMapRefTest, NothingComesFreeWhileARefIsOut) {
  using Map = HashMap<U64, MapConfig<4>>;
  MapOptions shape = map_options(12, 16, 8);
  shape.value_places = 6;
  auto opened = MapOpened<Map>::create(path(), shape);
  const U64 key = 3;
  const auto insert = [&](U64 number) {
    return opened.map->insert_or_assign(&key, opened.values_of({number}).data(), 1);
  };
  const DeviceBuffer<unsigned long long> clock(1);
  make_steps<U64, 4>(opened.map->stream(), *opened.map,
                     {nullptr, nullptr, 0, nullptr, nullptr, clock.data(), 1}, 1);
  opened.map->stream().synchronize();
  EXPECT_TRUE(opened.map->stats().refs_out);
  for (U64 i = 0; i < 3; ++i) {
    ASSERT_EQ(insert(i).inserted, 1u);
    ASSERT_EQ(opened.map->size(), 1u);
    ASSERT_EQ(insert(10 + i).assigned, 1u);
    ASSERT_EQ(opened.map->erase(&key, 1).erased, 1u);
    ASSERT_EQ(opened.map->size(), 0u);
  }
  EXPECT_EQ(insert(9).no_value, 1u);
  EXPECT_EQ(opened.map->verify(), "");
  opened.map->quiesce();
  EXPECT_FALSE(opened.map->stats().refs_out);
  EXPECT_EQ(opened.map->stats().free_places, 6u);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({}));
  EXPECT_EQ(insert(9).inserted, 1u);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({{key, 9}}));
}

// A commit, which looks at pages that kernels have marked, has what they did; a power cut takes the
// rest.
TEST_F(HashMapRefTest, CommitsHaveWhatKernelsDid) {
  using Map = HashMap<U64, MapConfig<32>>;
  auto opened = MapOpened<Map>::create(path(), map_options(400, 8));
  PinnedBuffer<U64> keys(100);
  typename MapOpened<Map>::Oracle oracle;
  opened.region->commit();
  for (U64 i = 0; i < 100; ++i) keys[i] = i, oracle[i] = i;
  insert_by_thread(opened.map->stream(), *opened.map, keys.data(), 100);
  opened.map->stream().synchronize();
  opened.map->erase(keys.data(), 30);
  for (U64 i = 0; i < 30; ++i) oracle.erase(i);
  opened.map->insert_or_assign(keys.data() + 90, opened.values_of({7}).data(), 1);
  oracle[90] = 7;
  opened.region->commit();
  opened.map->erase(keys.data() + 50, 20);
  opened.abandon();
  opened = MapOpened<Map>::open(path(), {}, last_commit());
  EXPECT_EQ(opened.map->recovery().erased, 30u);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

// What kernels with a ref left is there after they were killed, too, and counted.
TEST_F(HashMapRefTest, OpeningPutsInOrderWhatARefLeft) {
  using Map = HashMap<U64, MapConfig<4>>;
  auto opened = MapOpened<Map>::create(path(), map_options(12, 16, 8));
  (void)opened.map->ref();
  const std::vector<U64> keys = {1, 2};
  opened.map->insert(keys.data(), opened.values_of(keys).data(), 2);
  opened.map->erase(keys.data(), 1);
  opened.abandon();
  opened = MapOpened<Map>::open(path());
  EXPECT_EQ(opened.map->recovery().pairs, 1u);
  EXPECT_EQ(opened.map->recovery().erased, 1u);
  EXPECT_EQ(opened.map->recovery().cleared, 0u);
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds({{2, 2}}));
}

TEST_F(HashMapRefTest, WhileRefsAreOutAMapIsNotOpenedAgain) {
  using Map = HashMap<U64>;
  auto opened = MapOpened<Map>::create(path(), map_options(100, 16));
  opened.map->ref();
  const auto open = [&] { Map::open(*opened.region, "map"); };
  EXPECT_EQ(error_of(open, {"hash map 'map'", "quiesce()"}), Errc::invalid_argument);
  opened.map->quiesce();
  Map again = Map::open(*opened.region, "map");
  EXPECT_EQ(error_of([&] { opened.map->quiesce(); }), Errc::closed);
  again.ref();
  opened.map.reset();  // is not the one that has refs out
  EXPECT_EQ(error_of(open), Errc::invalid_argument);
  { const Map ends = std::move(again); }
  open();
}

}  // namespace
}  // namespace holdfast::test
