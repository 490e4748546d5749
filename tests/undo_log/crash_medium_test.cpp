// Crash states of an emulated medium, where stores that no fence waited for may be lost: the log
// recovers from each, and a kernel that stores before it logs does not.
#include "holdfast/testing/crash_medium.hpp"

#include <gtest/gtest.h>

#include "holdfast/undo_log.hpp"
#include "support/scratch.hpp"
#include "undo_log/log_kernels.hpp"

namespace holdfast {
namespace {

using Step = void (*)(Stream&, const UndoLog&, std::uint64_t*, std::uint32_t, PageMarks);

constexpr std::uint32_t kCells = 20;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

Region emulated() {
  RegionOptions options;
  options.domain = Domain::emulated;
  options.size = kMiB;
  return Region::create("emulated", options);
}

struct Verdict {
  bool crashed = false;
  bool whole = false;
};

// Runs a step, crashes at its n-th fence, recovers, and looks at the cells.
Verdict crash_and_recover(Step step, std::uint64_t fence, std::uint64_t seed) {
  Region region = emulated();
  auto transaction = Transaction::create(region, "tx");
  auto log = transaction.create_log(region, "log", LogShape::coalesced(kCells, 16));
  const auto cells = region.allocate<std::uint64_t>("cells", kCells);
  Stream stream;
  Verdict verdict;
  {
    testing::CrashMedium medium(region, seed);
    medium.crash_at(fence);
    transaction.begin(stream);
    step(stream, log, cells.data(), kCells, region.marks());
    transaction.commit(stream);
    stream.synchronize();
    verdict.crashed = medium.crashed();
    if (verdict.crashed) medium.crash();
  }
  transaction = Transaction::open(region, "tx");
  test::recover(stream, transaction,
                {{transaction.log("log"), cells.data(), kCells, region.marks()}});
  verdict.whole = true;
  for (const std::uint64_t cell : cells) verdict.whole = verdict.whole && cell == cells[0];
  return verdict;
}

TEST(CrashMediumTest, TheLogRecoversFromACrashAtEveryFence) {
  const std::uint64_t seed = test::test_seed();
  std::uint64_t fence = 0;
  for (bool crashed = true; crashed; ++fence) {
    ASSERT_LT(fence, 1000u);
    for (std::uint64_t i = 0; i < 4; ++i) {
      const Verdict verdict = crash_and_recover(test::add_one, fence, seed + i);
      EXPECT_TRUE(verdict.whole) << "fence " << fence << " seed " << seed + i;
      crashed = verdict.crashed;
    }
  }
  // Begin, three for every cell, commit.
  EXPECT_EQ(fence - 1, 2 + 3 * kCells);
}

TEST(CrashMediumTest, AStoreBeforeItsLogEntryIsFound) {
  const std::uint64_t seed = test::test_seed();
  int torn = 0;
  for (std::uint64_t fence = 0; fence < 40; ++fence) {
    torn += !crash_and_recover(test::add_one_too_early, fence, seed + fence).whole;
  }
  EXPECT_GT(torn, 0);
}

TEST(CrashMediumTest, OtherDomainsAreRefused) {
  RegionOptions options;
  options.domain = Domain::device;
  options.size = kMiB;
  Region region = Region::create("device", options);
  EXPECT_EQ(test::error_of([&] { testing::CrashMedium medium(region, 1); }, {"emulated"}),
            Errc::invalid_argument);
}

}  // namespace
}  // namespace holdfast
