// What docs/history-eviction.md decides, one by one, and all of it against a comparison of windows
// one by one.
#include "history/eviction.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast::history {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// A fragment with its score.
struct Part {
  std::uint64_t bytes;
  Score score;
  bool gap = false;
};

Part gap(std::uint64_t bytes) { return {bytes, {}, true}; }
Part hinted(std::uint64_t bytes, std::uint64_t distance, double wait = 0) {
  return {bytes, {wait, distance, false}};
}
Part unhinted(std::uint64_t bytes, double wait = 0) { return {bytes, {wait, kUnhinted, false}}; }
Part consumed(std::uint64_t bytes, double wait = 0) { return {bytes, {wait, kUnhinted, true}}; }

// A checkpoint's step is its index among the parts.
std::vector<Fragment> fragments_of(const std::vector<Part>& parts) {
  std::vector<Fragment> fragments;
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    fragments.push_back({offset, parts[i].bytes, parts[i].gap ? kGap : i});
    offset += parts[i].bytes;
  }
  return fragments;
}

std::optional<Window> choose_with_rest(const std::vector<Part>& parts, std::uint64_t bytes) {
  return choose_window(fragments_of(parts), bytes,
                       [&](const Fragment& fragment) { return parts[fragment.step].score; });
}

// Where what is left goes is another matter.
std::optional<Window> choose(const std::vector<Part>& parts, std::uint64_t bytes) {
  auto window = choose_with_rest(parts, bytes);
  if (window) window->rest = Rest::behind;
  return window;
}

std::optional<Window> window(std::size_t first, std::size_t last, double wait = 0) {
  return Window{first, last, wait, Rest::behind};
}

// --- Which windows there are.

TEST(Eviction, AWindowOfTheExactSizeIsEnough) {
  EXPECT_EQ(choose({hinted(4, 1), hinted(5, 1), hinted(6, 1)}, 5), window(1, 2));
  EXPECT_EQ(choose({gap(5)}, 5), window(0, 1));
  EXPECT_EQ(choose({gap(5)}, 6), std::nullopt);
}

TEST(Eviction, SlidesOnBehindTheFirstWindowThatReachesTheEnd) {
  EXPECT_EQ(choose({hinted(1, 1), hinted(3, 50), hinted(4, 9)}, 4), window(2, 3));
  EXPECT_EQ(choose({hinted(1, 0), consumed(4)}, 4), window(1, 2));
}

TEST(Eviction, LooksAtEveryWindowBeforeItChooses) {
  EXPECT_EQ(choose({hinted(4, 5), hinted(4, 6), hinted(4, 7), hinted(4, 8)}, 4), window(3, 4));
}

TEST(Eviction, LeavesOutWhatTheWindowDoesNotNeed) {
  // At the front, at the back, and both.
  EXPECT_EQ(choose({hinted(1, 900), hinted(4, 900), hinted(1, 900)}, 4), window(1, 2));
  EXPECT_EQ(choose({consumed(1), consumed(4), consumed(1)}, 4), window(1, 2));
  EXPECT_EQ(choose({gap(1), consumed(4), gap(1)}, 4), window(1, 2));
}

TEST(Eviction, NothingWhereNoWindowIsLargeEnough) {
  EXPECT_EQ(choose({consumed(4), gap(4)}, 9), std::nullopt);
  EXPECT_EQ(choose({consumed(4), gap(4)}, std::numeric_limits<std::uint64_t>::max()), std::nullopt);
  EXPECT_EQ(choose({}, 1), std::nullopt);
}

TEST(Eviction, NoWindowIsEmpty) {
  EXPECT_EQ(choose({hinted(4, 3), gap(2), hinted(4, 3)}, 0), window(1, 2));
  EXPECT_EQ(choose({}, 0), std::nullopt);
}

