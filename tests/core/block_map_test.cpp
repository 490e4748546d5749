// The block map, against a list of who has which block.
#include "core/block_map.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast::core {
namespace {

using Owner = BlockMap::Owner;

TEST(BlockMap, RefusesBlocksOutsideAndBlocksTwice) {
  BlockMap map(kFirstBlock + 64);
  EXPECT_EQ(map.end(), kFirstBlock + 64);
  for (const std::uint64_t block :
       {std::uint64_t{0}, kFirstBlock - 1, map.end(), ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
    EXPECT_FALSE(map.claim(block, BlockMap::page(0))) << block;
  }
  EXPECT_TRUE(map.claim(kFirstBlock, BlockMap::page(0)));
  EXPECT_TRUE(map.claim(kFirstBlock + 63, BlockMap::table(5)));
  EXPECT_FALSE(map.claim(kFirstBlock, BlockMap::page(1)));
  EXPECT_FALSE(map.claim(kFirstBlock + 63, BlockMap::page(1)));
  EXPECT_EQ(map.in_force(), 2u);
  EXPECT_EQ(map.used(0), 1u);
  EXPECT_EQ(map.used(1), 1u);
}

TEST(BlockMap, TellsOwnersApart) {
  const std::uint64_t pages = kMaxRegionBytes / kPage;
  for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{1}, pages - 1}) {
    const Owner page = BlockMap::page(number);
    EXPECT_TRUE(BlockMap::is_page(page) && !BlockMap::is_table(page));
    EXPECT_EQ(BlockMap::page_of(page), number);
    const Owner table = BlockMap::table(number / kSegmentPages);
    EXPECT_TRUE(BlockMap::is_table(table) && !BlockMap::is_page(table));
    EXPECT_EQ(BlockMap::segment_of(table), number / kSegmentPages);
  }
  for (const Owner none : {BlockMap::kFree, BlockMap::kPending}) {
    EXPECT_FALSE(BlockMap::is_page(none) || BlockMap::is_table(none));
  }
}

TEST(BlockMap, HandsOutRunsBeforePieces) {
  BlockMap map(kFirstBlock + 4 * kExtentBlocks);
  // Extent 0 is half used, 1 and 2 are free, 3 is full.
  for (std::uint64_t i = 0; i < kExtentBlocks; ++i) {
    if (i % 2 == 0) {
      ASSERT_TRUE(map.claim(kFirstBlock + i, BlockMap::page(i)));
    }
    ASSERT_TRUE(map.claim(kFirstBlock + 3 * kExtentBlocks + i, BlockMap::page(100 + i)));
  }
  std::vector<BlockRun> runs;
  map.allocate(2 * kExtentBlocks, runs);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].block, kFirstBlock + kExtentBlocks);
  EXPECT_EQ(runs[0].count, 2 * kExtentBlocks);
  // Then the file grows, until it is long enough.
  runs.clear();
  const std::uint64_t bound = 2 * map.in_force() + kGrowthSlack;
  map.allocate(bound - 4 * kExtentBlocks, runs);
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].block, kFirstBlock + 4 * kExtentBlocks);
  // Then come the pieces, and then it grows all the same.
  runs.clear();
  map.allocate(kExtentBlocks / 2 + 1, runs);
  EXPECT_EQ(runs.size(), kExtentBlocks / 2 + 1);
  EXPECT_EQ(runs.front().block, kFirstBlock + 1);
  EXPECT_GE(runs.back().block, kFirstBlock + bound);
}

// A list with an owner for each block, and all that follows from it by looking at every one.
class Oracle {
 public:
  explicit Oracle(BlockMap& map) : map_(map), owner_(map.end(), BlockMap::kFree) {}

  void allocate(std::uint64_t count) {
    const std::uint64_t before = map_.end();
    const std::uint64_t roomy = kExtentBlocks * free_extents();
    const std::uint64_t bound = kFirstBlock + 2 * in_force() + kGrowthSlack;
    std::vector<BlockRun> runs;
    map_.allocate(count, runs);
    owner_.resize(map_.end(), BlockMap::kFree);
    std::uint64_t got = 0;
    for (const BlockRun& run : runs) {
      got += run.count;
      for (std::uint64_t block = run.block; block < run.block + run.count; ++block) {
        ASSERT_GE(block, kFirstBlock);
        ASSERT_LT(block, map_.end());
        ASSERT_EQ(owner_[block], BlockMap::kFree) << "handed out twice";
        owner_[block] = BlockMap::kPending;
        pending_.push_back(block);
      }
    }
    ASSERT_EQ(got, count);
    if (roomy >= count + kExtentBlocks) {  // what is left of the current run may be in one
      ASSERT_LE(runs.size(), count / kExtentBlocks + 2) << "runs, not pieces";
    }
    if (map_.end() > before && map_.end() >= bound + kExtentBlocks) {
      for (std::uint64_t block = kFirstBlock; block < before; ++block) {
        ASSERT_TRUE(owner_[block] != BlockMap::kFree || closed(block))
            << "the file grows too far while there is room";
      }
    }
  }

