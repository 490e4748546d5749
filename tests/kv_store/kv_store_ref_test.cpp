// Lookups in kernels: behind batches, beside them, and for how long a ref is good.
#include "kv_store/kv_store_ref_test.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>

#include "support/sanitized.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast::test {
namespace {

using Cache = KvStore::Cache;
using Keys = std::vector<std::uint64_t>;
using Map = std::map<std::uint64_t, std::uint64_t>;

static_assert(std::is_trivially_copyable_v<KvStoreRef>);

constexpr std::uint64_t kUntouched = 0xfeedull << 40;  // what stands where nothing was found

struct Answer {
  bool found;
  std::uint64_t value;
};

// Asks for the same keys again and again, in a stream and memory of its own.
class Asker {
 public:
  Asker(const KvStoreRef& ref, Looking how, const Keys& keys)
      : ref_(ref), how_(how), keys_(keys.size()), values_(keys.size()), found_(keys.size()) {
    std::copy(keys.begin(), keys.end(), keys_.data());
  }
  std::vector<Answer> ask() { return ask(stream_); }
  std::vector<Answer> ask(Stream& stream) {
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = kUntouched;
    look_up(stream, ref_, how_, keys_.data(), values_.data(), found_.data(), keys_.size());
    stream.synchronize();
    std::vector<Answer> answers;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      answers.push_back({found_[i] != 0, values_[i]});
    }
    return answers;
  }

 private:
  KvStoreRef ref_;
  Looking how_;
  PinnedBuffer<std::uint64_t> keys_, values_;
  PinnedBuffer<std::uint8_t> found_;
  Stream stream_;
};

void expect_answers(const std::vector<Answer>& answers, const Keys& keys, const Map& expected) {
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const auto pair = expected.find(keys[i]);
    ASSERT_EQ(answers[i].found, pair != expected.end()) << "key " << keys[i];
    ASSERT_EQ(answers[i].value, pair == expected.end() ? kUntouched : pair->second)
        << "key " << keys[i];
  }
}

using Layout = KvStore::Layout;
using Index = KvStore::Index;
using Variant = std::tuple<Cache, Looking, Layout, Index>;

class KvStoreRefTest : public Scratch, public ::testing::WithParamInterface<Variant> {
 protected:
  static Cache cache() { return std::get<Cache>(GetParam()); }
  static Looking how() { return std::get<Looking>(GetParam()); }
  static bool is_log() { return std::get<Layout>(GetParam()) == Layout::log; }

  static Index index() { return std::get<Index>(GetParam()); }

  void create(std::uint64_t capacity, std::uint32_t max_batch) {
    KvStore::Options shape{capacity, max_batch, cache()};
    shape.layout = std::get<Layout>(GetParam());
    shape.index = index();
    region_ =
        std::make_unique<Region>(Region::create(path(), options(KvStore::region_bytes(shape))));
    store_ = std::make_unique<KvStore>(KvStore::create(*region_, shape));
  }
  // As after a kill, or otherwise as the options say.
  void reopen(const OpenOptions& how_to_open = {}) {
    store_.reset();
    if (how_to_open.mode == OpenMode::read_only) {
      region_->close();
    } else {
      region_->abandon();
    }
    region_ = std::make_unique<Region>(Region::open(path(), how_to_open));
    store_ = std::make_unique<KvStore>(KvStore::open(*region_, cache(), index()));
  }
  KvStore::BatchResult set(const Keys& keys, const Keys& values) {
    return store_->set(keys.data(), values.data(), keys.size());
  }
  void expect(const KvStoreRef& ref, const Keys& keys, const Map& expected) const {
    expect_answers(Asker(ref, how(), keys).ask(), keys, expected);
  }

  std::unique_ptr<Region> region_;
  std::unique_ptr<KvStore> store_;
};

std::string name_of(const ::testing::TestParamInfo<Variant>& info) {
  const auto [cache, how, layout, index] = info.param;
  const std::string kept = index == Index::fingerprints ? "fingerprints"
                           : layout == Layout::log      ? "log"
                           : cache == Cache::automatic  ? "automatic"
                           : cache == Cache::on         ? "cached"
                                                        : "uncached";
  return kept + (how == Looking::alone ? "_alone" : "_by_warp");
}

INSTANTIATE_TEST_SUITE_P(
    Variants, KvStoreRefTest,
    ::testing::Combine(::testing::Values(Cache::automatic, Cache::off, Cache::on),
                       ::testing::Values(Looking::alone, Looking::by_warp),
                       ::testing::Values(Layout::in_place), ::testing::Values(Index::automatic)),
    name_of);
