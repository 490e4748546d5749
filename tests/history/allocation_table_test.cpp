#include "history/allocation_table.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <set>
#include <vector>

#include "support/error_of.hpp"
#include "support/scratch.hpp"

namespace holdfast::history {
namespace {

using Fragments = std::vector<Fragment>;

Fragments fragments(const AllocationTable& table) {
  return {table.fragments().begin(), table.fragments().end()};
}

// Checkpoints 0, 1, ... of these sizes, one behind the other.
AllocationTable filled(std::uint64_t capacity, const std::vector<std::uint64_t>& sizes) {
  AllocationTable table(capacity, 1);
  for (std::size_t i = 0; i < sizes.size(); ++i) table.place(i, i + 1, i, sizes[i]);
  return table;
}

TEST(AllocationTable, IsOneGapAtFirst) {
  const AllocationTable table(4096, 512);
  EXPECT_EQ(fragments(table), (Fragments{{0, 4096, kGap}}));
  EXPECT_EQ(table.capacity(), 4096u);
  EXPECT_EQ(table.used(), 0u);
  EXPECT_EQ(table.find(kGap), nullptr);
  EXPECT_TRUE(table.valid());
}

TEST(AllocationTable, UsesWholeUnitsOfItsBuffer) {
  const AllocationTable table(1000, 256);
  EXPECT_EQ(table.capacity(), 768u);
  EXPECT_EQ(fragments(table), (Fragments{{0, 768, kGap}}));
}

TEST(AllocationTable, RefusesWhatIsNoBuffer) {
  for (const std::uint64_t alignment : {0, 3, 4095}) {
    EXPECT_EQ(test::error_of([&] { AllocationTable(1 << 20, alignment); }), Errc::invalid_argument)
        << alignment;
  }
  EXPECT_EQ(test::error_of([] { AllocationTable(4095, 4096); }), Errc::invalid_argument);
  EXPECT_EQ(test::error_of([] { AllocationTable(0, 1); }), Errc::invalid_argument);
}

TEST(AllocationTable, RoundsSizesUp) {
  const AllocationTable table(1 << 20, 256);
  EXPECT_EQ(table.rounded(0), 256u) << "an empty checkpoint is somewhere, too";
  EXPECT_EQ(table.rounded(1), 256u);
  EXPECT_EQ(table.rounded(256), 256u);
  EXPECT_EQ(table.rounded(257), 512u);
  EXPECT_EQ(table.rounded(~std::uint64_t{0} - 255), ~std::uint64_t{0} - 255);
  EXPECT_EQ(table.rounded(~std::uint64_t{0} - 254), ~std::uint64_t{0});
  EXPECT_EQ(table.rounded(~std::uint64_t{0}), ~std::uint64_t{0});
}

TEST(AllocationTable, WhatAPlacementLeavesIsAGapBehindIt) {
  AllocationTable table = filled(100, {40, 60});
  EXPECT_EQ(table.place(0, 1, 7, 30), 0u);
  EXPECT_EQ(fragments(table), (Fragments{{0, 30, 7}, {30, 10, kGap}, {40, 60, 1}}));
  EXPECT_EQ(table.used(), 90u);
}

TEST(AllocationTable, AnExactFitLeavesNoGap) {
  AllocationTable table = filled(100, {40, 60});
  EXPECT_EQ(table.place(0, 1, 7, 40), 0u);
  EXPECT_EQ(fragments(table), (Fragments{{0, 40, 7}, {40, 60, 1}}));
  EXPECT_EQ(table.place(0, 2, 8, 100), 0u);
  EXPECT_EQ(fragments(table), (Fragments{{0, 100, 8}}));
}

TEST(AllocationTable, TheFragmentBehindTheWindowStays) {
  AllocationTable table = filled(100, {20, 30, 50});
  table.place(0, 2, 7, 50);
  EXPECT_EQ(fragments(table), (Fragments{{0, 50, 7}, {50, 50, 2}}));
}

TEST(AllocationTable, GapsOfAWindowCountAsItsRoom) {
  AllocationTable table = filled(100, {20, 30, 50});
  table.erase(1);
  EXPECT_EQ(table.place(0, 2, 7, 45), 0u);
  EXPECT_EQ(fragments(table), (Fragments{{0, 45, 7}, {45, 5, kGap}, {50, 50, 2}}));
}

TEST(AllocationTable, WhatIsLeftJoinsAGapThatFollows) {
  AllocationTable table = filled(100, {20, 30, 50});
  table.erase(1);
  EXPECT_EQ(table.place(0, 1, 7, 15), 0u);
  EXPECT_EQ(fragments(table), (Fragments{{0, 15, 7}, {15, 35, kGap}, {50, 50, 2}}));
}

TEST(AllocationTable, WhatIsLeftGoesToTheSideThatIsAskedFor) {
  AllocationTable table = filled(100, {20, 30, 50});
  EXPECT_EQ(table.place(1, 2, 7, 25, Rest::before), 25u);
  EXPECT_EQ(fragments(table), (Fragments{{0, 20, 0}, {20, 5, kGap}, {25, 25, 7}, {50, 50, 2}}));
  table.erase(7);
  table.erase(0);
  EXPECT_EQ(table.place(0, 1, 8, 50, Rest::before), 0u);
  EXPECT_EQ(fragments(table), (Fragments{{0, 50, 8}, {50, 50, 2}})) << "an exact fit";
}

TEST(AllocationTable, WhatIsLeftJoinsAGapBefore) {
  AllocationTable table = filled(100, {20, 30, 50});
  table.erase(0);
  EXPECT_EQ(table.place(1, 2, 7, 25, Rest::before), 25u);
  EXPECT_EQ(fragments(table), (Fragments{{0, 25, kGap}, {25, 25, 7}, {50, 50, 2}}));
  EXPECT_TRUE(table.valid());
}

TEST(AllocationTable, WhatIsErasedJoinsTheGapsOnBothSides) {
  AllocationTable table = filled(100, {20, 30, 10, 40});
  EXPECT_TRUE(table.erase(0));
  EXPECT_TRUE(table.erase(2));
  EXPECT_EQ(fragments(table), (Fragments{{0, 20, kGap}, {20, 30, 1}, {50, 10, kGap}, {60, 40, 3}}));
  EXPECT_TRUE(table.erase(1));
  EXPECT_EQ(fragments(table), (Fragments{{0, 60, kGap}, {60, 40, 3}}));
  EXPECT_FALSE(table.erase(1)) << "it is not there any more";
  EXPECT_FALSE(table.erase(kGap));
  EXPECT_TRUE(table.erase(3));
  EXPECT_EQ(table, AllocationTable(100, 1));
}

TEST(AllocationTable, ACheckpointCanTakeItsOwnPlace) {
  AllocationTable table = filled(100, {20, 80});
  EXPECT_EQ(table.place(0, 1, 0, 10), 0u);
  EXPECT_EQ(fragments(table), (Fragments{{0, 10, 0}, {10, 10, kGap}, {20, 80, 1}}));
}

TEST(AllocationTable, CopiesAreIndependent) {
  AllocationTable table = filled(100, {20, 80});
  const AllocationTable copy = table;
  EXPECT_EQ(copy, table);
  table.erase(0);
  EXPECT_NE(copy, table);
  EXPECT_NE(copy.find(0), nullptr);
}

// The owner of every unit, and all that follows from it by looking at each.
class Oracle {
 public:
  Oracle(std::uint64_t units, std::uint64_t alignment) : owner_(units, kGap), unit_(alignment) {}

