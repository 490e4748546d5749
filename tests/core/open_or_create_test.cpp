// Region::open_or_create(): what is there is opened, nothing else is written over, and of many one
// creates.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "holdfast/region.hpp"
#include "holdfast/testing/throttle.hpp"
#include "support/process.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast {
namespace {

using test::error_of;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class OpenOrCreateTest : public test::Scratch {};

TEST_F(OpenOrCreateTest, CreatesOnceAndOpensThen) {
  for (int value = 0; value < 3; ++value) {
    // Of any size: the region keeps its own.
    Region region = Region::open_or_create(path(), options((value + 1) * kMiB));
    EXPECT_EQ(region.size(), kMiB);
    EXPECT_EQ(region.contains("data"), value > 0);
    const auto data = value > 0 ? region.find<int>("data") : region.allocate<int>("data", 1);
    EXPECT_EQ(data[0], value);
    data[0] = value + 1;
    region.close();
  }
  EXPECT_EQ(Region::open_or_create(path(), options(0)).size(), kMiB);
  EXPECT_EQ(error_of([&] { Region::open_or_create(path("new"), options(0)); }, {"size"}),
            Errc::invalid_argument);
}

TEST_F(OpenOrCreateTest, FindsWhatACrashLeft) {
  {
    Region region = Region::open_or_create(path(), options(kMiB));
    region.allocate<int>("data", 1)[0] = 7;
    region.abandon();
  }
  Region region = Region::open_or_create(path(), options(kMiB));
  EXPECT_TRUE(region.open_report().arena_found);
  EXPECT_EQ(region.find<int>("data")[0], 7);
}

// The options name the arena's folder once, for both.
TEST_F(OpenOrCreateTest, LooksForTheArenaWhereItPutIt) {
  RegionOptions wanted = options(kMiB);
  wanted.arena_folder = other_arenas();
  wanted.medium = testing::standing_for("limit=100MB/s");
  for (int i = 0; i < 2; ++i) {
    Region region = Region::open_or_create(path(), wanted);
    EXPECT_EQ(region.open_report().arena_found, i > 0);
    EXPECT_TRUE(testing::throttle(region).active());
    region.abandon();
  }
  EXPECT_TRUE(is_empty(arenas()));
  OpenOptions opening = last_commit();
  opening.max_size = 9 * kMiB;
  Region region = Region::open_or_create(path(), wanted, opening);
  EXPECT_FALSE(region.open_report().arena_found);
  EXPECT_EQ(region.max_size(), 9 * kMiB);
}

TEST_F(OpenOrCreateTest, WhatIsNoWholeRegionIsRefusedAndLeftAlone) {
  const auto refused = [&](Errc code) {
    const auto before = test::read_file(path());
    for (const Domain domain : {Domain::file, Domain::dax}) {
      RegionOptions wanted = options(kMiB);
      wanted.domain = domain;
      const Errc found = error_of([&] { Region::open_or_create(path(), wanted); }, {path()});
      EXPECT_TRUE(found == code || (domain == Domain::dax && found == Errc::invalid_argument))
          << to_string(found);
    }
    EXPECT_EQ(test::read_file(path()), before);
    EXPECT_TRUE(is_empty(arenas()));
  };
  test::write_file(path(), {'h', 'e', 'l', 'l', 'o', ' ', 'y', 'o', 'u'});
  refused(Errc::foreign);
  test::write_file(path(), {});
  refused(Errc::foreign);
  std::filesystem::remove(path());
  Region::create(path(), options(kMiB)).close();
  auto bytes = test::read_file(path());
  bytes[100] = static_cast<char>(bytes[100] ^ 1);
  test::write_file(path(), bytes);
  refused(Errc::damaged);
}

TEST_F(OpenOrCreateTest, WhatCannotBeIsRefused) {
  EXPECT_EQ(error_of([&] { Region::open_or_create(folder() + "/no/such", options(kMiB)); }),
            Errc::not_found);
  EXPECT_EQ(error_of([&] { Region::open_or_create(folder(), options(kMiB)); }),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { Region::open_or_create("", options(kMiB)); }), Errc::invalid_argument);
  EXPECT_EQ(
      error_of([&] { Region::open_or_create(path(), options(kMiB), for_reading()); }, {"reading"}),
      Errc::invalid_argument);
  EXPECT_TRUE(is_empty(folder()));
  Region region = Region::open_or_create(path(), options(kMiB));
  EXPECT_EQ(error_of([&] { Region::open_or_create(path(), options(kMiB)); }, {path()}),
            Errc::in_use);
  RegionOptions elsewhere = options(kMiB);
  elsewhere.arena_folder = folder() + "/no such folder";
  EXPECT_NE(error_of([&] { Region::open_or_create(path("b"), elsewhere); }, {"no such folder"}),
            Errc::already_exists);
}

