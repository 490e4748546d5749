// What cleaning chooses, and what shapes a log can have.
#include <gtest/gtest.h>

#include <algorithm>

#include "kv_store/kv_log_test.hpp"
#include "kv_store/log/rules.hpp"
#include "support/error_of.hpp"

namespace holdfast::test {
namespace {

using kv::log::Choice;
using kv::log::choose_victims;
using kv::log::oldest_of;
using kv::log::SegmentState;
using kv::log::Victims;

constexpr std::uint32_t kRecords = 256;
constexpr std::uint32_t kNoTail = ~0u;

TEST(KvLogRules, TheEmptierOfTwoOfOneAgeIsCleanedFirst) {
  const std::vector<SegmentState> segments{{200, 1, 5}, {100, 1, 5}, {150, 1, 5}};
  const Victims one = choose_victims(segments, kNoTail, kRecords, 9, 1, 1000, Choice::benefit);
  EXPECT_EQ(one.segments, std::vector<std::uint32_t>{1});
  EXPECT_EQ(one.live, 100u);
  const Victims more = choose_victims(segments, kNoTail, kRecords, 9, 200, 1000, Choice::benefit);
  EXPECT_EQ(more.segments, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(more.live, 250u);
}

TEST(KvLogRules, TheOlderOfTwoThatAreAsFullIsCleanedFirst) {
  const std::vector<SegmentState> segments{{200, 7, 8}, {200, 1, 2}};
  EXPECT_EQ(choose_victims(segments, kNoTail, kRecords, 9, 1, 1000, Choice::benefit).segments,
            std::vector<std::uint32_t>{1});
}

TEST(KvLogRules, NeitherTheTailNorWhatIsFreeOrFullIsCleaned) {
  const std::vector<SegmentState> segments{{10, 1, 1}, {0, 0, 0}, {250, 2, 2}, {246, 2, 2}};
  EXPECT_TRUE(choose_victims(segments, 0, kRecords, 9, 1, 1000, Choice::benefit).segments.empty());
  EXPECT_EQ(choose_victims(segments, 2, kRecords, 9, 1, 1000, Choice::benefit).segments,
            std::vector<std::uint32_t>{0});
}

TEST(KvLogRules, NoMoreIsCopiedThanThereIsRoomFor) {
  const std::vector<SegmentState> segments{{100, 1, 1}, {90, 1, 1}, {80, 1, 1}, {0, 1, 1}};
  const Victims victims =
      choose_victims(segments, kNoTail, kRecords, 9, 10000, 185, Choice::benefit);
  EXPECT_EQ(victims.segments, (std::vector<std::uint32_t>{3, 2, 1}));
  EXPECT_EQ(victims.live, 170u);
  EXPECT_TRUE(
      choose_victims({{100, 1, 1}}, kNoTail, kRecords, 9, 1, 99, Choice::benefit).segments.empty());
}

// Its tombstones are what there is to gain.
TEST(KvLogRules, TheOldestSegmentMayComeFirstWhateverItHas) {
  const std::vector<SegmentState> segments{{10, 4, 9}, {251, 3, 4}, {20, 5, 5}};
  EXPECT_EQ(oldest_of(segments, kNoTail), 1u);
  EXPECT_EQ(oldest_of(segments, 1), 0u);
  EXPECT_EQ(oldest_of({{0, 0, 0}}, kNoTail), kNoTail);
  EXPECT_EQ(choose_victims(segments, kNoTail, kRecords, 9, 1, 1000, Choice::oldest).segments,
            (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(choose_victims(segments, 1, kRecords, 9, 1, 1000, Choice::oldest).segments,
            std::vector<std::uint32_t>{0});
}

// A run has a piece in each of them: the tombstones of the later one are of records of the earlier.
TEST(KvLogRules, OfSegmentsThatBeginWithOneRunTheOneWithTheEarlierPieceIsTheOldest) {
  const std::vector<SegmentState> segments{{10, 3, 4, 2}, {10, 3, 3, 1}, {10, 4, 4, 0}};
  EXPECT_EQ(oldest_of(segments, kNoTail), 1u);
  EXPECT_EQ(choose_victims(segments, kNoTail, kRecords, 9, 1, 1000, Choice::oldest).segments,
            std::vector<std::uint32_t>{1});
}

// Where room is short what counts is what it gains; the tail's unwritten records are none.
TEST(KvLogRules, TheLeastLiveIsTakenWithTheTailAmongIt) {
  const std::vector<SegmentState> old_and_full{{240, 1, 1}, {200, 50, 50}, {90, 60, 60, 0, 120}};
  EXPECT_EQ(choose_victims(old_and_full, 2, kRecords, 60, 1, 1000, Choice::least).segments,
            std::vector<std::uint32_t>{1});
  const std::vector<SegmentState> dead_tail{{240, 1, 1}, {247, 50, 50}, {90, 60, 60, 0, 20}};
  EXPECT_EQ(choose_victims(dead_tail, 2, kRecords, 60, 1, 1000, Choice::least).segments,
            std::vector<std::uint32_t>{2});
  EXPECT_TRUE(
      choose_victims({{247, 1, 1}, {90, 2, 2, 0, 160}}, 1, kRecords, 2, 1, 1000, Choice::least)
          .segments.empty());
}

// The last run has to stay, or to be followed by another.
TEST(KvLogRules, ATailWithoutAnythingLiveGoesWithAnotherSegment) {
  const std::vector<SegmentState> segments{{251, 1, 1}, {0, 2, 2}, {250, 1, 1}};
  const Victims victims = choose_victims(segments, 1, kRecords, 2, 1, 1000, Choice::least);
  EXPECT_EQ(victims.segments, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(victims.live, 250u);
  EXPECT_TRUE(choose_victims({{0, 2, 2}}, 0, kRecords, 2, 1, 1000, Choice::least).segments.empty());
}

TEST(KvLogRules, ALogOfNoShapeIsRefused) {
  const auto refused = [](const KvStore::Options& options, const std::vector<std::string>& words) {
    EXPECT_EQ(error_of([&] { KvStore::region_bytes(options); }, words), Errc::invalid_argument);
  };
  refused(log_options(0, 10), {"capacity 0", "536870912", "in_place"});
  refused(log_options((1u << 29) + 1, 10), {"capacity 536870913", "in_place"});
  refused(log_options(10, 0), {"max_batch 0"});
  refused(log_options(10, (1u << 26) + 1), {"max_batch 67108865"});
  refused(log_options(1 << 20, 10, 1 << 20), {"1048576 records", "log_records"});
  refused(log_options(1 << 20, 10, (std::uint64_t{1} << 31) + 1), {"2147483649", "2147483648"});
  KvStore::Options conventional = log_options(10, 10);
  conventional.log = LogLayout::conventional;
  refused(conventional, {"layout log", "coalesced", "in_place"});
  KvStore::Options in_place = log_options(10, 10, 4096);
  in_place.layout = KvStore::Layout::in_place;
  refused(in_place, {"log_records 4096", "in_place"});
  KvStore::Options none = log_options(10, 10);
  none.layout = static_cast<KvStore::Layout>(3);
  refused(none, {"layout 3", "in_place", "log"});
}

}  // namespace
}  // namespace holdfast::test