  void forget(std::uint64_t begin, std::uint64_t end) {
    for (std::uint64_t unit = begin / unit_; unit < end / unit_; ++unit) owner_[unit] = kGap;
  }
  // False if a unit has an owner.
  bool claim(std::uint64_t offset, Step step, std::uint64_t bytes) {
    if (offset % unit_ != 0) return false;
    const std::uint64_t first = offset / unit_;
    for (std::uint64_t unit = first; unit == first || unit * unit_ < offset + bytes; ++unit) {
      if (unit >= owner_.size() || owner_[unit] != kGap) return false;
      owner_[unit] = step;
    }
    return true;
  }
  bool erase(Step step) {
    bool any = false;
    for (Step& owner : owner_) {
      any |= owner == step;
      if (owner == step) owner = kGap;
    }
    return any;
  }
  Fragments fragments() const {
    Fragments all;
    for (std::uint64_t unit = 0; unit < owner_.size(); ++unit) {
      if (all.empty() || all.back().step != owner_[unit]) {
        all.push_back({unit * unit_, 0, owner_[unit]});
      }
      all.back().bytes += unit_;
    }
    return all;
  }
  std::uint64_t used() const {
    std::uint64_t units = 0;
    for (const Step owner : owner_) units += owner != kGap ? 1 : 0;
    return units * unit_;
  }

 private:
  std::vector<Step> owner_;
  std::uint64_t unit_;
};

TEST(AllocationTable, AgreesWithAListOfOwners) {
  std::mt19937_64 random(test::test_seed());
  for (int round = 0; round < 200; ++round) {
    const std::uint64_t unit = std::uint64_t{1} << random() % 5;
    const std::uint64_t units = 1 + random() % 64;
    AllocationTable table(units * unit + random() % unit, unit);
    Oracle oracle(units, unit);
    for (Step step = 0; step < 200; ++step) {
      if (step > 0 && random() % 3 == 0) {
        const Step old = random() % step;
        ASSERT_EQ(table.erase(old), oracle.erase(old));
      } else {
        const auto now = table.fragments();
        const std::size_t first = random() % now.size();
        const std::size_t last =
            first + 1 + random() % std::min<std::size_t>(4, now.size() - first);
        const std::uint64_t begin = now[first].offset;
        const std::uint64_t end = now[last - 1].offset + now[last - 1].bytes;
        const std::uint64_t bytes = random() % 4 == 0 ? end - begin : random() % (end - begin + 1);
        const Rest rest = random() % 2 == 0 ? Rest::before : Rest::behind;
        oracle.forget(begin, end);
        const std::uint64_t offset = table.place(first, last, step, bytes, rest);
        ASSERT_GE(offset, begin);
        ASSERT_LE(offset + bytes, end);
        ASSERT_EQ(offset, rest == Rest::before ? end - table.rounded(bytes) : begin);
        ASSERT_TRUE(oracle.claim(offset, step, bytes));
        ASSERT_NE(table.find(step), nullptr);
        ASSERT_EQ(table.find(step)->offset, offset);
      }
      ASSERT_TRUE(table.valid());
      ASSERT_EQ(fragments(table), oracle.fragments());
      ASSERT_EQ(table.used(), oracle.used());
    }
  }
}

}  // namespace
}  // namespace holdfast::history
