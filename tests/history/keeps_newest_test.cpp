// A cache that keeps the newest (of a partner): what it evicts for a checkpoint of any size is as
// old as can be, by a comparison of all runs of neighbours.
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
using holdfast::history::Fragment;
using holdfast::history::kGap;
using holdfast::history::Outcome;
using holdfast::history::Step;
using holdfast::history::Transfer;

// Of all runs of fragments that are large enough the age of the newest in it; the oldest of these
// ages. 0: a gap will do.
std::uint64_t oldest_possible(const Catalog& catalog, std::uint64_t bytes,
                              const std::map<Step, std::uint64_t>& arrivals) {
  const auto fragments = catalog.space(0).fragments();
  std::uint64_t best = ~std::uint64_t{0};
  for (std::size_t first = 0; first < fragments.size(); ++first) {
    std::uint64_t room = 0, newest = 0;
    for (std::size_t last = first; last < fragments.size(); ++last) {
      room += fragments[last].bytes;
      if (fragments[last].step != kGap) {
        newest = std::max(newest, arrivals.at(fragments[last].step));
      }
      if (room >= bytes) best = std::min(best, newest);
    }
  }
  return best;
}

TEST(KeepsNewest, EvictsTheOldestOfAnySize) {
  const auto seed = holdfast::test::test_seed();
  std::mt19937_64 random(seed);
  std::size_t evictions = 0;
  for (int run = 0; run < 200; ++run) {
    const std::uint64_t units = 10 + random() % 50;
    Catalog catalog({{.capacity = units, .alignment = 1, .keeps_newest = true}, {.storage = true}},
                    {});
    std::map<Step, std::uint64_t> arrivals;
    for (Step step = 0; step < 60; ++step) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", run " + std::to_string(run) + ", step " +
                   std::to_string(step));
      const std::uint64_t bytes = 1 + random() % (units / 2);
      // Hints and restores change nothing.
      if (random() % 3 == 0) catalog.hint(random() % 60);
      if (random() % 5 == 0) catalog.start_prefetch();
      EXPECT_FALSE(catalog.next_fetch(0).has_value());
      if (step > 0 && random() % 2 == 0) {
        const Answer restore = catalog.begin_restore(step - 1, random() % 2 == 0);
        ASSERT_EQ(restore.verdict, Answer::Verdict::go);
        catalog.finish(restore.transfer, Outcome::done);
      }
      if (step > 0 && random() % 8 == 0) catalog.discard(random() % step);
      (void)catalog.take_evicted();
      const std::uint64_t oldest = oldest_possible(catalog, bytes, arrivals);
      const Answer save = catalog.begin_save(step, bytes, false);
      ASSERT_EQ(save.verdict, Answer::Verdict::go);
      ASSERT_EQ(save.transfer.to, 0);
      std::uint64_t newest = 0;
      for (const auto& [tier, victim] : catalog.take_evicted()) {
        newest = std::max(newest, arrivals.at(victim));
        ++evictions;
      }
      EXPECT_EQ(newest, oldest);
      arrivals[step] = step + 1;
      catalog.finish(save.transfer, Outcome::done);
      const std::optional<Transfer> flush = catalog.next_flush(0);
      ASSERT_TRUE(flush.has_value());
      catalog.finish(*flush, Outcome::done);
      ASSERT_TRUE(catalog.valid());
    }
  }
  EXPECT_GT(evictions, 1000u);
}

// The oldest is waited for, though a newer one could go at once.
TEST(KeepsNewest, WaitsForTheOldestRatherThanLoseANewerOne) {
  Catalog catalog({{.capacity = 2, .alignment = 1, .keeps_newest = true}, {.storage = true}}, {});
  const auto save = [&](Step step) {
    const Answer answer = catalog.begin_save(step, 1, false);
    if (answer.verdict == Answer::Verdict::go) catalog.finish(answer.transfer, Outcome::done);
    return answer.verdict;
  };
  ASSERT_EQ(save(0), Answer::Verdict::go);
  const auto flush = catalog.next_flush(0);
  ASSERT_TRUE(flush.has_value());
  ASSERT_TRUE(catalog.adopt(1, 1, 0, 1) && catalog.adopt(1, 1, 1));
  EXPECT_EQ(save(2), Answer::Verdict::wait);
  catalog.finish(*flush, Outcome::done);
  EXPECT_EQ(save(2), Answer::Verdict::go);
  EXPECT_EQ(catalog.take_evicted(), (std::vector<std::pair<int, Step>>{{0, 0}}));
}

}  // namespace