TEST(Eviction, FindsItsWayInTheLargestBuffer) {
  constexpr std::uint64_t kHalf = std::uint64_t{1} << 63;
  EXPECT_EQ(choose({hinted(kHalf, 0), hinted(kHalf - 1, 1)}, kHalf - 1), window(1, 2));
  EXPECT_EQ(choose({hinted(kHalf, 0), hinted(kHalf - 1, 1)}, 2 * (kHalf - 1)), window(0, 2));
}

// --- Waiting.

TEST(Eviction, NothingWhereEveryWindowHasWhatIsNeverEvicted) {
  EXPECT_EQ(choose({hinted(4, 900, kNever)}, 4), std::nullopt);
  EXPECT_EQ(choose({gap(3), hinted(1, 900, kNever), gap(3)}, 4), std::nullopt);
}

TEST(Eviction, GoesOnBehindWhatIsNeverEvicted) {
  EXPECT_EQ(choose({gap(3), hinted(1, 900, kNever), hinted(4, 0)}, 4), window(2, 3));
  EXPECT_EQ(choose({hinted(4, 0, 0.5), hinted(1, 900, kNever), hinted(4, 0, 0.25)}, 4),
            window(2, 3, 0.25));
}

TEST(Eviction, WhatIsNoWaitEvictsNothing) {
  for (const double wait : {-1.0, -kNever, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_EQ(choose({hinted(4, 900, wait)}, 4), std::nullopt) << wait;
    EXPECT_EQ(choose({hinted(4, 900, wait), hinted(4, 0, 7)}, 4), window(1, 2, 7)) << wait;
  }
}

TEST(Eviction, WaitsForTheLastOfAWindowAndNotForAllInTurn) {
  // Two flushes that end within a second, side by side, block for less than one of 1.5 s.
  EXPECT_EQ(choose({hinted(2, 9, 0.9), hinted(2, 9, 1), hinted(4, 9, 1.5)}, 4), window(0, 2, 1));
}

TEST(Eviction, NotWaitingComesFirst) {
  EXPECT_EQ(choose({consumed(4, 1e-9), hinted(4, 0)}, 4), window(1, 2));
  EXPECT_EQ(choose({unhinted(4, 0.2), hinted(4, 0, 0.1)}, 4), window(1, 2, 0.1));
}

TEST(Eviction, AmongEqualWaitsTheLossDecides) {
  EXPECT_EQ(choose({hinted(4, 1, 2), hinted(2, 9, 2), hinted(2, 9, 1), hinted(4, 2, 2)}, 4),
            window(1, 3, 2));
}

TEST(Eviction, WaitsLeaveNothingBehindInTheSum) {
  // Sums of doubles that slide over these are not 0 again behind them.
  EXPECT_EQ(choose({hinted(2, 9, 1e9), hinted(2, 9, 0.1), hinted(2, 9, 0.2), hinted(2, 0),
                    hinted(2, 0), hinted(2, 9, 0.1)},
                   4),
            window(3, 5, 0));
}

TEST(Eviction, DecidesAgainAfterAWait) {
  AllocationTable table(12, 1);
  for (Step step = 0; step < 3; ++step) table.place(step, step + 1, step, 4);
  std::vector<Score> scores{{3, 5, false}, {1, 5, false}, {2, 5, false}};
  const auto score_of = [&](const Fragment& fragment) { return scores[fragment.step]; };
  EXPECT_EQ(choose_window(table.fragments(), 4, score_of), window(1, 2, 1));
  // While it waits, an earlier checkpoint is discarded and its neighbour's flush ends: fragment 1
  // is another one now.
  table.erase(0);
  table.erase(1);
  scores[2].wait = 0;
  EXPECT_EQ(choose_window(table.fragments(), 4, score_of), window(0, 1));
  EXPECT_EQ(table.place(0, 1, 3, 4), 0u);
  EXPECT_NE(table.find(2), nullptr);
}

TEST(Eviction, AsksForEachCheckpointsScoreOnceAtEveryDecision) {
  const std::vector<Part> parts{hinted(4, 1), gap(1), hinted(4, 2), consumed(2)};
  std::vector<Step> asked;
  const auto score_of = [&](const Fragment& fragment) {
    asked.push_back(fragment.step);
    return parts[fragment.step].score;
  };
  EXPECT_TRUE(choose_window(fragments_of(parts), 4, score_of));
  EXPECT_EQ(asked, (std::vector<Step>{0, 2, 3}));
}

// --- What is lost.

TEST(Eviction, ConsumedGoBeforeFlushed) {
  EXPECT_EQ(choose({unhinted(4), consumed(4), hinted(4, 900)}, 4), window(1, 2));
  EXPECT_EQ(choose({hinted(4, 900), {4, {0, 0, true}}, unhinted(4)}, 4), window(1, 2))
      << "a consumed one's old place in the restore order does not matter";
}

TEST(Eviction, UnhintedGoBeforeHinted) {
  EXPECT_EQ(choose({hinted(4, 1'000'000'000), unhinted(4), hinted(4, kUnhinted - 1)}, 4),
            window(1, 2));
}

TEST(Eviction, AmongUnhintedTheFewestBytesGo) {
  EXPECT_EQ(choose({unhinted(6), unhinted(2), gap(2), unhinted(5)}, 4), window(1, 3));
}

TEST(Eviction, TheFarthestRestoreGoesFirst) {
  EXPECT_EQ(choose({hinted(4, 3), hinted(4, 8), hinted(4, 5)}, 4), window(1, 2));
}

TEST(Eviction, AGapDoesNotHideWhatIsNextToIt) {
  // With a gap as far away as can be, the sum of distances would evict the next restore.
  EXPECT_EQ(choose({gap(1), hinted(3, 0), hinted(4, 40)}, 4), window(2, 3));
}

TEST(Eviction, ASmallCheckpointGoesThatGapsSurround) {
  EXPECT_EQ(choose({hinted(10, 4), gap(5), hinted(1, 4), gap(4), hinted(10, 4)}, 10), window(1, 4));
}

TEST(Eviction, ManyNearOnesDoNotOutweighAFarOne) {
  EXPECT_EQ(choose({hinted(1, 20), hinted(1, 20), hinted(1, 20), hinted(1, 20), hinted(4, 40)}, 4),
            window(4, 5));
}

TEST(Eviction, ASmallNearOneDoesNotSaveALargeFarOne) {
  // 1 byte again soon costs less than 99 somewhat later.
  EXPECT_EQ(choose({hinted(1, 4), hinted(99, 900), hinted(100, 90)}, 100), window(0, 2));
}

TEST(Eviction, TheBestFitOfEqualWindows) {
  EXPECT_EQ(choose({gap(9), hinted(1, 0), gap(5), hinted(1, 0), gap(7)}, 5), window(2, 3));
  EXPECT_EQ(choose({hinted(1, 0), consumed(9), hinted(1, 0), gap(5)}, 4), window(3, 4));
}

TEST(Eviction, AGapBeforeAConsumedOneOfItsSize) {
  EXPECT_EQ(choose({consumed(4), hinted(1, 0), gap(4), hinted(1, 0), consumed(4)}, 4),
            window(2, 3));
}

TEST(Eviction, TheLowerOffsetOfEqualWindows) {
  EXPECT_EQ(choose({hinted(1, 0), gap(4), hinted(1, 0), gap(4)}, 4), window(1, 2));
}

TEST(Eviction, FarRestoresLeaveNothingBehindInTheSum) {
  // Thirds and sevenths slide through; the two gaps at the ends are equal to the last bit.
  std::vector<Part> parts{hinted(5, 0)};
  for (std::uint64_t i = 0; i < 1000; ++i) parts.push_back(hinted(1 + i % 3, i * 7919 % 977));
  parts.push_back(gap(3));
  parts.push_back(hinted(1'000'000'007, 2));
  parts.push_back(gap(3));
  EXPECT_EQ(choose(parts, 3), window(1001, 1002));
}

// --- Where what is left goes.

// Of a consumed checkpoint between these two.
Rest rest_between(const Part& before, const Part& behind) {
  const auto window = choose_with_rest({before, consumed(4), behind}, 3);
  EXPECT_EQ(window->first, 1u);
  return window->rest;
}

TEST(Eviction, WhatIsLeftGoesBesideTheNeighbourThatIsLostMoreEasily) {
  // Each is lost more easily than those behind it. All are too small for the new one.
  const std::vector<Part> parts{gap(1),          consumed(1),  unhinted(1),
                                hinted(1, 1000), hinted(1, 0), hinted(1, 1000, kNever)};
  for (std::size_t i = 0; i < parts.size(); ++i) {
    EXPECT_EQ(rest_between(parts[i], parts[i]), Rest::behind) << i;
    for (std::size_t k = i + 1; k < parts.size(); ++k) {
      EXPECT_EQ(rest_between(parts[i], parts[k]), Rest::before) << i << " " << k;
      EXPECT_EQ(rest_between(parts[k], parts[i]), Rest::behind) << k << " " << i;
    }
  }
}

TEST(Eviction, WhatIsLeftStaysAwayFromTheBuffersEnds) {
  EXPECT_EQ(choose_with_rest({consumed(4), hinted(1, 0)}, 3), (Window{0, 1, 0, Rest::behind}));
  EXPECT_EQ(choose_with_rest({hinted(1, 0), consumed(4)}, 3), (Window{1, 2, 0, Rest::before}));
  EXPECT_EQ(choose_with_rest({consumed(4)}, 3), (Window{0, 1, 0, Rest::behind}));
}

// --- All of it.

// The best window by looking at each, with sums that are exact where 1 + distance is a power of 2.
std::optional<Window> best_of_all(const std::vector<Part>& parts, std::uint64_t bytes) {
  using Key = std::tuple<double, long double, std::uint64_t, std::uint64_t, std::uint64_t>;
  std::optional<std::pair<Key, Window>> best;
  for (std::size_t first = 0; first < parts.size(); ++first) {
    Key key{};
    auto& [wait, loss, without_hint, window, used] = key;
    for (std::size_t i = first; i < parts.size(); ++i) {
      const auto& [size, score, is_gap] = parts[i];
      window += size;
      if (!is_gap) {
        wait = std::max(wait, score.wait);
        if (score.consumed) {
          used += size;
        } else if (score.distance == kUnhinted) {
          without_hint += size;
        } else {
          loss += static_cast<long double>(size) / (1 + static_cast<long double>(score.distance));
        }
      }
      if (window < bytes || wait == kNever) continue;
      if (!best || key < best->first) best = {key, {first, i + 1, wait, Rest::behind}};
    }
  }
  return best ? std::optional(best->second) : std::nullopt;
}

TEST(Eviction, AgreesWithAComparisonOfAllWindows) {
  std::mt19937_64 random(test::test_seed());
  const std::uint64_t rounds = test::some_of(20'000);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    // Few values, so that much is equal: each rank of the comparison has to decide at times.
    const std::uint64_t sizes = 1 + random() % 6;
    const unsigned never = random() % 8;
    const unsigned now = random() % 8;
    const unsigned kinds = 1 + random() % 4;
    std::vector<Part> parts;
    for (std::uint64_t i = random() % 24; i > 0; --i) {
      const std::uint64_t size = (1 + random() % sizes) * 4096;
      const double wait = random() % 8 < now     ? 0
                          : random() % 8 < never ? kNever
                                                 : static_cast<double>(random() % 4) / 4;
      const std::uint64_t distance = (std::uint64_t{1} << random() % 9) - 1;
      switch (random() % kinds) {
        case 0:
          parts.push_back(hinted(size, distance, wait));
          break;
        case 1:
          if (!parts.empty() && parts.back().gap) break;
          parts.push_back(gap(size));
          break;
        case 2:
          parts.push_back(consumed(size, wait));
          break;
        default:
          parts.push_back(unhinted(size, wait));
      }
    }
    const std::uint64_t bytes = random() % (sizes * 4 * 4096);
    const auto chosen = choose(parts, bytes);
    ASSERT_EQ(chosen, best_of_all(parts, std::max<std::uint64_t>(bytes, 1))) << "round " << round;
  }
}

// Tables in which rows of free fragments are looked for before anything else: mostly consumed ones,
// few of them, or none; rows that reach over 64 neighbours, and to both ends; exact fits.
TEST(Eviction, AgreesWithAComparisonOfAllWindowsOfLargeTables) {
  std::mt19937_64 random(test::test_seed());
  const std::uint64_t rounds = test::some_of(600, 20);
  for (std::uint64_t round = 0; round < rounds; ++round) {
    const std::uint64_t sizes = 1 + random() % 6;
    const unsigned consumed_of_32 = std::array{0, 2, 8, 24, 31, 32}[random() % 6];
    const unsigned late_of_8 = random() % 4;
    const bool has_unhinted = random() % 2 == 0;
    std::uint64_t count = 1 + random() % 320;
    if (random() % 2 == 0) count = (count + 63) / 64 * 64;  // the search goes by as many
    std::vector<Part> parts;
    for (; count > 0; --count) {
      const std::uint64_t size = (1 + random() % sizes) * 4096;
      const double wait = random() % 8 >= late_of_8 ? 0
                          : random() % 2 == 0       ? kNever
                                                    : static_cast<double>(1 + random() % 3) / 4;
      if (random() % 32 < consumed_of_32) {
        parts.push_back(consumed(size, wait));
      } else if (random() % 4 == 0 && (parts.empty() || !parts.back().gap)) {
        parts.push_back(gap(size));
      } else if (has_unhinted && random() % 4 == 0) {
        parts.push_back(unhinted(size, wait));
      } else {
        parts.push_back(hinted(size, (std::uint64_t{1} << random() % 9) - 1, wait));
      }
    }
    const std::uint64_t neighbours = random() % 8 == 0 ? 100 : 4;
    const std::uint64_t pages = 1 + random() % (sizes * neighbours);
    const std::uint64_t bytes = pages * 4096 - (random() % 2 == 0 ? 0 : random() % 4096);
    ASSERT_EQ(choose(parts, bytes), best_of_all(parts, bytes)) << "round " << round;

    // As a catalog asks: first of what need not wait.
    const auto score_of = [&](const Fragment& fragment) { return parts[fragment.step].score; };
    const auto now = [&](const Fragment& fragment) {
      Score score = score_of(fragment);
      if (score.wait > 0) score.wait = kNever;
      return score;
    };
    const auto may_be_free = [&](const Fragment& fragment) {
      if (fragment.step == kGap) return round % 2 == 0;  // it does not matter
      const Score score = score_of(fragment);
      if (round % 3 == 0 && fragment.step % 2 == 0) return true;  // it is asked again
      return score.consumed && score.wait == 0;
    };
    std::vector<Score> memory;
    for (const std::uint64_t gaps : {std::uint64_t{0}, bytes}) {  // it does not matter
      ASSERT_EQ(choose_window(fragments_of(parts), bytes, gaps, may_be_free, now, score_of, memory),
                choose_with_rest(parts, bytes))
          << "round " << round;
    }
  }
}

}  // namespace

// For messages of failed tests.
void PrintTo(const Window& window, std::ostream* out) {
  *out << "[" << window.first << ", " << window.last << ") in " << window.wait << " s, rest "
       << (window.rest == Rest::before ? "before" : "behind");
}

}  // namespace holdfast::history
