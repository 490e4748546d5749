// What cleaning chooses, and what shapes a log can have.
#include <gtest/gtest.h>

#include <algorithm>

#include "kv_store/kv_log_test.hpp"
#include "kv_store/log/rules.hpp"
#include "support/error_of.hpp"

namespace holdfast::test {
namespace {

using kv::log::choose_victims;
using kv::log::oldest_of;
using kv::log::SegmentState;
using kv::log::Victims;

constexpr std::uint32_t kRecords = 256;
constexpr std::uint32_t kNoTail = ~0u;

TEST(KvLogRules, TheEmptierOfTwoOfOneAgeIsCleanedFirst) {
  const std::vector<SegmentState> segments{{200, 1, 5}, {100, 1, 5}, {150, 1, 5}};
  const Victims one = choose_victims(segments, kNoTail, kRecords, 9, 1, 1000, false);
  EXPECT_EQ(one.segments, std::vector<std::uint32_t>{1});
  EXPECT_EQ(one.live, 100u);
  const Victims more = choose_victims(segments, kNoTail, kRecords, 9, 200, 1000, false);
  EXPECT_EQ(more.segments, (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(more.live, 250u);
}

TEST(KvLogRules, TheOlderOfTwoThatAreAsFullIsCleanedFirst) {
  const std::vector<SegmentState> segments{{200, 7, 8}, {200, 1, 2}};
  EXPECT_EQ(choose_victims(segments, kNoTail, kRecords, 9, 1, 1000, false).segments,
            std::vector<std::uint32_t>{1});
}

TEST(KvLogRules, NeitherTheTailNorWhatIsFreeOrFullIsCleaned) {
  const std::vector<SegmentState> segments{{10, 1, 1}, {0, 0, 0}, {250, 2, 2}, {246, 2, 2}};
  EXPECT_TRUE(choose_victims(segments, 0, kRecords, 9, 1, 1000, false).segments.empty());
  EXPECT_EQ(choose_victims(segments, 2, kRecords, 9, 1, 1000, false).segments,
            std::vector<std::uint32_t>{0});
}

TEST(KvLogRules, NoMoreIsCopiedThanThereIsRoomFor) {
  const std::vector<SegmentState> segments{{100, 1, 1}, {90, 1, 1}, {80, 1, 1}, {0, 1, 1}};
  const Victims victims = choose_victims(segments, kNoTail, kRecords, 9, 10000, 185, false);
  EXPECT_EQ(victims.segments, (std::vector<std::uint32_t>{3, 2, 1}));
  EXPECT_EQ(victims.live, 170u);
  EXPECT_TRUE(choose_victims({{100, 1, 1}}, kNoTail, kRecords, 9, 1, 99, false).segments.empty());
}

// Its tombstones are what there is to gain.
TEST(KvLogRules, TheOldestSegmentMayComeFirstWhateverItHas) {
  const std::vector<SegmentState> segments{{10, 4, 9}, {251, 3, 4}, {20, 5, 5}};
  EXPECT_EQ(oldest_of(segments, kNoTail), 1u);
  EXPECT_EQ(oldest_of(segments, 1), 0u);
  EXPECT_EQ(oldest_of({{0, 0, 0}}, kNoTail), kNoTail);
  EXPECT_EQ(choose_victims(segments, kNoTail, kRecords, 9, 1, 1000, true).segments,
            (std::vector<std::uint32_t>{1}));
  EXPECT_EQ(choose_victims(segments, 1, kRecords, 9, 1, 1000, true).segments,
            std::vector<std::uint32_t>{0});
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
