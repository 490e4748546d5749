// Regions that are read and not written: beside a writer, after a crash, and copied.
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include "holdfast/backup.hpp"
#include "holdfast/inspect.hpp"
#include "holdfast/region.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast {
namespace {

using test::error_of;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

class ReadOnlyTest : public test::Scratch {
 protected:
  Region make(int value) {
    Region region = Region::create(path(), options(kMiB));
    auto data = region.allocate<int>("data", 1000);
    data[0] = value;
    region.commit();
    return region;
  }
  static int value(Region& region) { return region.find<int>("data")[0]; }
};

TEST_F(ReadOnlyTest, BesideAWriterItIsTheLastCommit) {
  Region writer = make(1);
  writer.find<int>("data")[0] = 2;
  Region reader = Region::open(path(), for_reading());
  EXPECT_TRUE(reader.read_only());
  EXPECT_FALSE(writer.read_only());
  EXPECT_EQ(value(reader), 1);
  EXPECT_EQ(reader.generation(), 1u);
  writer.commit();
  EXPECT_EQ(value(reader), 1) << "what was read stays";
  Region second = Region::open(path(), for_reading());
  EXPECT_EQ(value(second), 2);
  writer.close();
}

TEST_F(ReadOnlyTest, NothingCanBeChanged) {
  make(1).close();
  const auto before = test::read_file(path());
  {
    Region reader = Region::open(path(), for_reading());
    reader.find<int>("data")[0] = 9;  // in a private copy
    EXPECT_EQ(error_of([&] { reader.allocate<int>("more", 1); }, {path()}), Errc::unsupported);
    EXPECT_EQ(error_of([&] { reader.remove("data"); }, {path()}), Errc::unsupported);
    EXPECT_EQ(error_of([&] { reader.grow(2 * kMiB); }, {path()}), Errc::unsupported);
    EXPECT_EQ(error_of([&] { reader.commit(); }, {path()}), Errc::unsupported);
    EXPECT_EQ(reader.guarantee().persist, Rung::none);
    EXPECT_EQ(reader.guarantee().commit, Rung::none);
    reader.mark(reader.base(), 1);
    Region writer = Region::open(path());  // a reader of a quiet region keeps no one out
    writer.abandon();
    reader.close();
  }
  Region again = Region::open(path());
  EXPECT_EQ(value(again), 1);
  again.close();
  EXPECT_EQ(test::read_file(path()).size(), before.size());
}

TEST_F(ReadOnlyTest, AfterACrashItIsWhatWasPersisted) {
  {
    Region region = make(1);
    region.find<int>("data")[0] = 2;
    region.abandon();
  }
  const auto image = test::read_file(path());
  const std::string arena = only_file(arenas());
  const auto bytes = test::read_file(arena);
  {
    Region reader = Region::open(path(), for_reading());
    EXPECT_TRUE(reader.open_report().arena_found);
    EXPECT_EQ(value(reader), 2);
    reader.find<int>("data")[0] = 3;
    Region second = Region::open(path(), for_reading());
    EXPECT_EQ(value(second), 2) << "stores stay private";
    EXPECT_EQ(error_of([&] { Region::open(path()); }, {path()}), Errc::in_use)
        << "a writer would change what is being read";
  }
  EXPECT_EQ(test::read_file(path()), image);
  EXPECT_EQ(test::read_file(arena), bytes);
  Region region = Region::open(path());
  EXPECT_EQ(value(region), 2);
}

// A writer that commits all the time, over the same few blocks.
TEST_F(ReadOnlyTest, EveryReadBesideAWriterIsOneCommit) {
  Region writer = Region::create(path(), options(4 * kMiB));
  auto data = writer.allocate<std::uint64_t>("data", 3 * kMiB / 8);
  writer.commit();
  std::atomic<bool> stop{false};
  std::atomic<int> commits{0};
  std::thread thread([&] {
    for (std::uint64_t round = 1; !stop; ++round) {
      for (std::uint64_t& word : data) word = round;
      writer.commit();
      ++commits;
    }
  });
  std::uint64_t reads = 0;
  const int least = static_cast<int>(test::some_of(10));
  for (; (reads < test::some_of(40, 5) || commits <= least) && !HasFailure(); ++reads) {
    Region reader = Region::open(path(), for_reading());
    const auto seen = reader.find<std::uint64_t>("data");
    for (const std::uint64_t word : seen) ASSERT_EQ(word, seen[0]) << "of two commits";
    const ImageInfo info = inspect_image(path(), Verify::everything);
    EXPECT_TRUE(info.in_use);
    EXPECT_GE(info.generation, seen[0]);
  }
  stop = true;
  thread.join();
  EXPECT_GT(commits, least);
  writer.close();
}

TEST_F(ReadOnlyTest, ABackupIsARegionOfItsOwn) {
  Region writer = make(1);
  writer.find<int>("data")[0] = 2;
  const BackupReport report = backup(path(), path("copy"));
  EXPECT_FALSE(report.arena_found);
  EXPECT_EQ(report.generation, 1u);
  EXPECT_NE(report.uuid, writer.uuid());
  Region copy = Region::open(path("copy"));  // beside the original, with an arena of its own
  EXPECT_EQ(copy.uuid(), report.uuid);
  EXPECT_EQ(value(copy), 1);
  copy.find<int>("data")[0] = 7;
  copy.close();
  EXPECT_EQ(value(writer), 2);
  EXPECT_EQ(error_of([&] { backup(path(), path("copy")); }, {path("copy")}), Errc::already_exists);
  writer.close();
  EXPECT_EQ(inspect_image(path("copy"), Verify::everything).objects.size(), 1u);
}

TEST_F(ReadOnlyTest, ABackupAfterACrashHoldsWhatWasPersisted) {
  {
    Region region = make(1);
    region.find<int>("data")[0] = 2;
    region.abandon();
  }
  EXPECT_TRUE(backup(path(), path("copy")).arena_found);
  Region copy = Region::open(path("copy"));
  EXPECT_EQ(value(copy), 2);
  OpenOptions options = last_commit();
  EXPECT_FALSE(backup(path(), path("older"), options).arena_found);
  EXPECT_EQ(value(*std::make_unique<Region>(Region::open(path("older")))), 1);
  Region original = Region::open(path());
  EXPECT_EQ(value(original), 2);
}

TEST_F(ReadOnlyTest, WhatCannotBeBackedUpLeavesNothing) {
  test::write_file(path("text"), {'h', 'e', 'l', 'l', 'o', 'h', 'e', 'l', 'l', 'o'});
  EXPECT_EQ(error_of([&] { backup(path("text"), path("copy")); }, {path("text")}), Errc::foreign);
  EXPECT_EQ(error_of([&] { backup(path("none"), path("copy")); }, {path("none")}), Errc::not_found);
  make(1).close();
  EXPECT_EQ(error_of([&] { backup(path(), path("nowhere/copy")); }, {"nowhere"}), Errc::not_found);
  EXPECT_FALSE(std::filesystem::exists(path("copy")));
}

}  // namespace
}  // namespace holdfast
