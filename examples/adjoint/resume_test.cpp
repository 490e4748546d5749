// The program is killed, again and again, and ends with the image of one that was not.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <random>
#include <sstream>
#include <thread>

#include "adjoint/image.hpp"
#include "adjoint/job.hpp"
#include "adjoint/progress.hpp"
#include "adjoint/running.hpp"
#include "support/error_of.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace adjoint {
namespace {

using holdfast::Errc;
using holdfast::Region;
using holdfast::Stream;
using holdfast::test::error_of;
using holdfast::test::read_file;

class AdjointResume : public holdfast::test::Scratch {
 protected:
  static constexpr std::uint64_t kShots = 5;

  static Words words(const std::string& image, const std::string& region, const Words& more) {
    Words result{"--nx",    "48", "--nz", "40", "--steps", "250", "--shots", std::to_string(kShots),
                 "--image", image};
    if (!region.empty()) result.insert(result.end(), {"--region", region});
    result.insert(result.end(), more.begin(), more.end());
    return result;
  }
  // The image of a run that nobody disturbs.
  std::vector<char> undisturbed(const Words& more) {
    Running run(words(path("whole.pgm"), "", more));
    while (!run.line().empty()) {
    }
    EXPECT_EQ(run.wait(), 0);
    return read_file(path("whole.pgm"));
  }
};

// Each run is killed some time behind a shot, or in the first one; each may have another store.
TEST_F(AdjointResume, KilledRunsGiveTheSameImage) {
  std::mt19937_64 random(holdfast::test::test_seed());
  const std::vector<char> whole = undisturbed({});
  ASSERT_EQ(whole.size(), 48 * 40 + std::string("P5\n48 40\n255\n").size());
  const std::vector<Words> stores{
      {},
      {"--store", "revolve", "--snapshots", "5"},
      {"--store", "history", "--gpu-cache", "1", "--host-cache", "1", "--folder", path("steps")}};
  const std::uint64_t rounds = holdfast::test::some_of(3);
  unsigned kills = 0, gone_on = 0;
  for (unsigned round = 0; round < rounds || (gone_on < rounds && round < 10); ++round) {
    const std::string region = path("region" + std::to_string(round));
    const std::string image = path("image" + std::to_string(round));
    for (int status = -1; status != 0;) {
      ASSERT_LT(kills, 400u) << "no run comes to its end";
      Running run(words(image, region, stores[random() % 3]));
      for (std::uint64_t lines = random() % 4; lines > 0; --lines) {
        gone_on += run.line().find("shots were done") != std::string::npos;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 150000));
      status = run.kill();  // it may have come to its end before
      ASSERT_TRUE(status == 0 || status == 128 + SIGKILL) << status;
      kills += status != 0;
    }
    EXPECT_EQ(read_file(image), whole) << "round " << round << ", after " << kills << " kills";
  }
  EXPECT_GE(gone_on, rounds) << "of " << kills << " kills";
  std::printf("%u kills, %u runs went on from a shot\n", kills, gone_on);
}

TEST_F(AdjointResume, ARunThatIsDoneGivesItsImageAgain) {
  const std::string image = path("a.pgm"), region = path();
  std::vector<char> first;
  for (int i = 0; i < 2; ++i) {
    Running run(words(image, region, {"--compress"}));
    const std::string line = run.line();
    EXPECT_EQ(line == "5 of 5 shots were done\n", i == 1) << line;
    while (!run.line().empty()) {
    }
    ASSERT_EQ(run.wait(), 0);
    if (i == 0) first = read_file(image);
  }
  EXPECT_EQ(read_file(image), first);
}

TEST_F(AdjointResume, AnotherRunsRegionIsRefusedAndStays) {
  Options options;
  options.nx = 20;
  options.nz = 24;
  options.steps = 10;
  options.region = path();
  std::ostringstream out;
  ASSERT_EQ(run(options, out), 0);
  const std::vector<char> before = read_file(path());
  const auto refused = [&](auto change, const std::string& word) {
    Options other = options;
    change(other);
    EXPECT_EQ(error_of([&] { run(other, out); }, {path(), word, "--region"}), Errc::conflict);
  };
  refused([](Options& other) { other.nx = 21; }, "--nx 20, and this one has 21");
  refused([](Options& other) { other.nz = 20; }, "--nz 24");
  refused([](Options& other) { other.steps = 11; }, "--steps 10");
  refused([](Options& other) { other.shots = 2; }, "--shots 3");
  refused([](Options& other) { other.compress = true; }, "--compress 0");
  refused([](Options& other) { other.every = 2; }, "--every 1");
  ASSERT_EQ(run(options, out), 0);
  EXPECT_NE(out.str().find("3 of 3 shots were done"), std::string::npos);
  EXPECT_EQ(read_file(path()).size(), before.size());
}

TEST_F(AdjointResume, WhatIsNoRunsRegionIsRefusedAndStays) {
  {
    Region region = Region::create(path(), options(1u << 20));
    region.allocate<int>("numbers", 10);
    region.close();
  }
  const std::vector<char> before = read_file(path());
  Options options;
  options.nx = options.nz = 20;
  options.steps = 10;
  options.region = path();
  std::ostringstream out;
  EXPECT_EQ(error_of([&] { run(options, out); }, {path(), "something else"}), Errc::conflict);
  EXPECT_EQ(read_file(path()), before);
  holdfast::test::write_file(path("text"), {'n', 'o'});
  options.region = path("text");
  EXPECT_EQ(error_of([&] { run(options, out); }, {path("text")}), Errc::foreign);
}

}  // namespace
}  // namespace adjoint
