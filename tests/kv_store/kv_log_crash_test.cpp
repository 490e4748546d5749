// A log that is killed: at any moment, and at every fence of a batch, of cleaning and of opening.
#include <numeric>

#include "kv_store/kv_log_medium.hpp"
#include "kv_store/kv_log_test.hpp"
#include "support/killed_child.hpp"
#include "support/share.hpp"
#ifdef HOLDFAST_INTERCEPT
#include "support/reaper.hpp"
#endif

namespace holdfast::test {
namespace {

// So small a log is cleaned behind nearly every batch.
constexpr std::size_t kBatch = 300;
constexpr std::uint64_t kKeys = 900;
KvStore::Options shape_of(Form form) { return log_options(1024, kBatch, 2048, form); }
Numbered numbered(std::uint64_t n, std::size_t count = kBatch) { return {n, count, kKeys}; }

// Children are told the form by its number.
constexpr const char* kForm = "HOLDFAST_TEST_FORM";
Form form_given() { return static_cast<Form>(std::stoi(from_environment(kForm))); }
LogOpened open_as_given() {
  return LogOpened::open(from_environment("HOLDFAST_TEST_PATH"), {}, form_given());
}

// Large ones, of which a part is appended before all keys are known. One of a few sizes each, all
// of them beyond what a small batch has.
constexpr std::size_t kLargeBatch = 2600;
KvStore::Options large_shape_of(Form form) { return log_options(3000, kLargeBatch, 12'000, form); }
Numbered large_numbered(std::uint64_t n) {
  return Numbered(n, n % 3 == 0 ? 1025 : kLargeBatch - n % 7, 2500);
}

// Children are told which program is theirs.
enum class Program { small, large, growing };
constexpr const char* kProgram = "HOLDFAST_TEST_PROGRAM";
std::string number_of(Program program) { return std::to_string(static_cast<int>(program)); }

// What a growing log is to have room for at batch `n`.
std::uint64_t grown(std::uint64_t n) { return 1024 + 30 * std::min<std::uint64_t>(n, 800); }

TEST(KvLogChild, DISABLED_RunsUntilKilled) {
  const LogOpened opened = open_as_given();
  const auto program = static_cast<Program>(std::stoi(from_environment(kProgram)));
  const bool large = program == Program::large;
  for (std::uint64_t n = opened.store->stats().batches;; ++n) {
    // Before each batch, one that is refused, with its records left on the medium.
    if (large && n % 2 == 0) {
      Numbered refused = large_numbered(n + 1);
      refused.keys.back() = KvStore::kReservedKey;
      EXPECT_THROW(refused.apply_pinned(opened), Error);
    }
    report_batch(n, [&] {
      if (program == Program::growing && n % 3 == 0) opened.store->reserve(grown(n));
      if (large) {
        large_numbered(n).apply_pinned(opened);
      } else {
        numbered(n).apply(opened);
      }
    });
  }
}

class KvLogCrash : public LogForms {
 protected:
  LogOpened open() const { return LogOpened::open(path(), {}, GetParam()); }
  static std::unique_ptr<KvStore> open_in(Region& region) {
    return std::make_unique<KvStore>(KvStore::open(region, KvStore::Cache::automatic, GetParam()));
  }
  static std::string form() { return std::to_string(static_cast<int>(GetParam())); }

  // Runs batches in a child that is killed, again and again.
  void kill_rounds(Program program) {
    const bool large = program == Program::large;
    std::uint64_t most = 0;  // pairs that there was room for
    int grew = 0;            // how often that had changed
    std::mt19937_64 random(test_seed());
    const KvStore::Options shape = large ? large_shape_of(GetParam()) : shape_of(GetParam());
    const auto given = [&](std::uint64_t n) { return large ? large_numbered(n) : numbered(n); };
    LogOpened::create(path(), shape).region->close();
    Map oracle;
    std::uint64_t applied = 0;
    const auto enough = [&] {
      return applied > (large || kFewRounds ? 3u : some_of(20, 6)) &&
             (program != Program::growing || grew > 2);
    };
    for (KillRounds rounds(some_of(kFewRounds ? 5 : 15, 3)); rounds.another(enough());) {
      const ToldBatches told = batches_told(
          applied,
          told_until_killed<ToldBatch>(
              "KvLogChild.DISABLED_RunsUntilKilled", arenas(),
              {{"HOLDFAST_TEST_PATH", path()}, {kForm, form()}, {kProgram, number_of(program)}},
              random, rounds.most_microseconds(large ? 60'000 : 30'000)));
      LogOpened opened = open();
      for (; applied < told.done; ++applied) given(applied).apply(oracle);
      if (applied < told.begun && opened.contents() != oracle) given(applied++).apply(oracle);
      ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle))
          << "neither without nor with the batch in flight";
      const std::uint64_t capacity = opened.store->stats().capacity;
      ASSERT_GE(capacity, most);
      grew += capacity > std::exchange(most, capacity);
      ASSERT_EQ(opened.store->stats().batches, applied);
      ASSERT_FALSE(opened.store->stats().snapshots_refused);
      opened.abandon();
    }
  }
};
HOLDFAST_BOTH_FORMS(KvLogCrash);

TEST_P(KvLogCrash, KilledAtAnyMomentABatchIsThereWholeOrNot) { kill_rounds(Program::small); }
TEST_P(KvLogCrash, KilledAtAnyMomentALargeBatchIsThereWholeOrNot) { kill_rounds(Program::large); }
TEST_P(KvLogCrash, KilledAtAnyMomentAGrowingLogHasWhatItHad) { kill_rounds(Program::growing); }

#ifdef HOLDFAST_INTERCEPT

TEST(KvLogChild, DISABLED_DiesAtAFence) {
  const auto number = [](const char* name) { return std::stoull(from_environment(name)); };
  Reaper reaper(number("HOLDFAST_TEST_FENCES"));
  const bool in_opening = number("HOLDFAST_TEST_OPENING") == 1;
  if (in_opening) cpu::set_listener(&reaper);
  LogOpened opened = open_as_given();
  cpu::set_listener(&reaper);
  if (!in_opening) numbered(number("HOLDFAST_TEST_BATCH"), 24).apply(opened);
  opened.abandon();
}

TEST(KvLogChild, DISABLED_DiesAtAFenceOfAGrowth) {
  Reaper reaper(std::stoull(from_environment("HOLDFAST_TEST_FENCES")));
  LogOpened opened = open_as_given();
  cpu::set_listener(&reaper);
  opened.store->reserve(4000);
  opened.abandon();
}

TEST_P(KvLogCrash, KilledAtEveryFenceOfAGrowth) {
  Map held;
  {
    const LogOpened made = LogOpened::create(path(), shape_of(GetParam()));
    for (std::uint64_t batch = 0; batch < 5; ++batch) {
      numbered(batch).apply(made);
      numbered(batch).apply(held);
    }
    made.region->commit();
  }
  const Every tried = every(1, 100);
  bool grew = false;  // by a fence before
  int was = 0, is = 0;
  const auto look = [&](std::uint64_t, bool finished) {
    LogOpened opened = open();
    const bool has_grown = opened.store->stats().capacity == 4000;
    EXPECT_EQ(opened.store->stats().capacity, has_grown ? 4000u : 1024u);
    EXPECT_TRUE(has_grown || !(grew || finished));
    grew = has_grown;
    ++(grew ? is : was);
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(held));
    opened.abandon();
  };
  kill_at_fences("KvLogChild.DISABLED_DiesAtAFenceOfAGrowth", path(), arenas(), {{kForm, form()}},
                 2000, all_below(30, 4), look, tried);
  EXPECT_GT(was, static_cast<int>(5 / tried.step));
  EXPECT_GT(is, 0);
}

// Batches that are cleaned behind, so that fences are those of the run, of what cleaning keeps, and
// of the segments that it makes free.
TEST_P(KvLogCrash, KilledAtEveryFenceOfABatchOfCleaningAndOfOpening) {
  // Until cleaning has something to copy behind the next one: two runs instead of one.
  Map held;
  std::uint64_t batch = 0;
  LogOpened made = LogOpened::create(path(), shape_of(GetParam()));
  const LogMedium medium(*made.region);
  for (bool cleans = false; !cleans; ++batch) {
    ASSERT_LT(batch, 200u);
    numbered(batch, batch < 6 ? kBatch : 24).apply(made);
    numbered(batch, batch < 6 ? kBatch : 24).apply(held);
    made.store.reset();
    const Words words = medium.copy();
    made.store = open_in(*made.region);
    numbered(batch + 1, 24).apply(made);
    cleans = medium.run() == (words.back() >> 16) + 2;
    medium.put(words);
    made.store = open_in(*made.region);
  }
  made.store.reset();
  made.region->close();
  const std::string child = "KvLogChild.DISABLED_DiesAtAFence";
  const auto opening_ends = [&](std::uint64_t fences) {
    return came_to_its_end(child, arenas(),
                           {{"HOLDFAST_TEST_PATH", path()},
                            {kForm, form()},
                            {"HOLDFAST_TEST_BATCH", "0"},
                            {"HOLDFAST_TEST_FENCES", std::to_string(fences)},
                            {"HOLDFAST_TEST_OPENING", "1"}});
  };
  Map with = held;
  numbered(batch, 24).apply(with);
  bool was_with = false;
  std::uint64_t snapshots = 0;
  std::uint64_t tried = 0;
  // All of the first ones, and of the many behind them others in each run.
  const std::uint64_t seed = test_seed();
  std::mt19937_64 random(seed);
  const auto some = [&] { return 1 + random() % 5; };
  const auto look = [&](std::uint64_t, bool finished) {
    const bool opens_cut_off = tried++ % 15 == 0;
    for (std::uint64_t at = 0; opens_cut_off && !opening_ends(at); at += share() * some()) {
      ASSERT_FALSE(HasFailure());
    }
    LogOpened opened = open();
    const Map contents = opened.contents();
    const bool is_with = contents == with;
    EXPECT_TRUE(is_with || (contents == held && !was_with && !finished));
    was_with = is_with;
    EXPECT_FALSE(opened.store->stats().snapshots_refused);
    snapshots = std::max(snapshots, opened.store->stats().snapshots_used);
    ASSERT_NO_FATAL_FAILURE(opened.expect_holds(is_with ? with : held));
    opened.abandon();
  };
  kill_at_fences(
      child, path(), arenas(),
      {{kForm, form()},
       {"HOLDFAST_TEST_BATCH", std::to_string(batch)},
       {"HOLDFAST_TEST_OPENING", "0"}},
      5000, [&](std::uint64_t fence) { return fence < 60 ? 1 : some(); }, look,
      every(1, 100, seed));
  EXPECT_GT(snapshots, 0u);
}

// Threads of all kernels.
class Work : public cpu::Listener {
 public:
  void on_event(const cpu::Event& event) override {
    if (event.kind == cpu::EventKind::thread_begin) ++threads_;
  }
  std::uint64_t threads() const { return threads_; }

 private:
  std::uint64_t threads_ = 0;
};

// A batch whose new keys have no room beside the tombstones, of which many segments have to go: it
// is not counted anew for each of them.
TEST_P(KvLogCrash, WorkBehindManyTombstonesGrowsWithTheBatch) {
  constexpr std::uint64_t kPairs = 24'000;
  LogOpened opened = LogOpened::create(path(), log_options(kPairs, kPairs, 0, GetParam()));
  const auto range = [](std::uint64_t from) {
    Keys keys(kPairs);
    std::iota(keys.begin(), keys.end(), from);
    return keys;
  };
  const Keys first = range(0), others = range(kPairs);
  opened.set(first, first);
  opened.erase(first);
  Work work;
  cpu::set_listener(&work);
  const auto result = opened.set(others, others);
  cpu::set_listener(nullptr);
  EXPECT_EQ(result.inserted, kPairs);
  EXPECT_LT(work.threads(), 10 * kPairs);
  Map oracle;
  for (const auto key : others) oracle[key] = key;
  ASSERT_NO_FATAL_FAILURE(opened.expect_holds(oracle));
}

#endif  // HOLDFAST_INTERCEPT

}  // namespace
}  // namespace holdfast::test