INSTANTIATE_TEST_SUITE_P(Log, KvStoreRefTest,
                         ::testing::Combine(::testing::Values(Cache::automatic),
                                            ::testing::Values(Looking::alone, Looking::by_warp),
                                            ::testing::Values(Layout::log),
                                            ::testing::Values(Index::whole, Index::fingerprints)),
                         name_of);

// In a stream of its own and in the store's; some keys are there, some were, and one can never be.
TEST_P(KvStoreRefTest, BehindABatchTheyAnswerWhatItLeft) {
  std::mt19937_64 random(test_seed());
  create(16 * 1024, 700);
  Keys all(3001);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  all.back() = KvStore::kReservedKey;
  Asker asker(store_->ref(), how(), all);
  Map oracle;
  ASSERT_NO_FATAL_FAILURE(expect_answers(asker.ask(), all, oracle));
  for (int round = 0; round < 12; ++round) {
    const std::size_t count = 1 + random() % 700;
    Keys keys(count), values(count);
    for (auto& key : keys) key = random() % 3000;
    for (auto& value : values) value = random();
    if (round % 3 == 2) {
      store_->erase(keys.data(), count);
      for (const auto key : keys) oracle.erase(key);
    } else {
      ASSERT_EQ(set(keys, values).evicted, 0u);
      for (std::size_t i = 0; i < count; ++i) oracle[keys[i]] = values[i];
    }
    ASSERT_NO_FATAL_FAILURE(
        expect_answers(round % 2 ? asker.ask() : asker.ask(store_->stream()), all, oracle));
  }
}

TEST_P(KvStoreRefTest, WhatIsFoundAmongEvictionsIsInTheStore) {
  if (is_log()) GTEST_SKIP() << "a log evicts nothing";
  std::mt19937_64 random(test_seed());
  create(64, 500);
  Keys all(400);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
  Asker asker(store_->ref(), how(), all);
  std::uint64_t evicted = 0;
  for (int round = 0; round < 6; ++round) {
    Keys keys(500), values(500);
    for (auto& key : keys) key = random() % 400;
    for (auto& value : values) value = random();
    evicted += set(keys, values).evicted;
    Keys kept(64), held(64);
    ASSERT_LE(store_->scan(kept.data(), held.data(), 64), 64u);
    kept.resize(store_->stats().records);
    Map there;
    for (std::size_t i = 0; i < kept.size(); ++i) there[kept[i]] = held[i];
    ASSERT_NO_FATAL_FAILURE(expect_answers(asker.ask(), all, there));
  }
  EXPECT_GT(evicted, 0u);
}

TEST_P(KvStoreRefTest, BehindABatchThatWasRefusedTheyAnswerWhatWasThere) {
  create(1000, 100);
  set({1, 2, 3}, {10, 20, 30});
  const KvStoreRef ref = store_->ref();
  EXPECT_EQ(error_of([&] {
              set({1, KvStore::kReservedKey, 4}, {11, 12, 13});
            }),
            Errc::invalid_argument);
  expect(ref, {1, 2, 3, 4, KvStore::kReservedKey}, {{1, 10}, {2, 20}, {3, 30}});
}

// Tails that say that every other slot is full, as no batch leaves them (of entries that say that
// the first way is empty, as it is): half of the batch is stored, and then taken back.
TEST_P(KvStoreRefTest, BehindABatchThatWasTakenBackTheyAnswerWhatWasThere) {
  if (is_log()) GTEST_SKIP() << "a log has no undo log";
  create(16 * 1024, 512);
  Keys keys(512), values(512);
  Map expected;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    keys[i] = i;
    expected[i] = values[i] = 1000 + i;
  }
  set(keys, values);
  const auto bytes_of = [&](const char* name) {
    const ObjectInfo info = region_->object(name);
    return std::span(static_cast<std::byte*>(region_->address(info)), info.bytes());
  };
  std::uint64_t first = 0;
  std::memcpy(&first, bytes_of("kvs.table").data(), sizeof(first));
  if (const std::uint64_t key = ~first; first != 0) {
    store_->erase(&key, 1);
    expected.erase(key);
  }
  store_.reset();
  std::uint64_t state = 0;  // docs/format.md
  std::memcpy(&state, bytes_of("kvs.tx").data() + 8, sizeof(state));
  const std::span<std::byte> log = bytes_of("kvs.log").subspan(kPageBytes);
  std::fill(log.begin(), log.end(), std::byte{0});
  for (std::size_t slot = 0; slot < 512; slot += 2) {
    const auto tail = static_cast<std::uint32_t>((state >> 2) % 65535 + 1) << 16 | 6;
    std::memcpy(log.data() + slot * sizeof(tail), &tail, sizeof(tail));
  }
  reopen();

  const KvStoreRef ref = store_->ref();
  for (auto& value : values) value += 1000;
  EXPECT_EQ(error_of([&] { set(keys, values); }), Errc::log_full);
  expect(ref, keys, expected);
}

