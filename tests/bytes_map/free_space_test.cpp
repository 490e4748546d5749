// What is free, against an oracle that has a flag for each grain.
#include "bytes_map/free_space.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/scratch.hpp"

namespace holdfast::bytes_map {
namespace {

TEST(FreeSpace, RandomTakingsAreWhereNothingIsAndNothingIsLost) {
  std::mt19937_64 random(test::test_seed());
  constexpr std::uint64_t kGrains = 2000;
  std::vector<bool> used(kGrains, false);
  FreeSpace space(kGrains, {});
  std::vector<Extent> held;
  for (int round = 0; round < 300; ++round) {
    std::vector<std::uint64_t> sizes(random() % 20);
    for (auto& each : sizes) each = random() % 40;
    const std::vector<Extent> taken = space.take(sizes);
    ASSERT_EQ(taken.size(), sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      if (taken[i].grains == 0) {
        if (sizes[i] != 0) {
          ASSERT_LT(space.largest(), sizes[i]) << "there was room";
        }
        continue;
      }
      ASSERT_EQ(taken[i].grains, sizes[i]);
      for (std::uint64_t grain = taken[i].first; grain < taken[i].end(); ++grain) {
        ASSERT_FALSE(used[grain]);
        used[grain] = true;
      }
      held.push_back(taken[i]);
    }
    std::vector<Extent> given;
    for (std::size_t some = held.size() / 3; some > 0; --some) {
      std::swap(held[random() % held.size()], held.back());
      given.push_back(held.back());
      held.pop_back();
    }
    for (const Extent& each : given) {
      for (std::uint64_t grain = each.first; grain < each.end(); ++grain) used[grain] = false;
    }
    space.give(given);
    std::vector<bool> free(kGrains, false);
    std::uint64_t end = 0;
    for (const Extent& each : space.extents()) {
      ASSERT_TRUE(each.first > end || end == 0) << "extents touch";
      end = each.end();
      for (std::uint64_t grain = each.first; grain < end; ++grain) free[grain] = true;
    }
    for (std::uint64_t grain = 0; grain < kGrains; ++grain) ASSERT_NE(free[grain], used[grain]);
    // As opening makes it.
    std::sort(held.begin(), held.end(),
              [](const Extent& a, const Extent& b) { return a.first < b.first; });
    ASSERT_EQ(FreeSpace(kGrains, held).grains(), space.grains());
  }
}

TEST(FreeSpace, ABatchStandsSideBySideInTheSmallestExtentThatTakesIt) {
  // Free: 10 at 0, 30 at 20, 50 at 60.
  FreeSpace space(110, {{10, 10}, {50, 10}});
  const std::vector<Extent> taken = space.take({8, 8, 8});
  EXPECT_EQ(taken[0].first, 20u);
  EXPECT_EQ(taken[1].first, 28u);
  EXPECT_EQ(taken[2].first, 36u);
}

TEST(FreeSpace, SmallPiecesAreUsedWhenThereAreNoLargerOnes) {
  FreeSpace space(14, {{3, 1}, {7, 1}, {10, 1}});
  const std::vector<Extent> taken = space.take({3, 3, 3, 3, 2});
  int placed = 0;
  for (const Extent& each : taken) placed += each.grains != 0;
  EXPECT_EQ(placed, 4);
  EXPECT_EQ(taken[3].grains, 0u);
  EXPECT_EQ(space.grains(), 0u);
}

}  // namespace
}  // namespace holdfast::bytes_map
