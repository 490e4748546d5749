// Which checkpoint a lane flushes next, and which room a copy that is ready above leaves to others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "history/catalog.hpp"
#include "support/scratch.hpp"

namespace {

using holdfast::history::Answer;
using holdfast::history::Catalog;
using holdfast::history::Outcome;
using holdfast::history::State;
using holdfast::history::Step;
using holdfast::history::TierSpec;
using holdfast::history::Transfer;

TierSpec cache(std::uint64_t units) { return {.capacity = units, .alignment = 1}; }
const TierSpec kDisk{.storage = true};

void save(Catalog& catalog, Step step) {
  const Answer answer = catalog.begin_save(step, 1, false);
  ASSERT_EQ(answer.verdict, Answer::Verdict::go);
  catalog.finish(answer.transfer, Outcome::done);
}

std::vector<Step> flush_all(Catalog& catalog, int tier) {
  std::vector<Step> order;
  while (const std::optional<Transfer> flush = catalog.next_flush(tier)) {
    order.push_back(flush->step);
    catalog.finish(*flush, Outcome::done);
  }
  return order;
}

// What is evicted first goes first: what no hint names, then the farthest restore.
TEST(FlushOrder, IsThatOfEviction) {
  Catalog catalog({cache(8), kDisk}, {.oldest_flush_every = 100});
  for (const Step step : {2, 0, 3, 1}) catalog.hint(step);
  for (Step step = 0; step < 6; ++step) save(catalog, step);
  // The first flush of a tier is of what came first.
  EXPECT_EQ(flush_all(catalog, 0), (std::vector<Step>{0, 4, 5, 1, 3, 2}));
}

TEST(FlushOrder, IsThatOfArrivalWithoutHints) {
  Catalog catalog({cache(8), kDisk}, {});
  for (const Step step : {5, 3, 4}) save(catalog, step);
  EXPECT_EQ(flush_all(catalog, 0), (std::vector<Step>{5, 3, 4}));
}

TEST(FlushOrder, IsThatOfArrivalWhereTheNewestAreKept) {
  TierSpec partner = cache(8);
  partner.keeps_newest = true;
  for (const bool with_host : {false, true}) {
    std::vector<TierSpec> tiers{cache(8), cache(8), partner, kDisk};
    if (!with_host) tiers.erase(tiers.begin());
    Catalog catalog(tiers, {.oldest_flush_every = 100});
    for (const Step step : {0, 1, 2, 3}) catalog.hint(step);
    for (Step step = 0; step < 4; ++step) save(catalog, step);
    for (int tier = 0; tier + 1 < catalog.tiers(); ++tier) {
      EXPECT_EQ(flush_all(catalog, tier), (std::vector<Step>{0, 1, 2, 3})) << tier;
    }
  }
}

// However the hints are: whoever waits is passed over by as many as came before it, seven times.
TEST(FlushOrder, PassesNothingOverForEver) {
  const auto seed = holdfast::test::test_seed();
  std::mt19937_64 random(seed);
  constexpr Step kSteps = 400;
  Catalog catalog({cache(kSteps), kDisk}, {});
  std::vector<Step> order(kSteps);
  for (Step step = 0; step < kSteps; ++step) order[step] = step;
  std::shuffle(order.begin(), order.end(), random);
  for (const Step step : order) catalog.hint(step);
  std::map<Step, std::uint64_t> before;  // those that waited when it came
  std::map<Step, std::uint64_t> came;    // after so many flushes
  std::uint64_t flushes = 0, waiting = 0;
  for (Step step = 0; step < kSteps || waiting > 0;) {
    if (step < kSteps && random() % 2 == 0) {
      before[step] = waiting++;
      came[step] = flushes;
      save(catalog, step++);
      continue;
    }
    const auto flush = catalog.next_flush(0);
    if (!flush) continue;
    ++flushes;
    --waiting;
    catalog.finish(*flush, Outcome::done);
    ASSERT_LE(flushes - came[flush->step], 8 * (before[flush->step] + 1))
        << "step " << flush->step << ", seed " << seed;
  }
  EXPECT_EQ(flushes, kSteps);
}

// While the program waits for all flushes, they take no room from what hints name.
TEST(FlushOrder, GoesPastWhatIsHintedWhileTheProgramWaits) {
  for (const bool waits : {false, true}) {
    for (const bool hinted : {false, true}) {
      Catalog catalog({cache(1), cache(1), kDisk}, {});
      save(catalog, 0);
      flush_all(catalog, 0);
      flush_all(catalog, 1);
      if (hinted) catalog.hint(0);
      save(catalog, 1);
      if (waits) catalog.drain_begins();
      const std::optional<Transfer> flush = catalog.next_flush(0);
      ASSERT_TRUE(flush.has_value());
      EXPECT_EQ(flush->to, waits && hinted ? 2 : 1);
      catalog.finish(*flush, Outcome::done);
      if (waits) catalog.drain_ends();
      EXPECT_EQ(catalog.state(0, 1) == State::absent, !(waits && hinted));
    }
  }
}

// A copy below one that is ready is not wanted for its own sake: another is fetched in its place,
// though it is restored later. Without a second hint.
TEST(FlushOrder, WhatIsReadyAboveLeavesItsRoomBelow) {
  for (const bool again : {false, true}) {
    Catalog catalog({cache(1), cache(1), kDisk}, {});
    save(catalog, 1);
    flush_all(catalog, 0);
    flush_all(catalog, 1);
    save(catalog, 0);  // in the place of 1
    flush_all(catalog, 0);
    flush_all(catalog, 1);
    ASSERT_EQ(catalog.state(0, 0), State::flushed);
    ASSERT_EQ(catalog.state(0, 1), State::flushed);
    ASSERT_EQ(catalog.state(1, 2), State::written_alone);
    catalog.hint(0);
    if (again) catalog.hint(0);
    catalog.hint(1);
    catalog.start_prefetch();
    EXPECT_FALSE(catalog.next_fetch(0).has_value());
    EXPECT_EQ(catalog.state(0, 0), State::ready);
    const std::optional<Transfer> fetch = catalog.next_fetch(1);
    ASSERT_EQ(fetch.has_value(), !again);
    EXPECT_EQ(fetch ? fetch->step : 1, 1u);
    std::string why;
    EXPECT_TRUE(catalog.valid(&why)) << why;
  }
}

// What is restored first is not copied down while the next cache's flushes go on; it is once they
// have ended, or somebody waits.
TEST(FlushOrder, WhatIsRestoredFirstStaysWhileOthersAreFlushed) {
  for (const bool waits : {false, true}) {
    Catalog catalog({cache(3), cache(8), kDisk}, {.oldest_flush_every = 100});
    for (Step step = 0; step < 8; ++step) catalog.hint(step);
    for (const Step step : {7, 0, 1}) save(catalog, step);  // 0 to 2 are the front
    const std::optional<Transfer> flush = catalog.next_flush(0);
    ASSERT_TRUE(flush.has_value());
    EXPECT_EQ(flush->step, 7u);
    catalog.finish(*flush, Outcome::done);
    const std::optional<Transfer> below = catalog.next_flush(1);
    ASSERT_TRUE(below.has_value());
    EXPECT_FALSE(catalog.next_flush(0).has_value());
    if (waits) {
      catalog.caller_waits();
    } else {
      catalog.finish(*below, Outcome::done);
    }
    const std::optional<Transfer> first = catalog.next_flush(0);
    ASSERT_TRUE(first.has_value());
    EXPECT_EQ(first->step, 1u);
    std::string why;
    EXPECT_TRUE(catalog.valid(&why)) << why;
  }
}

// A copy below the front is worth nothing: it goes, though it is restored before the other.
TEST(FlushOrder, WhatTheFastestCacheWillHaveLeavesItsRoomBelow) {
  for (const bool in_front : {true, false}) {
    Catalog catalog({cache(3), cache(2), kDisk}, {});
    const std::vector<Step> order =
        in_front ? std::vector<Step>{0, 1, 2, 5, 6} : std::vector<Step>{7, 8, 9, 0, 1};
    for (const Step step : order) catalog.hint(step);
    for (const Step step : {0, 1}) save(catalog, step);
    while (!flush_all(catalog, 0).empty() || !flush_all(catalog, 1).empty()) {
    }
    ASSERT_EQ(catalog.state(0, 1), State::flushed);
    ASSERT_EQ(catalog.state(1, 1), State::flushed);
    if (in_front) {
      save(catalog, 6);
      flush_all(catalog, 0);
      flush_all(catalog, 1);
      save(catalog, 5);  // in the fastest cache in the place of 6
      flush_all(catalog, 0);
      EXPECT_NE(catalog.state(5, 1), State::absent);
      EXPECT_NE(catalog.state(6, 1), State::absent);
      EXPECT_EQ(catalog.state(0, 1), State::absent);
      EXPECT_EQ(catalog.state(1, 1), State::absent);
      EXPECT_EQ(catalog.state(0, 0), State::flushed);
    } else {
      save(catalog, 7);
      flush_all(catalog, 0);
      EXPECT_EQ(catalog.state(1, 1), State::absent);
      EXPECT_NE(catalog.state(0, 1), State::absent);
    }
  }
}

// A prefetch takes no room from what only the disk has besides, but for what is restored next or
// behind it.
TEST(FlushOrder, NothingIsFetchedInPlaceOfWhatWouldBeFetchedAgain) {
  for (const bool soon : {false, true}) {
    for (const bool hinted : {false, true}) {
      Catalog catalog({cache(3), kDisk}, {});
      for (Step step = 0; step < 6; ++step) {
        save(catalog, step);
        flush_all(catalog, 0);
      }
      std::vector<Step> held;
      for (Step step = 0; step < 6; ++step) {
        if (catalog.state(step, 0) != State::absent) held.push_back(step);
      }
      ASSERT_EQ(held.size(), 3u);
      const Step lost = held.front() == 0 ? held.front() + 1 : 0;
      ASSERT_EQ(catalog.state(lost, 0), State::absent);
      catalog.hint(held[0]);
      if (!soon) catalog.hint(held[1]);
      catalog.hint(lost);
      if (soon) catalog.hint(held[1]);
      if (hinted) catalog.hint(held[2]);
      catalog.start_prefetch();
      const std::optional<Transfer> fetch = catalog.next_fetch(0);
      ASSERT_EQ(fetch.has_value(), soon || !hinted);
      EXPECT_EQ(fetch ? fetch->step : lost, lost);
      EXPECT_EQ(catalog.state(held[2], 0) == State::absent, fetch.has_value());
    }
  }
}

}  // namespace
