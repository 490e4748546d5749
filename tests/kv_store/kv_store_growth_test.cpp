// A table in place that is given more room while it is open: it has all that it had, wherever that
// is cut off.
#include <algorithm>
#include <string>

#include "kv_store/kv_log_test.hpp"
#include "support/killed_child.hpp"
#include "support/object_names.hpp"
#include "support/share.hpp"
#if defined(HOLDFAST_INTERCEPT)
#include "support/reaper.hpp"
#elif defined(HOLDFAST_BACKEND_CPU)
#define HOLDFAST_MEMORY_FAILS
#include "support/failing_memory.hpp"
#endif

namespace holdfast::test {
namespace {

using Cache = KvStore::Cache;

constexpr std::uint32_t kBatch = 300;
// So few of so many that no bucket is ever full.
constexpr std::uint64_t kKeys = 500;
constexpr std::uint64_t kCapacity = 8192;

struct Variant {
  const char* name;
  Cache cache = Cache::off;
  LogLayout log = LogLayout::coalesced;
};
void PrintTo(const Variant& variant, std::ostream* out) { *out << variant.name; }
constexpr Variant kVariants[] = {
    {"usual"}, {"cached", Cache::on}, {"conventional", Cache::off, LogLayout::conventional}};

KvStore::Options shape_of(const Variant& variant, std::uint64_t capacity = kCapacity) {
  KvStore::Options options;
  options.capacity = capacity;
  options.max_batch = kBatch;
  options.cache = variant.cache;
  options.log = variant.log;
  return options;
}

LogOpened open_store(const std::string& path, Cache cache, const OpenOptions& options = {}) {
  auto region = std::make_unique<Region>(Region::open(path, options));
  auto store = std::make_unique<KvStore>(KvStore::open(*region, cache));
  return {std::move(region), std::move(store)};
}

void expect_holds(const LogOpened& opened, const Map& oracle) {
  ASSERT_EQ(opened.contents(), oracle);
  ASSERT_EQ(opened.store->verify(), "");
  ASSERT_EQ(opened.store->stats().records, oracle.size());
}

class KvStoreGrowth : public Scratch, public ::testing::WithParamInterface<Variant> {
 protected:
  LogOpened filled(int batches, std::uint64_t capacity = kCapacity) {
    LogOpened opened = LogOpened::create(path(), shape_of(GetParam(), capacity));
    for (int i = 0; i < batches; ++i) program.step(opened);
    return opened;
  }
  // Another one. REQUIRES: the region is closed.
  LogOpened filled_again() {
    Region::destroy(path());
    program.oracle.clear();
    return filled(2);
  }
#ifdef HOLDFAST_MEMORY_FAILS
  // Growths that are cut off at one allocation later each, until one has left something behind.
  template <class Then>
  void behind_cut_off_growths(Then&& then) {
    bool found = false;
    const Every tried = every(1, 32, seed);
    for (std::uint64_t which = tried.first; !found; which += tried.step) {
      ASSERT_LT(which, 2000u);
      LogOpened opened = filled(2);
      (void)starve(which, Fails::from_there, [&] { opened.store->reserve(2 * kCapacity); });
      found = has_remains(*opened.region);
      opened.store.reset();
      then(*opened.region);
      opened.region->close();
      Region::destroy(path());
      program.oracle.clear();
    }
  }
#endif
  LogOpened open(const OpenOptions& options = {}) const {
    return open_store(path(), GetParam().cache, options);
  }
  void reopen_killed(LogOpened& opened) const {
    opened.kill();
    opened = open();
  }
  static void expect_counts(const KvStore::Stats& now, const KvStore::Stats& before) {
    EXPECT_EQ(now.records, before.records);
    EXPECT_EQ(now.batches, before.batches);
    EXPECT_EQ(now.total.inserted, before.total.inserted);
    EXPECT_EQ(now.total.updated, before.total.updated);
    EXPECT_EQ(now.total.evicted, before.total.evicted);
    EXPECT_EQ(now.total.removed, before.total.removed);
  }

