// Medium models: what they are called, what they take, and that commits wait for them.
#include "holdfast/testing/medium_model.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "holdfast/testing/throttle.hpp"
#include "support/error_of.hpp"
#include "support/scratch.hpp"

namespace holdfast {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using test::error_of;
using testing::Access;
using testing::MediumModel;
using testing::Throttle;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

TEST(MediumModel, PresetsAreWhatTheirSourcesSay) {
  const MediumModel optane = MediumModel::parse("optane");
  EXPECT_DOUBLE_EQ(optane.write_seconds(12'500'000'000, Access::aligned), 1);
  EXPECT_DOUBLE_EQ(optane.write_seconds(3'130'000'000, Access::unaligned), 1);
  EXPECT_DOUBLE_EQ(optane.write_seconds(720'000'000, Access::random), 1);
  EXPECT_DOUBLE_EQ(optane.read_seconds(38'000'000'000), 1);
  const MediumModel cxl = MediumModel::parse("cxl");
  for (const Access access : {Access::aligned, Access::unaligned, Access::random}) {
    EXPECT_DOUBLE_EQ(cxl.write_seconds(24'000'000'000, access), 1);
  }
  EXPECT_GT(cxl.persist_latency_ns, 0);
}

TEST(MediumModel, DramCostsNothing) {
  const MediumModel dram = MediumModel::parse("dram");
  EXPECT_FALSE(dram.slows());
  EXPECT_EQ(dram.write_seconds(~std::uint64_t{0}, Access::random), 0);
  EXPECT_EQ(dram.read_seconds(~std::uint64_t{0}), 0);
}

TEST(MediumModel, ALimitIsOneRateForEverything) {
  const auto second = [](const char* text, std::uint64_t bytes) {
    const MediumModel model = MediumModel::parse(text);
    EXPECT_TRUE(model.slows()) << text;
    EXPECT_DOUBLE_EQ(model.write_seconds(bytes, Access::aligned), 1) << text;
    EXPECT_DOUBLE_EQ(model.write_seconds(bytes, Access::random), 1) << text;
    EXPECT_DOUBLE_EQ(model.read_seconds(bytes), 1) << text;
  };
  second("limit=1.6GB/s", 1'600'000'000);
  second("limit=50MB/s", 50'000'000);
  second("limit=1000KB/s", 1'000'000);
  second("limit=1000GB/s", 1'000'000'000'000);
}

TEST(MediumModel, NamesAreWhatParseTakes) {
  for (const char* name : {"dram", "optane", "cxl", "limit=1.6GB/s"}) {
    EXPECT_EQ(MediumModel::parse(name).name(), name);
  }
  EXPECT_EQ(MediumModel().name(), "dram");
  MediumModel own;
  own.persist_latency_ns = 1;
  EXPECT_EQ(own.name(), "custom");
}

TEST(MediumModel, BadTextsAreNamedWithARemedy) {
  for (const char* text :
       {"", "Optane", "optane ", "limit", "limit=", "limit=fast", "limit=1.6", "limit=1.6GB",
        "limit=1.6GiB/s", "limit=0GB/s", "limit=-1GB/s", "limit=1e3KB/sx", "limit=nanGB/s",
        "limit=infGB/s", "limit=999KB/s", "limit=1001GB/s", "limit=1e999GB/s", "dram,optane"}) {
    EXPECT_EQ(error_of([&] { MediumModel::parse(text); },
                       {std::string("'") + text + "'", "dram, optane, cxl", "limit=1.6GB/s"}),
              Errc::invalid_argument)
        << text;
  }
}

TEST(MediumModel, FiguresOutOfRangeAreNamed) {
  const auto refused = [](const char* name, auto set) {
    MediumModel model;
    set(model);
    EXPECT_EQ(error_of([&] { Throttle throttle(model); }, {name}), Errc::invalid_argument);
  };
  refused("persist_latency_ns", [](MediumModel& m) { m.persist_latency_ns = -1; });
  refused("read_latency_ns", [](MediumModel& m) { m.read_latency_ns = 2e9; });
  refused("write_bytes_per_second", [](MediumModel& m) { m.write_bytes_per_second = -1; });
  refused("read_bytes_per_second", [](MediumModel& m) { m.read_bytes_per_second = std::nan(""); });
  refused("unaligned_efficiency", [](MediumModel& m) { m.unaligned_efficiency = 0; });
  refused("random_efficiency", [](MediumModel& m) { m.random_efficiency = 1.5; });
}

TEST(Throttle, WaitsUntilTheMediumHasTakenEverything) {
  Throttle throttle(MediumModel::parse("limit=100MB/s"));
  const Clock::time_point start = Clock::now();
  throttle.write(throttle.mark(), 2'000'000, Access::aligned);
  throttle.read(throttle.mark(), 1'000'000);
  EXPECT_EQ(throttle.waited_seconds(), 0);
  throttle.wait();
  EXPECT_GE(seconds_since(start), 0.03);
  EXPECT_GT(throttle.waited_seconds(), 0);
  EXPECT_LE(throttle.waited_seconds(), seconds_since(start));
}

TEST(Throttle, WhatWasUnderWayBesideComputingCostsNothing) {
  Throttle throttle(MediumModel::parse("limit=100MB/s"));
  const Throttle::Mark begun = throttle.mark();
  std::this_thread::sleep_for(milliseconds(30));
  throttle.write(begun, 2'000'000, Access::aligned);  // 20 ms
  throttle.wait();
  EXPECT_EQ(throttle.waited_seconds(), 0);
}

// Said later, begun earlier: it was before the others in the queue, and all of them wait.
TEST(Throttle, TakesOneAfterTheOther) {
  Throttle throttle(MediumModel::parse("limit=100MB/s"));
  const Clock::time_point start = Clock::now();
  const Throttle::Mark begun = throttle.mark();
  throttle.write(throttle.mark(), 1'000'000, Access::aligned);
  throttle.write(begun, 3'000'000, Access::aligned);
  throttle.wait();
  EXPECT_GE(seconds_since(start), 0.04);
  // The medium is free again, and idle time is not saved up.
  std::this_thread::sleep_for(milliseconds(20));
  const Clock::time_point again = Clock::now();
  throttle.write(throttle.mark(), 1'000'000, Access::aligned);
  throttle.wait();
  EXPECT_GE(seconds_since(again), 0.01);
}

TEST(Throttle, EveryWaitBehindAWriteTakesTheLatency) {
  MediumModel model;
  model.persist_latency_ns = 5e6;
  Throttle throttle(model);
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < 3; ++i) {
    throttle.write(throttle.mark(), 1, Access::random);
    throttle.wait();
  }
  EXPECT_GE(seconds_since(start), 0.015);
  const double waited = throttle.waited_seconds();
  throttle.wait();  // nothing was written
  EXPECT_EQ(throttle.waited_seconds(), waited);
}

TEST(Throttle, WithoutAModelNothingWaits) {
  Throttle throttle;
  EXPECT_FALSE(throttle.active());
  throttle.write(throttle.mark(), ~std::uint64_t{0}, Access::random);
  throttle.read(throttle.mark(), ~std::uint64_t{0});
  throttle.wait();
  EXPECT_EQ(throttle.waited_seconds(), 0);
}

class ThrottledRegion : public test::Scratch {
 protected:
  static constexpr std::uint64_t kWords = 1 << 18;  // 2 MiB
  static constexpr double kLeast = kWords * 8 / 50e6;

  static void fill(Region& region, std::uint64_t first) {
    std::uint64_t next = first;
    for (std::uint64_t& word : region.find<std::uint64_t>("words")) word = next++;
  }
};

TEST_F(ThrottledRegion, ACommitTakesAsLongAsItsMedium) {
  RegionOptions made = options(8 << 20);
  made.medium = testing::standing_for("limit=50MB/s");
  {
    Region region = Region::create(path(), made);
    EXPECT_EQ(testing::throttle(region).model().name(), "limit=50MB/s");
    region.allocate<std::uint64_t>("words", kWords);
    fill(region, 1);
    Clock::time_point start = Clock::now();
    const CommitStats stats = region.commit();
    EXPECT_GE(seconds_since(start), kLeast);
    EXPECT_GE(stats.snapshot_ms + stats.write_ms, kLeast * 1e3);
    fill(region, 5);
    Stream stream;
    start = Clock::now();
    Commit commit = region.commit(stream);
    commit.wait();
    EXPECT_GE(seconds_since(start), kLeast);
  }
  // The model is of a run, not of the file.
  Region region = Region::open(path());
  EXPECT_FALSE(testing::throttle(region).active());
  const auto words = region.find<std::uint64_t>("words");
  EXPECT_EQ(words.front(), 5u);
  EXPECT_EQ(words.back(), kWords + 4);
  region.close();
  OpenOptions opened;
  opened.medium = testing::standing_for("limit=50MB/s");
  Region slow = Region::open(path(), opened);
  fill(slow, 9);
  const Clock::time_point start = Clock::now();
  slow.commit();
  EXPECT_GE(seconds_since(start), kLeast);
}

TEST_F(ThrottledRegion, ABadModelIsRefusedBeforeAnythingIsMade) {
  for (const Domain domain : {Domain::file, Domain::emulated}) {
    RegionOptions made = options(1 << 20);
    made.domain = domain;
    made.medium = testing::standing_for({.write_bytes_per_second = -1});
    EXPECT_EQ(error_of([&] { Region::create(path(), made); }, {"write_bytes_per_second"}),
              Errc::invalid_argument);
  }
  EXPECT_TRUE(is_empty(folder()));
  EXPECT_TRUE(is_empty(arenas()));
}

TEST_F(ThrottledRegion, AnEmulatedRegionHasNoThrottleBesides) {
  RegionOptions made = options(1 << 20);
  made.domain = Domain::emulated;
  made.medium = testing::standing_for({.persist_latency_ns = 1});
  EXPECT_FALSE(testing::throttle(Region::create("emulated", made)).active());
}

}  // namespace
}  // namespace holdfast
