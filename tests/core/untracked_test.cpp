// Objects that commits leave out (Tracking::none).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "core/checksum.hpp"
#include "core/format.hpp"
#include "holdfast/backup.hpp"
#include "holdfast/inspect.hpp"
#include "holdfast/region.hpp"
#include "support/scratch.hpp"

namespace holdfast {
namespace {

using test::error_of;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kCacheBytes = 24 * kMiB;

class UntrackedTest : public test::Scratch {
 protected:
  // A region with a full cache, and a number that commits keep.
  Region make() {
    Region region = Region::create(path(), options(32 * kMiB));
    fill(region.allocate<std::uint8_t>("cache", kCacheBytes, Tracking::none), 7);
    region.allocate<int>("kept", 1)[0] = 1;
    return region;
  }
  static void fill(std::span<std::uint8_t> bytes, int value) {
    std::memset(bytes.data(), value, bytes.size());
  }
  static bool all(std::span<const std::uint8_t> bytes, int value) {
    return std::all_of(bytes.begin(), bytes.end(),
                       [&](std::uint8_t byte) { return byte == value; });
  }
  static bool holds(Region& region, const char* name, int value) {
    return all(region.find<std::uint8_t>(name), value);
  }
  static core::RegionHeader header_of(Region& region) {
    core::RegionHeader header;
    std::memcpy(&header, region.base(), sizeof header);
    return header;
  }
  static std::uint64_t checksum_of(const core::RegionHeader& header) {
    return core::hash_bytes(&header, offsetof(core::RegionHeader, checksum));
  }
};

TEST_F(UntrackedTest, IsNeverReadForACommitNorWritten) {
  {
    Region region = make();
    for (int i = 0; i < 2; ++i) {
      const CommitStats stats = region.commit();
      EXPECT_LT(stats.pages_examined, 40u);
      EXPECT_LT(stats.bytes_written, kMiB);
      fill(region.find<std::uint8_t>("cache"), 8);
    }
    region.mark(region.find<std::uint8_t>("cache").data(), kCacheBytes);  // of no effect
    EXPECT_LT(region.commit().pages_examined, 40u);
    region.abandon();
  }
  {
    Region region = Region::open(path());
    EXPECT_LT(region.commit().pages_examined, 40u) << "not where all is compared, either";
    region.close();
  }
  EXPECT_TRUE(is_empty(arenas()));
  const ImageInfo info = inspect_image(path(), Verify::everything);
  EXPECT_LT(info.allocated_bytes, kMiB);
  EXPECT_LT(info.pages_stored, 40u);
}

TEST_F(UntrackedTest, SurvivesACrashOfTheProcess) {
  make().abandon();
  for (int i = 0; i < 2; ++i) {
    Region region = Region::open(path());
    EXPECT_TRUE(region.open_report().arena_found);
    EXPECT_TRUE(holds(region, "cache", 7));
    region.commit();
    region.abandon();
  }
}

TEST_F(UntrackedTest, ReadsAsZerosFromTheImage) {
  {
    Region region = make();
    region.close();
    region = Region::open(path());
    EXPECT_FALSE(region.open_report().arena_found);
    EXPECT_EQ(region.object("cache").tracking, Tracking::none);
    EXPECT_TRUE(holds(region, "cache", 0));
    fill(region.find<std::uint8_t>("cache"), 9);
    region.commit();
    region.abandon();
  }
  Region region = Region::open(path(), last_commit());
  EXPECT_TRUE(holds(region, "cache", 0));
  EXPECT_EQ(region.find<int>("kept")[0], 1);
}

TEST_F(UntrackedTest, WhatTheImageHeldInItsPlaceIsDropped) {
  Region region = Region::create(path(), options(4 * kMiB));
  auto old = region.allocate<std::uint8_t>("old", 2 * kMiB);
  region.allocate<std::uint8_t>("behind", 10);
  fill(old, 3);
  region.commit();
  ASSERT_GE(inspect_image(path(), Verify::tables).pages_stored, 2 * kMiB / kPageBytes);
  region.remove("old");
  auto cache = region.allocate<std::uint8_t>("cache", 2 * kMiB, Tracking::none);
  ASSERT_EQ(cache.data(), old.data());
  EXPECT_TRUE(all(cache, 0));
  fill(cache, 4);
  region.abandon();
  {
    // The commit before knows nothing of it yet.
    std::filesystem::copy_file(path(), path("copy"));
    OpenOptions elsewhere = for_reading();
    elsewhere.arena_folder = other_arenas();
    Region copy = Region::open(path("copy"), elsewhere);
    EXPECT_TRUE(holds(copy, "old", 3));
    EXPECT_FALSE(copy.contains("cache"));
  }
  region = Region::open(path());
  EXPECT_TRUE(holds(region, "cache", 4));
  region.commit();
  EXPECT_LT(inspect_image(path(), Verify::everything).pages_stored, 40u);
  region.abandon();
  region = Region::open(path(), last_commit());
  EXPECT_TRUE(holds(region, "cache", 0));
}

TEST_F(UntrackedTest, WhatComesInItsPlaceBeginsWithZeros) {
  for (const Tracking tracking : {Tracking::hashed, Tracking::marked}) {
    Region region = Region::create(path(), options(4 * kMiB));
    auto cache = region.allocate<std::uint8_t>("cache", 2 * kMiB, Tracking::none);
    fill(cache, 4);
    region.commit();
    region.remove("cache");
    auto next = region.allocate<std::uint8_t>("next", 2 * kMiB, tracking);
    ASSERT_EQ(next.data(), cache.data());
    EXPECT_TRUE(all(next, 0));
    region.close();
    region = Region::open(path());
    EXPECT_TRUE(holds(region, "next", 0)) << to_string(tracking);
    next = region.find<std::uint8_t>("next");
    fill(next, 5);
    region.mark(next.data(), next.size());
    region.close();
    region = Region::open(path());
    EXPECT_TRUE(holds(region, "next", 5)) << to_string(tracking);
    region.remove("next");
    region.allocate<std::uint8_t>("cache", 2 * kMiB, Tracking::none);
    region.close();
    region = Region::open(path());
    EXPECT_TRUE(holds(region, "cache", 0));
    region.close();
    Region::destroy(path());
  }
}

TEST_F(UntrackedTest, GrowsWithTheRegion) {
  {
    Region region = Region::create(path(), options(kMiB));
    region.allocate<int>("kept", 1)[0] = 1;
    region.grow(4 * kMiB);
    fill(region.allocate<std::uint8_t>("cache", 3 * kMiB, Tracking::none), 7);
    region.close();
  }
  EXPECT_LT(inspect_image(path(), Verify::everything).allocated_bytes, kMiB);
  Region region = Region::open(path());
  EXPECT_EQ(region.size(), 4 * kMiB);
  EXPECT_TRUE(holds(region, "cache", 0));
}

TEST_F(UntrackedTest, ReadersSeeWhatIsThere) {
  Region writer = make();
  writer.commit();
  {
    Region reader = Region::open(path(), for_reading());
    EXPECT_TRUE(holds(reader, "cache", 0)) << "the last commit";
    EXPECT_EQ(reader.find<int>("kept")[0], 1);
  }
  writer.abandon();
  Region reader = Region::open(path(), for_reading());
  EXPECT_TRUE(reader.open_report().arena_found);
  EXPECT_TRUE(holds(reader, "cache", 7)) << "the arena";
}

TEST_F(UntrackedTest, BackupsLeaveItOut) {
  Region region = make();
  region.commit();
  backup(path(), path("beside"));
  region.abandon();
  EXPECT_TRUE(backup(path(), path("after")).arena_found);
  for (const char* const name : {"beside", "after"}) {
    EXPECT_LT(inspect_image(path(name), Verify::everything).allocated_bytes, kMiB);
    Region copy = Region::open(path(name));
    EXPECT_TRUE(holds(copy, "cache", 0)) << name;
    EXPECT_EQ(copy.find<int>("kept")[0], 1);
    EXPECT_EQ(header_of(copy).version, 2u);
  }
}

TEST_F(UntrackedTest, InspectNamesIt) {
  make().close();
  const ImageInfo info = inspect_image(path(), Verify::everything);
  ASSERT_EQ(info.objects.size(), 2u);
  EXPECT_EQ(info.objects[0].tracking, Tracking::none);
  EXPECT_STREQ(to_string(info.objects[0].tracking), "none");
}

TEST_F(UntrackedTest, StaysWhereTheRegionIsUsedInPlace) {
  ::setenv("HOLDFAST_DAX_PLAIN_FILE", "1", 1);
  RegionOptions wanted = options(4 * kMiB);
  wanted.domain = Domain::dax;
  const std::string medium = arenas() + "/medium";
  for (int value = 0; value < 3; ++value) {
    Region region = value == 0 ? Region::create(medium, wanted) : Region::open(medium);
    if (value == 0) region.allocate<std::uint8_t>("cache", kMiB, Tracking::none);
    EXPECT_TRUE(holds(region, "cache", value));
    EXPECT_EQ(header_of(region).version, 2u);
    fill(region.find<std::uint8_t>("cache"), value + 1);
    region.close();
  }
  ::unsetenv("HOLDFAST_DAX_PLAIN_FILE");
}

// A build that knows version 1 alone takes a region until it has such an object, and then says that
// it is newer: it looks at the header's hash, and then at its version.
TEST_F(UntrackedTest, TheVersionSaysThatThereIsOne) {
  {
    Region region = Region::create(path(), options(kMiB));
    region.allocate<int>("hashed", 1);
    region.allocate<int>("marked", 1, Tracking::marked);
    EXPECT_EQ(header_of(region).version, 1u);
    region.close();
  }
  {
    Region region = Region::open(path());
    EXPECT_EQ(header_of(region).version, 1u);
    region.allocate<int>("cache", 1, Tracking::none);
    EXPECT_EQ(header_of(region).version, 2u);
    EXPECT_EQ(header_of(region).checksum, checksum_of(header_of(region)));
    region.remove("cache");
    region.close();
  }
  Region region = Region::open(path());
  EXPECT_EQ(header_of(region).version, 2u) << "it stays";
  EXPECT_EQ(header_of(region).checksum, checksum_of(header_of(region)));
  EXPECT_EQ(region.objects().size(), 2u);
}

TEST_F(UntrackedTest, AHeaderThatAKillLeftBetweenVersionsIsWhole) {
  {
    Region region = Region::create(path(), options(kMiB));
    region.allocate<int>("kept", 1)[0] = 1;
    static_cast<core::RegionHeader*>(region.base())->version = 2;
    ASSERT_NE(header_of(region).checksum, checksum_of(header_of(region)));
    region.abandon();
  }
  {
    Region reader = Region::open(path(), for_reading());
    EXPECT_EQ(reader.find<int>("kept")[0], 1);
  }
  {
    Region region = Region::open(path());
    EXPECT_TRUE(region.open_report().arena_found);
    region.close();
    region = Region::open(path());  // by way of the image
    EXPECT_EQ(region.find<int>("kept")[0], 1);
    region.allocate<int>("cache", 1, Tracking::none);
    EXPECT_EQ(header_of(region).checksum, checksum_of(header_of(region)));
    auto* const header = static_cast<core::RegionHeader*>(region.base());
    header->reserved[3] ^= 1;  // any other difference is damage
    region.abandon();
  }
  EXPECT_EQ(error_of([&] { Region::open(path()); }, {only_file(arenas())}), Errc::damaged);
}

TEST_F(UntrackedTest, ANewerVersionIsRefused) {
  {
    Region region = Region::create(path(), options(kMiB));
    auto* const header = static_cast<core::RegionHeader*>(region.base());
    header->version = 3;
    header->checksum = checksum_of(*header);
    region.commit();
    region.abandon();
  }
  EXPECT_EQ(error_of([&] { Region::open(path()); }, {"version 3", "newer build"}),
            Errc::newer_version);
  std::filesystem::remove(only_file(arenas()));
  EXPECT_EQ(error_of([&] { Region::open(path(), last_commit()); }, {"version 3", "newer build"}),
            Errc::newer_version);
}

TEST_F(UntrackedTest, AnUnknownTrackingIsRefused) {
  Region region = Region::create(path(), options(kMiB));
  const auto make = [&] { region.allocate<int>("a", 1, static_cast<Tracking>(3)); };
  EXPECT_EQ(error_of(make, {"'a'", "tracking"}), Errc::invalid_argument);
  EXPECT_TRUE(region.objects().empty());
}

}  // namespace
}  // namespace holdfast
