// A map that grows, and is killed at any moment of that, and at stores of its kernels.
#include <algorithm>
#include <chrono>
#include <thread>

#include "bytes_map/bytes_map_kills.hpp"
#include "support/killed_child.hpp"

namespace holdfast::test {
namespace {

constexpr std::uint64_t kMostRecordBytes = 4 << 20;  // from here on another map is begun

// A growth, and the batch behind it.
struct Told {
  enum Stage : std::uint32_t { grows, has_grown, changes, has_changed };
  std::uint64_t batch;
  Stage stage;
  std::uint64_t capacity, record_bytes;  // wanted, or there
};

// What the growth in front of batch `n` asks for. The first one makes room for all that batches do.
BytesMapReserve wanted_by(std::uint64_t n, const BytesMapStats& has) {
  std::mt19937_64 random(n);
  BytesMapReserve wanted;
  if (random() % 2 == 0 && has.capacity < 20 * kSlots) wanted.capacity = has.capacity + 1;
  const std::uint64_t more = has.record_bytes + 1 + random() % 100'000;
  if (random() % 4 != 0) wanted.record_bytes = std::max<std::uint64_t>(more, 512 << 10);
  if (has.record_bytes < 512 << 10) wanted.record_bytes = 512 << 10;
  return wanted;
}

void grow_and_change(BytesOpened& opened, std::uint64_t n) {
  const BytesMapReserve wanted = wanted_by(n, opened.map->stats());
  report(Told{n, Told::grows, wanted.capacity, wanted.record_bytes});
  opened.map->reserve(wanted);
  const BytesMapStats stats = opened.map->stats();
  report(Told{n, Told::has_grown, stats.capacity, stats.record_bytes});
  report(Told{n, Told::changes, stats.capacity, stats.record_bytes});
  Numbered(n).apply(opened);
  report(Told{n, Told::has_changed, stats.capacity, stats.record_bytes});
}

TEST(BytesMapChild, DISABLED_GrowsUntilKilled) {
  BytesOpened opened = open_growing(from_environment("HOLDFAST_TEST_PATH"));
  for (std::uint64_t n = std::stoull(from_environment("HOLDFAST_TEST_BATCH"));; ++n) {
    grow_and_change(opened, n);
  }
}

class BytesMapGrowthCrash : public Scratch {
 protected:
  void make_anew() const {
    if (std::filesystem::exists(path())) Region::destroy(path());
    ASSERT_NO_FATAL_FAILURE(create_small(path()).close());
  }
};

TEST_F(BytesMapGrowthCrash, KilledAtAnyMomentEachSizeIsTheOldOrTheNewAndNothingIsLost) {
  std::mt19937_64 random(test_seed());
  ASSERT_NO_FATAL_FAILURE(make_anew());
  std::uint64_t next = 0;
  int cut_growths = 0;
  // As many as it takes: how far a child comes before it is killed is the machine's to say.
  for (int round = 0; round < 30 || (cut_growths < 8 && round < 500); ++round) {
    SCOPED_TRACE(detail::concat("round ", round));
    BytesOpened before = open_growing(path());
    const Oracle held = before.contents();
    BytesMapStats had = before.map->stats();
    before.abandon();
    std::uint64_t begun = next, done = next;
    BytesMapReserve wanted;
    {
      ChildAt child(
          "BytesMapChild.DISABLED_GrowsUntilKilled", arenas(),
          {{"HOLDFAST_TEST_PATH", path()}, {"HOLDFAST_TEST_BATCH", std::to_string(next)}});
      // It comes some way, which is waited for; every second child is killed at once then.
      Told told{};
      const auto take = [&] {
        if (!child->read(told)) return false;
        if (told.stage == Told::changes) begun = told.batch + 1;
        if (told.stage == Told::has_changed) done = told.batch + 1;
        wanted = told.stage == Told::grows ? BytesMapReserve{told.capacity, told.record_bytes}
                                           : BytesMapReserve{};
        if (told.stage == Told::has_grown) {
          had.capacity = told.capacity;
          had.record_bytes = told.record_bytes;
        }
        return true;
      };
      for (std::uint64_t left = 1 + random() % 9; left > 0; --left) ASSERT_TRUE(take());
      if (round % 2 != 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 10'000));
      }
      child->kill();
      while (take()) {
      }
      cut_growths += told.stage == Told::grows ? 1 : 0;
    }
    BytesOpened opened = open_growing(path());
    expect_grown(opened, had, wanted);
    ASSERT_NO_FATAL_FAILURE(expect_follows(opened, held, next, done, begun));
    ASSERT_FALSE(HasFailure());
    next = begun;
    const bool is_large = opened.map->stats().record_bytes > kMostRecordBytes;
    opened.abandon();
    if (is_large) {
      ASSERT_NO_FATAL_FAILURE(make_anew());
    }
  }
  EXPECT_GT(next, 12u);
  EXPECT_GE(cut_growths, 8);
}

#ifdef HOLDFAST_INTERCEPT

TEST(BytesMapChild, DISABLED_DiesAtAStoreOfAGrowth) {
  const bool in_opening = from_environment("HOLDFAST_TEST_OPENING") == "1";
  // There are few fences.
  Reaper reaper(std::stoull(from_environment("HOLDFAST_TEST_STORES")), cpu::EventKind::store);
  if (in_opening) cpu::set_listener(&reaper);
  BytesOpened opened = open_growing(from_environment("HOLDFAST_TEST_PATH"));
  if (!in_opening) {
    cpu::set_listener(&reaper);
    opened.map->reserve({kSlots + 1, 512 << 10});
    Numbered(100).apply(opened);
  }
  cpu::set_listener(nullptr);
  opened.abandon();
}

// Every fifth state is opened with a kill, too.
TEST_F(BytesMapGrowthCrash, KilledAtStoresEachSizeIsTheOldOrTheNewAndNothingIsLost) {
  std::mt19937_64 random(test_seed());
  ASSERT_NO_FATAL_FAILURE(make_anew());
  BytesOpened opened = open_growing(path());
  for (std::uint64_t number = 0; number < kKeys; ++number) {
    opened.put({key_of(number)}, {"short"});  // what finds no room is not there
  }
  ASSERT_GT(opened.map->size(), 5u);
  const Oracle held = opened.contents();
  const BytesMapStats had = opened.map->stats();
  opened.close();
  const std::vector<char> image = read_file(path());
  const auto run = [&](std::uint64_t stores, bool in_opening) {
    return came_to_its_end("BytesMapChild.DISABLED_DiesAtAStoreOfAGrowth", arenas(),
                           {{"HOLDFAST_TEST_PATH", path()},
                            {"HOLDFAST_TEST_OPENING", in_opening ? "1" : "0"},
                            {"HOLDFAST_TEST_STORES", std::to_string(stores)}});
  };
  bool finished = false;
  int grown = 0;
  for (std::uint64_t store = 0; !finished; store += 1 + store / 16 + random() % 3) {
    SCOPED_TRACE(detail::concat("store ", store));
    ASSERT_LT(store, 10'000'000u);
    Region::destroy(path());
    write_file(path(), image);
    finished = run(store, false);
    if (random() % 5 == 0) (void)run(random() % 200, true);
    BytesOpened after = open_growing(path());
    expect_grown(after, had, {kSlots + 1, 512 << 10});
    grown += after.map->stats().capacity != kSlots;
    const std::uint64_t done = finished ? 101 : 100;
    ASSERT_NO_FATAL_FAILURE(expect_follows(after, held, 100, done, 101));
    ASSERT_FALSE(HasFailure());
    after.abandon();
  }
  EXPECT_GT(grown, 3);
}

#endif

}  // namespace
}  // namespace holdfast::test