  const std::uint64_t seed = test_seed();
  LogProgram program{seed, kKeys, kBatch};
};
INSTANTIATE_TEST_SUITE_P(Variants, KvStoreGrowth, ::testing::ValuesIn(kVariants),
                         [](const auto& info) { return info.param.name; });

TEST_P(KvStoreGrowth, HasAllThatItHadAndRoomForMore) {
  LogOpened opened = filled(15);
  const KvStore::Stats before = opened.store->stats();
  opened.store->reserve(3 * kCapacity);
  EXPECT_EQ(opened.store->stats().capacity, 4 * kCapacity);
  EXPECT_EQ(opened.store->stats().cached, GetParam().cache == Cache::on);
  EXPECT_EQ(opened.store->stats().max_batch, kBatch);
  EXPECT_FALSE(has_remains(*opened.region));
  expect_counts(opened.store->stats(), before);
  ASSERT_NO_FATAL_FAILURE(expect_holds(opened, program.oracle));
  opened.expect_found(program.asked, program.oracle);
  reopen_killed(opened);
  EXPECT_EQ(opened.store->stats().log, GetParam().log);
  expect_counts(opened.store->stats(), before);
  ASSERT_NO_FATAL_FAILURE(expect_holds(opened, program.oracle));
  for (int i = 0; i < 5; ++i) ASSERT_NO_FATAL_FAILURE(program.step(opened));
  ASSERT_NO_FATAL_FAILURE(expect_holds(opened, program.oracle));
}

// Buckets that are full, and have evicted: each pair has a place in the larger table.
TEST_P(KvStoreGrowth, OfAFullTableEvictsNothing) {
  std::mt19937_64 random(seed);
  LogOpened opened = filled(0, 512);
  std::uint64_t evicted = 0;
  for (int batch = 0; batch < 12; ++batch) {
    Keys keys(kBatch), values(kBatch);
    for (auto& key : keys) key = spread_key(random() % 5000);
    for (auto& value : values) value = random();
    evicted += opened.set(keys, values).evicted;
  }
  ASSERT_GT(evicted, 0u);
  Map held = opened.contents();
  ASSERT_GT(held.size(), 450u);
  for (const std::uint64_t capacity : {513u, 4096u, 65536u}) {
    SCOPED_TRACE(capacity);
    opened.store->reserve(capacity);
    EXPECT_GE(opened.store->stats().capacity, capacity);
    EXPECT_EQ(opened.store->stats().total.evicted, evicted);
    ASSERT_NO_FATAL_FAILURE(expect_holds(opened, held));
  }
  // There is room for them now.
  for (std::uint64_t first = 0; first < 3000; first += kBatch) {
    Keys keys(kBatch), values(kBatch, first);
    for (std::size_t i = 0; i < kBatch; ++i) held[keys[i] = spread_key(first + i)] = first;
    EXPECT_EQ(opened.set(keys, values).evicted, 0u);
  }
  ASSERT_NO_FATAL_FAILURE(expect_holds(opened, held));
  reopen_killed(opened);
  ASSERT_NO_FATAL_FAILURE(expect_holds(opened, held));
}

TEST_P(KvStoreGrowth, HistoriesGoOnBehindIt) {
  LogOpened opened = filled(5);
  std::mt19937_64 random(seed);
  std::uint64_t capacity = kCapacity;
  for (int round = 0; round < (kFewRounds ? 4 : 10); ++round) {
    SCOPED_TRACE(round);
    // Three times at most: the region has four times what it was made with.
    const std::uint64_t asked = capacity << (capacity < 8 * kCapacity ? random() % 2 : 0);
    opened.store->reserve(asked - random() % 1000);
    capacity = std::max(capacity, asked);
    EXPECT_EQ(opened.store->stats().capacity, capacity);
    for (std::uint64_t steps = random() % 12; steps > 0; --steps) {
      ASSERT_NO_FATAL_FAILURE(program.step(opened));
    }
    if (random() % 3 == 0) {
      opened.abandon();
      opened = open();
    }
    if (random() % 3 == 0) reopen_killed(opened);
    ASSERT_NO_FATAL_FAILURE(expect_holds(opened, program.oracle));
  }
}

TEST_P(KvStoreGrowth, OfAnEmptyTable) {
  LogOpened opened = filled(0, 1);
  opened.store->reserve(kCapacity);
  ASSERT_NO_FATAL_FAILURE(expect_holds(opened, {}));
  for (int i = 0; i < 5; ++i) ASSERT_NO_FATAL_FAILURE(program.step(opened));
  reopen_killed(opened);
  ASSERT_NO_FATAL_FAILURE(expect_holds(opened, program.oracle));
}

TEST_P(KvStoreGrowth, WhatHasAsMuchStaysAsItIs) {
  LogOpened opened = filled(3);
  const std::uint64_t at = opened.region->object("kvs.table").offset;
  for (const std::uint64_t capacity : {std::uint64_t{0}, std::uint64_t{1}, kCapacity}) {
    opened.store->reserve(capacity);
    EXPECT_EQ(opened.region->object("kvs.table").offset, at);
  }
  opened.store->reserve(kCapacity + 1);
  EXPECT_EQ(opened.store->stats().capacity, 2 * kCapacity);
  ASSERT_NO_FATAL_FAILURE(expect_holds(opened, program.oracle));
}

TEST_P(KvStoreGrowth, IsThereAfterACommitAndWhatWasBeforeUntilThen) {
  LogOpened opened = filled(8);
  opened.region->commit();
  opened.store->reserve(2 * kCapacity);
  opened.abandon();
  opened = open(last_commit());
  EXPECT_EQ(opened.store->stats().capacity, kCapacity);
  ASSERT_NO_FATAL_FAILURE(expect_holds(opened, program.oracle));
  opened.store->reserve(2 * kCapacity);
  opened.region->commit();
  opened.abandon();
  opened = open(last_commit());
  EXPECT_EQ(opened.store->stats().capacity, 2 * kCapacity);
  ASSERT_NO_FATAL_FAILURE(expect_holds(opened, program.oracle));
}

// Who has it open is its user still, and another opening ends that as ever.
TEST_P(KvStoreGrowth, HasOneUser) {
  LogOpened opened = filled(3);
  const std::uint64_t key = 1;
  KvStore earlier = KvStore::open(*opened.region, GetParam().cache);
  earlier.reserve(2 * kCapacity);
  EXPECT_EQ(error_of([&] { (void)opened.store->stats(); }), Errc::closed);
  KvStore later = KvStore::open(*opened.region, GetParam().cache);
  EXPECT_EQ(error_of([&] { earlier.set(&key, &key, 1); }), Errc::closed);
  EXPECT_EQ(error_of([&] { earlier.reserve(4 * kCapacity); }), Errc::closed);
  *opened.store = std::move(later);
  ASSERT_NO_FATAL_FAILURE(program.step(opened));
  KvStore::remove(*opened.region);
  EXPECT_EQ(error_of([&] { (void)opened.store->stats(); }), Errc::closed);
  EXPECT_TRUE(names_in(*opened.region).empty());
}

TEST_P(KvStoreGrowth, WhatIsRefusedChangesNothing) {
  LogOpened opened = filled(6);
  const auto objects = names_in(*opened.region);
  const auto refused = [&](Errc code, const std::vector<std::string>& said, auto&& call) {
    EXPECT_EQ(error_of(call, said), code);
    EXPECT_EQ(names_in(*opened.region), objects);
    EXPECT_EQ(opened.store->stats().capacity, kCapacity);
    ASSERT_NO_FATAL_FAILURE(expect_holds(opened, program.oracle));
  };
  refused(Errc::invalid_argument, {"capacity"},
          [&] { opened.store->reserve((std::uint64_t{1} << 35) + 1); });
  refused(Errc::invalid_argument, {"log_records", "in_place"},
          [&] { opened.store->reserve(2 * kCapacity, 1); });
  refused(Errc::invalid_argument, {"log_records", "in_place"},
          [&] { opened.store->reserve(0, 1); });
  if (GetParam().cache == Cache::off) {
    refused(Errc::no_space, {"kvs", "max_size"},
            [&] { opened.store->reserve(std::uint64_t{1} << 33); });
  }
  for (int i = 0; i < 3; ++i) ASSERT_NO_FATAL_FAILURE(program.step(opened));
  opened.region->commit();
  opened.abandon();
  opened = open(for_reading());
  EXPECT_EQ(error_of([&] { opened.store->reserve(2 * kCapacity); }), Errc::unsupported);
  ASSERT_NO_FATAL_FAILURE(expect_holds(opened, program.oracle));
}

// Who has put an object of its own where the new table would be made keeps it.
TEST_P(KvStoreGrowth, AnObjectOfAnothersInTheWay) {
  LogOpened opened = filled(6);
  for (const char* const part : {"header", "table", "counters", "tx", "log", "meta"}) {
    const std::string name = std::string("kvs.grown.") + part;
    opened.region->allocate<std::uint64_t>(name, 7, Tracking::marked)[3] = 9;
    EXPECT_EQ(error_of([&] { opened.store->reserve(2 * kCapacity); }, {name}),
              Errc::already_exists);
    ASSERT_NO_FATAL_FAILURE(expect_holds(opened, program.oracle));
    opened.abandon();
    opened = open();
    EXPECT_EQ(opened.region->find<std::uint64_t>(name)[3], 9u);
    opened.region->remove(name);
  }
  opened.store->reserve(2 * kCapacity);
  ASSERT_NO_FATAL_FAILURE(expect_holds(opened, program.oracle));
}

// A pair that is where its key does not belong would be in neither bucket of the larger table.
TEST_P(KvStoreGrowth, OfADamagedTableIsRefused) {
  LogOpened opened = filled(2);
  opened.set({spread_key(1)}, {program.oracle[spread_key(1)] = 5});  // there is one at least
  const ObjectInfo table = opened.region->object("kvs.table");
  auto* const pairs = static_cast<std::uint64_t*>(opened.region->address(table));
  std::size_t at = 0;
  while (pairs[at] == 0) at += 2;
  ASSERT_LT(at, table.bytes() / sizeof(*pairs));
  opened.store.reset();
  int refused = 0;
  for (unsigned bit = 0; bit < 64; ++bit) {
    pairs[at] ^= std::uint64_t{1} << bit;
    opened.store = std::make_unique<KvStore>(KvStore::open(*opened.region, GetParam().cache));
    if (!opened.store->verify().empty()) {
      ++refused;
      EXPECT_EQ(error_of([&] { opened.store->reserve(2 * kCapacity); }, {"kvs", "1 of its pairs"}),
                Errc::damaged);
      EXPECT_EQ(opened.store->stats().capacity, kCapacity);
      EXPECT_FALSE(has_remains(*opened.region));
    }
    opened.store.reset();
    pairs[at] ^= std::uint64_t{1} << bit;
  }
  EXPECT_GT(refused, 32);
  opened.store = std::make_unique<KvStore>(KvStore::open(*opened.region, GetParam().cache));
  ASSERT_NO_FATAL_FAILURE(expect_holds(opened, program.oracle));
}

#ifdef HOLDFAST_MEMORY_FAILS

TEST_P(KvStoreGrowth, WhereMemoryRunsOutTheStoreIsAsItWas) {
  LogOpened opened = filled(2);
  int failures = 0, tries = 0;
  bool reached = true;
  const Every tried = every(1, 32, seed);
  for (std::uint64_t which = tried.first; reached && !HasFailure(); which += tried.step) {
    SCOPED_TRACE(which);
    const std::uint64_t capacity = opened.store->stats().capacity;
    const Starved starved =
        starve(which, Fails::once, [&] { opened.store->reserve(capacity + 1); });
    reached = starved.reached;
    failures += starved.threw;
    EXPECT_EQ(opened.store->stats().capacity, starved.threw ? capacity : 2 * capacity);
    EXPECT_FALSE(starved.threw && has_remains(*opened.region));
    if (tries++ % 5 != 0 && starved.threw) continue;
    ASSERT_NO_FATAL_FAILURE(expect_holds(opened, program.oracle));
    ASSERT_NO_FATAL_FAILURE(program.step(opened));
    if (starved.threw) continue;
    opened.region->close();
    opened = filled_again();  // of a small table; what it had may be there in this one
  }
  EXPECT_GT(failures, static_cast<int>(20 / tried.step));
}

// Memory that is gone from an allocation on: what stands then is what a kill there would leave.
TEST_P(KvStoreGrowth, CutOffAnywhereTheStoreIsOneOrTheOther) {
  LogOpened opened = filled(2);
  int was = 0, is = 0, remains = 0;
  bool failed = true;
  const Every tried = every(1, 32, seed);
  for (std::uint64_t which = tried.first; failed && !HasFailure(); which += tried.step) {
    SCOPED_TRACE(which);
    const std::uint64_t capacity = opened.store->stats().capacity;
    failed = starve(which, Fails::from_there, [&] { opened.store->reserve(capacity + 1); }).reached;
    remains += has_remains(*opened.region);
    reopen_killed(opened);
    const bool grew = opened.store->stats().capacity == 2 * capacity;
    ++(grew ? is : was);
    EXPECT_EQ(opened.store->stats().capacity, grew ? 2 * capacity : capacity);
    EXPECT_FALSE(has_remains(*opened.region));
    ASSERT_NO_FATAL_FAILURE(expect_holds(opened, program.oracle));
    if (!grew) continue;
    opened.region->close();
    opened = filled_again();
  }
  EXPECT_GT(was, 0);
  EXPECT_GT(is, 0);
  EXPECT_GT(remains, 0);
}

TEST_P(KvStoreGrowth, WhatACutOffOneLeftGoesWithTheStore) {
  behind_cut_off_growths([&](Region& region) {
    KvStore::remove(region);
    EXPECT_TRUE(names_in(region).empty());
  });
}

// A removal that was cut off before it came to them.
TEST_P(KvStoreGrowth, WhatACutOffOneLeftGoesWithTheNextStoreOfAnyLayout) {
  for (const auto layout : {KvStore::Layout::in_place, KvStore::Layout::log}) {
    behind_cut_off_growths([&](Region& region) {
      for (const char* const part : {"table", "counters", "tx", "log", "meta", "header"}) {
        region.remove(std::string("kvs.") + part);
      }
      KvStore::Options shape = shape_of({"usual"}, 100);
      shape.layout = layout;
      KvStore::create(region, shape);
      EXPECT_FALSE(has_remains(region));
    });
  }
}

#endif  // HOLDFAST_MEMORY_FAILS

// ---- Kills ----

Numbered numbered(std::uint64_t n, std::size_t count = kBatch) { return {n, count, kKeys}; }

// What there is to be room for at batch `n`.
std::uint64_t grown(std::uint64_t n) { return kCapacity << std::min<std::uint64_t>(n / 12, 3); }

constexpr const char* kCached = "HOLDFAST_TEST_CACHED";
LogOpened open_as_given() {
  return open_store(from_environment("HOLDFAST_TEST_PATH"),
                    from_environment(kCached) == "1" ? Cache::on : Cache::off);
}

TEST(KvStoreGrowthChild, DISABLED_RunsUntilKilled) {
  const LogOpened opened = open_as_given();
  for (std::uint64_t n = opened.store->stats().batches;; ++n) {
    report_batch(n, [&] {
      opened.store->reserve(grown(n));
      numbered(n).apply(opened);
    });
  }
}

TEST_P(KvStoreGrowth, KilledAtAnyMomentItHasWhatItHad) {
  const std::string cached = GetParam().cache == Cache::on ? "1" : "0";
  filled(0).region->close();
  std::mt19937_64 random(seed);
  Map oracle;
  std::uint64_t applied = 0;
  std::uint64_t most = 0;  // pairs that there was room for
  int grew = 0;
  const std::uint64_t least = some_of(40, 12);
  for (KillRounds rounds(some_of(kFewRounds ? 5 : 15, 3));
       rounds.another(applied > least && grew > 0);) {
    const ToldBatches told = batches_told(
        applied,
        told_until_killed<ToldBatch>("KvStoreGrowthChild.DISABLED_RunsUntilKilled", arenas(),
                                     {{"HOLDFAST_TEST_PATH", path()}, {kCached, cached}}, random,
                                     rounds.most_microseconds(30'000)));
    LogOpened opened = open();
    for (; applied < told.done; ++applied) numbered(applied).apply(oracle);
    if (applied < told.begun && opened.contents() != oracle) numbered(applied++).apply(oracle);
    ASSERT_NO_FATAL_FAILURE(expect_holds(opened, oracle))
        << "neither without nor with the batch in flight";
    const std::uint64_t capacity = opened.store->stats().capacity;
    ASSERT_GE(capacity, most);
    grew += capacity > std::exchange(most, capacity);
    ASSERT_EQ(opened.store->stats().batches, applied);
    EXPECT_FALSE(has_remains(*opened.region));
    opened.abandon();
  }
}

#ifdef HOLDFAST_INTERCEPT

TEST(KvStoreGrowthChild, DISABLED_DiesAtAFence) {
  Reaper reaper(std::stoull(from_environment("HOLDFAST_TEST_FENCES")));
  LogOpened opened = open_as_given();
  cpu::set_listener(&reaper);
  opened.store->reserve(1024);
  opened.abandon();
}

TEST_P(KvStoreGrowth, KilledAtEveryFence) {
  const std::string cached = GetParam().cache == Cache::on ? "1" : "0";
  Map held;
  {
    const LogOpened made = LogOpened::create(path(), shape_of(GetParam(), 512));
    for (std::uint64_t batch = 0; batch < 3; ++batch) numbered(batch, 100).apply(made);
    held = made.contents();
    made.region->commit();
  }
  const Every tried = every(1, 100, seed);
  bool grew = false;  // by a fence before
  int was = 0, is = 0;
  const auto look = [&](std::uint64_t, bool finished) {
    LogOpened opened = open();
    const bool has_grown = opened.store->stats().capacity == 1024;
    EXPECT_EQ(opened.store->stats().capacity, has_grown ? 1024u : 512u);
    EXPECT_TRUE(has_grown || !(grew || finished));
    grew = has_grown;
    ++(grew ? is : was);
    ASSERT_NO_FATAL_FAILURE(expect_holds(opened, held));
    EXPECT_FALSE(has_remains(*opened.region));
    opened.abandon();
  };
  kill_at_fences("KvStoreGrowthChild.DISABLED_DiesAtAFence", path(), arenas(), {{kCached, cached}},
                 10'000, all_below(40, 16), look, tried);
  EXPECT_GT(was, static_cast<int>(5 / tried.step));
  EXPECT_GT(is, 0);
}

#endif  // HOLDFAST_INTERCEPT

}  // namespace
}  // namespace holdfast::test