// So large a table takes longer to be copied than a ref to be asked.
TEST_P(KvStoreRefTest, ARefOfAStoreThatWasOpenedFindsAllOfIt) {
  create(kSanitized ? 1 << 17 : is_log() ? some_of(1 << 21, 1 << 18) : 1 << 21, 4096);
  Keys keys(4096), values(4096);
  Map expected;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    keys[i] = i * 0x9e3779b97f4a7c15;
    values[i] = i;
    expected[keys[i]] = i;
  }
  set(keys, values);
  reopen();
  expect(store_->ref(), keys, expected);
}

TEST_P(KvStoreRefTest, ARefOutlivesWhatItsStoreAndRegionGoThrough) {
  create(16 * 1024, 100);
  const Keys keys{1, 2, 3};
  const KvStoreRef ref = store_->ref();
  set({1, 2}, {10, 20});
  region_->commit();
  region_->grow(region_->size() + (1 << 20));
  region_->allocate<std::uint64_t>("neighbour", 1 << 16);
  expect(ref, keys, {{1, 10}, {2, 20}});
  store_ = std::make_unique<KvStore>(std::move(*store_));
  const std::uint64_t gone = 1;
  store_->erase(&gone, 1);
  region_->remove("neighbour");
  region_->commit();
  expect(ref, keys, {{2, 20}});
}

TEST_P(KvStoreRefTest, ARegionThatIsOpenForReadingIsLookedUpToo) {
  create(1000, 10);
  set({1, 2}, {10, 20});
  reopen(for_reading());
  expect(store_->ref(), {1, 2, 3}, {{1, 10}, {2, 20}});
}

TEST_P(KvStoreRefTest, WithoutAStoreNothingIsFound) {
  expect(KvStoreRef(), {0, 1, KvStore::kReservedKey}, {});
}

// What lookups beside batches are held to. Of the keys, thirds: those that stay as they are, those
// whose value each batch replaces by its number, and those that come and go.
class Beside {
 public:
  static constexpr std::uint64_t kThird = 600;
  static constexpr std::uint64_t kAbsent = 100;  // further keys, which no batch names

  Beside(const KvStoreRef& ref, Looking how, const std::atomic<std::uint64_t>& begun,
         const std::atomic<std::uint64_t>& done)
      : begun_(begun), done_(done), asker_(ref, how, numbers(0, 3 * kThird + kAbsent)) {}

  static Keys numbers(std::uint64_t from, std::uint64_t to) {
    Keys result;
    for (std::uint64_t i = from; i < to; ++i) result.push_back(i);
    return result;
  }

  // Once. Returns whether a batch ran meanwhile.
  bool ask() {
    const std::uint64_t before = done_;
    const std::vector<Answer> answers = asker_.ask();
    const std::uint64_t after = begun_;
    for (std::uint64_t key = 0; key < answers.size(); ++key) {
      const Answer& answer = answers[key];
      if (key < kThird) {
        wrong_ += !answer.found || answer.value != key;
      } else if (key < 2 * kThird) {
        wrong_ += !answer.found || answer.value < before || answer.value > after;
      } else if (key >= 3 * kThird) {
        wrong_ += answer.found;
      }
    }
    return after != before;
  }
  std::uint64_t wrong() const { return wrong_; }

 private:
  const std::atomic<std::uint64_t>& begun_;
  const std::atomic<std::uint64_t>& done_;
  Asker asker_;
  std::uint64_t wrong_ = 0;
};

