// Batches that evict, in processes that are killed: each pair is there whole or not at all, and of
// what a call that returned has left nothing is missing.
#include <thread>

#include "hash_map/map_test.hpp"
#include "support/killed_child.hpp"

namespace holdfast::test {
namespace {

using U64 = std::uint64_t;
using U32 = std::uint32_t;

template <class K, U32 ValueBytes, bool WithDirectory>
struct Kind {
  using Key = K;
  using Map = HashMap<K, MapConfig<8>>;
  using Opened = MapOpened<Map>;
  static MapOptions shape() {
    MapOptions options = map_options(60, ValueBytes, 40);
    options.directory = WithDirectory ? MapOptions::Directory::on : MapOptions::Directory::off;
    options.scores = MapScores::lru;
    return options;
  }
  static Opened open(const std::string& path) {
    return Opened::open(path, {0, 0, shape().directory, {}, MapScores::lru});
  }
};
using Small = Kind<U64, 8, false>;
using Large = Kind<U64, 48, true>;
using Long = Kind<Bytes<24>, 16, false>;

// Batch `n`: of more keys than there are slots; values name it.
template <class Of>
std::vector<std::pair<typename Of::Key, U64>> numbered(U64 n, std::size_t count) {
  std::mt19937_64 random(n);
  std::vector<std::pair<typename Of::Key, U64>> batch;
  for (std::size_t i = 0; i < count; ++i) {
    batch.emplace_back(test_key<typename Of::Key>(random() % 400), (n + 1) << 8 | i);
  }
  return batch;
}

template <class Of>
struct Went {
  U64 next;  // 0: `key` went; else the batch is done, and this is the next one
  typename Of::Key key;
};

template <class Of>
std::vector<typename Of::Key> evict(const typename Of::Opened& opened, U64 n, std::size_t count) {
  std::vector<typename Of::Key> keys(count), gone(count);
  std::vector<U64> numbers(count);
  const auto batch = numbered<Of>(n, count);
  for (std::size_t i = 0; i < count; ++i) keys[i] = batch[i].first, numbers[i] = batch[i].second;
  const auto values = opened.values_of(numbers);
  std::vector<U32> out(values.size());
  const MapEviction said = opened.map->insert_and_evict(keys.data(), values.data(), nullptr, count,
                                                        gone.data(), out.data(), nullptr);
  if (said.result.no_value != 0) std::abort();
  gone.resize(said.count());
  return gone;
}

template <class Of>
void run_until_killed() {
  const auto opened = Of::open(from_environment("HOLDFAST_TEST_PATH"));
  for (U64 n = std::stoull(from_environment("HOLDFAST_TEST_BATCH"));; ++n) {
    for (const auto& key : evict<Of>(opened, n, 40)) report(Went<Of>{0, key});
    report(Went<Of>{n + 1, {}});
  }
}

// Behind a batch that was cut off: no key of it has gone; of others as many at most as it has
// operations; what is there has its value from before, or that of the batch.
template <class Of>
void expect_cut_off(const typename Of::Opened& opened, const typename Of::Opened::Oracle& before,
                    U64 n, std::size_t count) {
  typename Of::Opened::Oracle after;
  for (const auto& [key, number] : numbered<Of>(n, count)) after[key] = number;
  const auto now = opened.contents();
  std::size_t gone = 0;
  for (const auto& [key, number] : before) {
    const bool there = now.count(key) != 0;
    ASSERT_TRUE(there || after.count(key) == 0) << "key " << key << " of the batch is gone";
    gone += there ? 0 : 1;
  }
  ASSERT_LE(gone, after.size());
  for (const auto& [key, number] : now) {
    const auto was = before.find(key);
    const auto is = after.find(key);
    ASSERT_TRUE((was != before.end() && was->second == number) ||
                (is != after.end() && is->second == number))
        << "key " << key << " has the value " << number;
  }
  ASSERT_EQ(opened.map->size(), now.size());
  ASSERT_EQ(opened.map->verify(), "");
  const MapStats stats = opened.map->stats();
  if (stats.value_places != 0) {
    ASSERT_EQ(stats.free_places, stats.value_places - now.size());
  }
}

TEST(HashMapEvictChild, DISABLED_RunsUntilKilled) {
  const std::string kind = from_environment("HOLDFAST_TEST_KIND");
  if (kind == "0") run_until_killed<Small>();
  if (kind == "1") run_until_killed<Large>();
  run_until_killed<Long>();
}

class HashMapEvictKills : public Scratch {
 protected:
  template <class Of>
  void kill_at_any_moment(const char* kind) {
    std::mt19937_64 random(test_seed());
    Of::Opened::create(path(), Of::shape()).close();
    typename Of::Opened::Oracle held;
    U64 next = 0, evicted = 0;
    for (KillRounds rounds(8); rounds.another(evicted > 100);) {
      SCOPED_TRACE(rounds.number());
      {
        Child child("HashMapEvictChild.DISABLED_RunsUntilKilled",
                    {{"HOLDFAST_TEST_PATH", path()},
                     {"HOLDFAST_ARENA_DIR", arenas()},
                     {"HOLDFAST_TEST_KIND", kind},
                     {"HOLDFAST_TEST_BATCH", std::to_string(next)}});
        std::vector<typename Of::Key> gone;
        Went<Of> message{};
        const auto take = [&] {
          if (message.next == 0) return gone.push_back(message.key);
          for (const auto& [key, number] : numbered<Of>(next, 40)) held[key] = number;
          for (const auto& key : gone) held.erase(key);
          evicted += gone.size();
          gone.clear();
          next = message.next;
        };
        while (message.next == 0) {
          ASSERT_TRUE(child.read(message));
          take();
        }
        std::this_thread::sleep_for(
            std::chrono::microseconds(random() % rounds.most_microseconds()));
        child.kill();
        while (child.read(message)) take();
      }
      ::setenv("HOLDFAST_ARENA_DIR", arenas().c_str(), 1);
      auto opened = Of::open(path());
      ASSERT_NO_FATAL_FAILURE((expect_cut_off<Of>(opened, held, next, 40)));
      held = opened.contents();
      opened.abandon();
    }
  }
};

TEST_F(HashMapEvictKills, KilledAtAnyMomentEachPairIsWhole) { kill_at_any_moment<Small>("0"); }
TEST_F(HashMapEvictKills, KilledAtAnyMomentEachPairIsWholeWithPlaces) {
  kill_at_any_moment<Large>("1");
}
TEST_F(HashMapEvictKills, KilledAtAnyMomentEachPairIsWholeOfLongKeys) {
  kill_at_any_moment<Long>("2");
}

#ifdef HOLDFAST_INTERCEPT

template <class Of>
void die_at_a_fence() {
  const auto number = [](const char* name) { return std::stoull(from_environment(name)); };
  Reaper reaper(number("HOLDFAST_TEST_FENCES"));
  auto opened = Of::open(from_environment("HOLDFAST_TEST_PATH"));
  cpu::set_listener(&reaper);
  evict<Of>(opened, number("HOLDFAST_TEST_BATCH"), 8);
  cpu::set_listener(nullptr);
  opened.abandon();
}

TEST(HashMapEvictChild, DISABLED_DiesAtAFence) {
  const std::string kind = from_environment("HOLDFAST_TEST_KIND");
  kind == "0"   ? die_at_a_fence<Small>()
  : kind == "1" ? die_at_a_fence<Large>()
                : die_at_a_fence<Long>();
}

template <class Of>
void kill_at_every_fence(const std::string& path, const std::string& arenas, const char* kind) {
  auto opened = Of::Opened::create(path, Of::shape());
  for (U64 n = 0; opened.map->load_factor() < 1; ++n) evict<Of>(opened, n, 40);
  const auto held = opened.contents();
  opened.close();
  const auto look = [&](U64, bool finished) {
    opened = Of::open(path);
    ASSERT_NO_FATAL_FAILURE((expect_cut_off<Of>(opened, held, 1000, 8)));
    if (finished) {
      EXPECT_EQ(opened.map->load_factor(), 1.0);
    }
    opened.abandon();
  };
  kill_at_fences("HashMapEvictChild.DISABLED_DiesAtAFence", path, arenas,
                 {{"HOLDFAST_TEST_KIND", kind}, {"HOLDFAST_TEST_BATCH", "1000"}}, 5000,
                 all_below(0, 1), look);
}

TEST_F(HashMapEvictKills, KilledAtEveryFenceEachPairIsWhole) {
  kill_at_every_fence<Small>(path("small"), arenas(), "0");
  kill_at_every_fence<Large>(path("large"), arenas(), "1");
  kill_at_every_fence<Long>(path("long"), arenas(), "2");
}

#endif  // HOLDFAST_INTERCEPT

}  // namespace
}  // namespace holdfast::test