TEST_F(OpenOrCreateTest, ARegionOfAnotherDomainIsRefused) {
  ::setenv("HOLDFAST_DAX_PLAIN_FILE", "1", 1);
  RegionOptions in_place = options(kMiB);
  in_place.domain = Domain::dax;
  const std::string medium = arenas() + "/medium";
  for (int i = 0; i < 2; ++i) {
    Region region = Region::open_or_create(medium, in_place);
    EXPECT_EQ(region.domain(), Domain::dax);
    EXPECT_EQ(region.contains("data"), i > 0);
    if (i == 0) region.allocate<int>("data", 1);
    region.close();
  }
  EXPECT_EQ(error_of([&] { Region::open_or_create(medium, options(kMiB)); }, {medium, "dax"}),
            Errc::invalid_argument);
  Region::create(path(), options(kMiB)).close();
  EXPECT_EQ(error_of([&] { Region::open_or_create(path(), in_place); }, {path(), "file"}),
            Errc::invalid_argument);
  ::unsetenv("HOLDFAST_DAX_PLAIN_FILE");
}

TEST_F(OpenOrCreateTest, WhatKeepsNothingIsCreated) {
  Region::create(path(), options(kMiB)).close();
  RegionOptions wanted = options(2 * kMiB);
  wanted.domain = Domain::emulated;
  Region region = Region::open_or_create(path(), wanted);
  EXPECT_EQ(region.domain(), Domain::emulated);
  EXPECT_EQ(region.size(), 2 * kMiB);
}

const int kRegions = static_cast<int>(test::some_of(60, 10));  // in parent and child

// The child: counts itself in each of the regions, one after the other.
TEST(OpenOrCreateChild, DISABLED_CountsItself) {
  const std::string folder = test::from_environment("HOLDFAST_TEST_REGION");
  RegionOptions wanted;
  wanted.size = kMiB;
  test::report(-1);
  while (!std::filesystem::exists(folder + "/go")) {
  }
  for (int i = 0; i < kRegions; ++i) {
    try {
      Region region = Region::open_or_create(folder + "/" + std::to_string(i), wanted);
      const auto count =
          region.contains("count") ? region.find<int>("count") : region.allocate<int>("count", 1);
      ++count[0];
      region.close();
      test::report(i);
    } catch (const Error& error) {
      if (error.code() != Errc::in_use) throw;
    }
  }
}

TEST_F(OpenOrCreateTest, OfManyProcessesOneCreates) {
  std::vector<std::unique_ptr<test::Child>> children;
  int ready = 0;
  for (int i = 0; i < 4; ++i) {
    children.push_back(std::make_unique<test::Child>(
        "OpenOrCreateChild.DISABLED_CountsItself",
        test::Child::Environment{{"HOLDFAST_TEST_REGION", folder()}}));
    ASSERT_TRUE(children.back()->read(ready));
  }
  test::write_file(path("go"), {});
  std::vector<int> counted(kRegions);
  for (const auto& child : children) {
    int which = 0;
    while (child->read(which)) ++counted[static_cast<std::size_t>(which)];
    EXPECT_EQ(child->wait(), 0) << "an error other than in_use";
  }
  int shared = 0;
  for (int i = 0; i < kRegions; ++i) {
    const int count = counted[static_cast<std::size_t>(i)];
    Region region = Region::open(path(std::to_string(i)));
    EXPECT_EQ(region.find<int>("count")[0], count) << "one was created over another";
    shared += count > 1 ? 1 : 0;
  }
  std::printf("%d of %d regions were opened by more than one process\n", shared, kRegions);
  EXPECT_TRUE(is_empty(arenas()));
}

}  // namespace
}  // namespace holdfast