TEST_P(KvStoreRefTest, BesideBatchesEachKeyIsAsBeforeOrAsAfter) {
  constexpr std::uint64_t kThird = Beside::kThird;
  // Of so small a log segments are used again by nearly every batch.
  create(is_log() ? 2400 : 16 * 1024, 3 * kThird);
  Keys replaced = Beside::numbers(kThird, 2 * kThird);
  const Keys changing = Beside::numbers(2 * kThird, 3 * kThird);
  set(Beside::numbers(0, kThird), Beside::numbers(0, kThird));
  set(replaced, Keys(kThird, 0));

  std::atomic<std::uint64_t> begun{0}, done{0};
  std::atomic<bool> enough{false}, cleaned{!is_log()};
  std::uint64_t overlaps = 0, wrong = 0;
  std::thread asking([&, ref = store_->ref()] {
    Beside beside(ref, how(), begun, done);
    const std::uint64_t most = some_of(200, 20);
    for (int asked = 0; asked < 50'000 && (overlaps < most || !cleaned); ++asked) {
      overlaps += beside.ask();
    }
    wrong = beside.wrong();
    enough = true;
  });
  Map expected;
  while (!enough) {
    const std::uint64_t round = ++begun;
    Keys keys = replaced, values(kThird, round);
    // Every other batch inserts what the batch behind it erases.
    if (round % 2 == 1) {
      keys.insert(keys.end(), changing.begin(), changing.end());
      values.insert(values.end(), kThird, round);
    }
    EXPECT_EQ(set(keys, values).evicted, 0u);
    done = round;
    if (round % 2 == 0) store_->erase(changing.data(), changing.size());
    expected.clear();
    for (std::uint64_t key = 0; key < kThird; ++key) expected[key] = key;
    for (std::size_t i = 0; i < keys.size(); ++i) expected[keys[i]] = values[i];
    if (is_log()) cleaned = store_->stats().copied_records != 0;
  }
  asking.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_GT(overlaps, 0u) << "no lookup ran beside a batch: the test tested nothing";
  if (is_log()) {
    EXPECT_GT(store_->stats().copied_records, 0u) << "nothing was cleaned";
  }
  expect(store_->ref(), Beside::numbers(0, 3 * kThird + Beside::kAbsent), expected);
  EXPECT_EQ(store_->verify(), "");
}

// The finalizer of MurmurHash3, without the library's code for it.
std::uint64_t hash_of(std::uint64_t key) {
  key = (key ^ key >> 33) * 0xff51afd7ed558ccdull;
  key = (key ^ key >> 33) * 0xc4ceb9fe1a85ec53ull;
  return key ^ key >> 33;
}

// Batches and cleaning as a lookup of fingerprints meets them, but in a few nanoseconds: the record
// moves from one segment to the other, of one record each, in which something else stands
// meanwhile. On the CPU backend, whose memory the host may change beside a kernel.
TEST(KvFingerprints, WhatIsReadOfASegmentThatIsUsedAgainIsDropped) {
  if (std::string_view(backend::name()) != "cpu") GTEST_SKIP() << "the host changes memory";
  constexpr std::uint64_t kKey = 77, kOther = 78, kSlots = 256;
  PinnedBuffer<std::uint64_t> words(kSlots);
  PinnedBuffer<detail::KvPair> records(3);
  PinnedBuffer<std::uint32_t> lives(3);
  PinnedBuffer<std::uint64_t> answers(2);  // the last value, and how many were wrong
  for (auto* const word : {&answers[0], &answers[1]}) *word = 0;
  for (std::size_t i = 0; i < kSlots; ++i) words[i] = 0;
  for (std::size_t i = 0; i < 3; ++i) records[i] = {0, 0}, lives[i] = 0;
  const std::uint64_t hash = hash_of(kKey);
  const std::uint64_t fingerprint = (hash >> 40 << 8 | (hash & 0xff)) << 32;
  const auto put = [](auto& place, auto value) {
    std::atomic_ref(place).store(value, std::memory_order_release);
  };
  records[1] = {~kKey, 1};
  words[hash % kSlots] = fingerprint | 1;
  std::atomic<bool> enough{false};
  std::atomic<std::uint64_t> moves{1};
  std::thread moving([&] {
    for (; !enough; ++moves) {
      const std::uint32_t to = 1 + moves % 2;
      put(lives[to], lives[to] + 1);
      put(records[to].key, ~kOther);
      put(records[to].value, std::uint64_t{0});
      for (int i = 0; i < 300; ++i) put(records[0].value, moves.load());  // some time
      put(records[to].key, ~kKey);
      put(records[to].value, moves + 1);
      put(words[hash % kSlots], fingerprint | to);
    }
  });
  detail::KvView view;
  view.layout = detail::KvLayout::fingerprints;
  view.pairs = records.data();
  view.mask = kSlots - 1;
  view.words = words.data();
  view.lives = lives.data();
  Stream stream;
  const std::uint64_t rounds = some_of(200, 20), least = some_of(300'000, 30'000);
  for (std::uint64_t round = 0; round < rounds || moves < least; ++round) {
    launch_look_while_it_moves(stream, view, kKey, 2000, answers.data(), answers.data() + 1);
    stream.synchronize();
  }
  enough = true;
  moving.join();
  EXPECT_EQ(answers[1], 0u);
  EXPECT_GT(answers[0], 1u);
}

}  // namespace
}  // namespace holdfast::test
