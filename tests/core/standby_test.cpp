// A standby takes a region over while a kernel of its owner is running. The owner is killed; its
// GPU goes on storing for some milliseconds. The standby must not have the region before that has
// ended.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "core/standby_kernels.hpp"
#include "holdfast/region.hpp"
#include "support/process.hpp"
#include "support/scratch.hpp"

namespace holdfast {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kForever = std::uint64_t{1} << 40;

// The owner: counts in a kernel until it is killed. Its CUDA context is there before the region's
// files are open, or only afterwards: a process that dies lets go of its files in an order of
// theirs.
TEST(StandbyChild, DISABLED_Counts) {
  Stream stream;
  if (test::from_environment("HOLDFAST_TEST_ORDER") == "kernel first") {
    DeviceBuffer<std::uint64_t> counters(test::kCounters);
    test::keep_counting(stream, counters.data(), 10);
    stream.synchronize();
  }
  Region region = Region::open(test::from_environment("HOLDFAST_TEST_REGION"));
  auto counters = region.find<std::uint64_t>("counters");
  test::keep_counting(stream, counters.data(), 10);
  stream.synchronize();
  test::report(1);
  test::keep_counting(stream, counters.data(), kForever);
  stream.synchronize();
}

class StandbyTest : public test::Scratch, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend::usable(&why)) GTEST_SKIP() << why;
    Region region = Region::create(path(), options(kMiB));
    region.allocate<std::uint64_t>("counters", test::kCounters);
    region.close();
  }
};

TEST_P(StandbyTest, HasTheRegionOnlyOnceTheKernelsStoresHaveEnded) {
  Stream own;  // this process's context is there: opening takes no longer for it
  double longest = 0;
  for (int round = 0; round < 4; ++round) {
    test::Child owner("StandbyChild.DISABLED_Counts",
                      {{"HOLDFAST_TEST_REGION", path()}, {"HOLDFAST_TEST_ORDER", GetParam()}});
    int ready = 0;
    ASSERT_TRUE(owner.read(ready));
    std::this_thread::sleep_for(30ms);
    const auto killed = Clock::now();
    ::kill(owner.pid(), SIGKILL);
    std::unique_ptr<Region> region;
    while (!region) {
      try {
        region = std::make_unique<Region>(Region::open(path()));
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), Errc::in_use) << error.what();
        ASSERT_LT(Clock::now() - killed, 20s) << error.what();
        std::this_thread::sleep_for(200us);
      }
    }
    const std::chrono::duration<double, std::milli> after = Clock::now() - killed;
    longest = std::max(longest, after.count());
    EXPECT_TRUE(region->open_report().arena_found);
    const auto counters = region->find<std::uint64_t>("counters");
    const std::vector<std::uint64_t> seen(counters.begin(), counters.end());
    EXPECT_GT(seen[0], 10u) << "the kernel was running";
    std::this_thread::sleep_for(100ms);
    EXPECT_TRUE(std::equal(seen.begin(), seen.end(), counters.begin()))
        << "stores of a dead process's kernel";
    region->abandon();
    owner.wait();
  }
  std::printf("opened %.1f ms after the kill at most\n", longest);
}

INSTANTIATE_TEST_SUITE_P(Orders, StandbyTest, ::testing::Values("kernel first", "region first"),
                         [](const auto& param) {
                           return std::string(param.param[0] == 'k' ? "kernel_first"
                                                                    : "region_first");
                         });

}  // namespace
}  // namespace holdfast