  // The commit succeeds: what it took is kept, some of what there was is released.
  void keep_and_release(std::mt19937_64& random, unsigned percent) {
    std::vector<std::uint64_t> old;
    for (std::uint64_t block = kFirstBlock; block < owner_.size(); ++block) {
      if (owner_[block] != BlockMap::kFree && owner_[block] != BlockMap::kPending &&
          random() % 100 < percent) {
        old.push_back(block);
      }
    }
    for (const std::uint64_t block : pending_) {
      owner_[block] = random() % 8 == 0 ? BlockMap::table(next_++) : BlockMap::page(next_++);
      map_.keep(block, owner_[block]);
    }
    pending_.clear();
    for (const std::uint64_t block : old) {
      map_.release(block);
      owner_[block] = BlockMap::kFree;
    }
  }

  void give_back() {
    map_.give_back();
    for (const std::uint64_t block : pending_) owner_[block] = BlockMap::kFree;
    pending_.clear();
    closed_.clear();
  }

  void close(std::uint64_t extent) {
    if (map_.used(extent) == 0 || map_.is_current(extent)) return;
    map_.close(extent);
    closed_.push_back(extent);
  }

  void check() const {
    ASSERT_EQ(map_.in_force(), in_force());
    for (std::uint64_t extent = 0; extent < map_.extents(); ++extent) {
      const std::uint64_t first = BlockMap::extent_block(extent);
      std::uint64_t used = 0;
      for (std::uint64_t block = first; block < first + kExtentBlocks; ++block) {
        ASSERT_EQ(map_.owner(block), owner_[block]);
        used += owner_[block] != BlockMap::kFree ? 1 : 0;
      }
      ASSERT_EQ(map_.used(extent), used);
    }
    ASSERT_GE(map_.roomy(in_force()), kExtentBlocks * free_extents());
  }

  std::uint64_t in_force() const {
    return static_cast<std::uint64_t>(std::count_if(owner_.begin(), owner_.end(), [](Owner owner) {
      return owner != BlockMap::kFree && owner != BlockMap::kPending;
    }));
  }

 private:
  std::uint64_t free_extents() const {
    std::uint64_t count = 0;
    for (std::uint64_t first = kFirstBlock; first < owner_.size(); first += kExtentBlocks) {
      const auto* const begin = owner_.data() + first;
      count += std::all_of(begin, begin + kExtentBlocks, [](Owner o) { return o == 0; }) ? 1 : 0;
    }
    return count;
  }
  bool closed(std::uint64_t block) const {
    return std::find(closed_.begin(), closed_.end(), BlockMap::extent_of(block)) != closed_.end();
  }

  BlockMap& map_;
  std::vector<Owner> owner_;  // by block
  std::vector<std::uint64_t> pending_;
  std::vector<std::uint64_t> closed_;
  std::uint64_t next_ = 0;
};

TEST(BlockMap, AgreesWithAListOfOwners) {
  std::mt19937_64 random(test::test_seed());
  for (std::uint64_t round = 0; round < test::some_of(20, 2); ++round) {
    BlockMap map(kFirstBlock + random() % 300);
    Oracle oracle(map);
    for (int commit = 0; commit < 60; ++commit) {
      oracle.give_back();
      for (std::uint64_t i = random() % 8; i > 0 && map.extents() > 0; --i) {
        oracle.close(random() % map.extents());
      }
      for (std::uint64_t i = random() % 4; i > 0; --i) {
        oracle.allocate(random() % (random() % 4 == 0 ? 1500 : 100));
      }
      if (random() % 4 != 0) {
        oracle.keep_and_release(random, static_cast<unsigned>(random() % 70));
      }
      oracle.check();
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace holdfast::core
