// Regions and kernels: stores, marks, the place of a commit between kernels, and faults.
#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <vector>

#include <filesystem>

#include "core/region_kernels.hpp"
#include "holdfast/region.hpp"
#include "holdfast/testing/medium_model.hpp"
#include "support/process.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast {
namespace {

using test::error_of;

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::size_t kWords = 5000;

class RegionKernelTest : public test::Scratch {
 protected:
  void SetUp() override {
    std::string why;
    if (!backend::usable(&why)) GTEST_SKIP() << why;
  }
  // The image's words, read through a copy.
  std::vector<std::uint32_t> committed() {
    std::filesystem::copy_file(path(), path("copy"),
                               std::filesystem::copy_options::overwrite_existing);
    OpenOptions elsewhere;
    elsewhere.arena_folder = other_arenas();
    Region copy = Region::open(path("copy"), elsewhere);
    const auto words = copy.find<std::uint32_t>("words");
    std::vector<std::uint32_t> result(words.begin(), words.end());
    copy.close();
    return result;
  }
};

TEST_F(RegionKernelTest, CommitsWhatTheKernelsBeforeItStored) {
  Region region = Region::create(path(), options(kMiB));
  auto words = region.allocate<std::uint32_t>("words", kWords, Tracking::marked);
  region.commit();
  Stream stream;
  for (std::uint32_t round = 1; round <= test::some_of(20, 2); ++round) {
    test::store_words(stream, words.data(), kWords, round * 1000, region.marks());
    Commit commit = region.commit(stream);
    test::store_words(stream, words.data(), kWords, 7, region.marks());
    EXPECT_EQ(commit.wait().pages_written, (kWords * 4 + kPageBytes - 1) / kPageBytes);
    const std::vector<std::uint32_t> found = committed();
    for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(found[i], round * 1000 + i);
    stream.synchronize();
    ASSERT_EQ(words[kWords - 1], 7 + kWords - 1) << "the host sees what kernels store";
  }
}

TEST_F(RegionKernelTest, KernelsReachWhatGrowAdds) {
  Region region = Region::create(path(), options(kMiB));
  auto first = region.allocate<std::uint32_t>("first", kWords);
  region.grow(4 * kMiB);
  auto words = region.allocate<std::uint32_t>("words", kMiB / 2, Tracking::marked);
  Stream stream;
  test::store_words(stream, first.data(), first.size(), 1, region.marks());
  test::store_words(stream, words.data(), words.size(), 2, region.marks());
  region.commit(stream).wait();
  EXPECT_EQ(committed()[kMiB / 2 - 1], 2 + kMiB / 2 - 1);
}

// A grown region is pinned in parts; a copy may span them.
TEST_F(RegionKernelTest, CopiesSpanWhatGrowAdded) {
  Region region = Region::create(path(), options(kMiB));
  region.grow(4 * kMiB);
  const auto words = region.allocate<std::uint32_t>("words", kMiB * 3 / 4);
  std::vector<std::uint32_t> host(words.size());
  std::iota(host.begin(), host.end(), 7);
  DeviceBuffer<std::uint32_t> device(words.size());
  Stream stream;
  copy_async(stream, words.data(), host.data(), words.size_bytes());
  copy_async(stream, device.data(), words.data(), words.size_bytes());
  std::vector<std::uint32_t> back(words.size());
  copy_async(stream, back.data(), device.data(), words.size_bytes());
  stream.synchronize();
  EXPECT_EQ(back, host);
}

#if defined(HOLDFAST_BACKEND_CPU)
// What a medium costs is a lower bound: nothing makes a kernel faster.
TEST_F(RegionKernelTest, EmulatedMediaChargeForPersists) {
  const auto store_on = [&](const testing::MediumModel& medium) {
    RegionOptions wanted = options(kMiB);
    wanted.domain = Domain::emulated;
    wanted.medium = testing::standing_for(medium);
    Region region = Region::create("slow", wanted);
    const auto words = region.allocate<std::uint32_t>("words", 100);
    Stream stream;
    const auto start = std::chrono::steady_clock::now();
    test::store_words(stream, words.data(), words.size(), 1, region.marks());
    stream.synchronize();
    return std::chrono::steady_clock::now() - start;
  };
  EXPECT_GE(store_on({.persist_latency_ns = 50000}), std::chrono::milliseconds(5));
  EXPECT_GE(store_on({.write_bytes_per_second = 8e4}), std::chrono::milliseconds(10));
}
#endif

// The child: a kernel persists, the next one faults. Exit status 0 if everything went as it should.
TEST(KernelChild, DISABLED_Faults) {
  Region region = Region::open(test::from_environment("HOLDFAST_TEST_REGION"));
  const bool close = test::from_environment("HOLDFAST_TEST_CLOSE") == "1";
  const auto words = region.find<std::uint32_t>("words");
  const std::uint64_t generation = region.generation();
  Stream stream;
  test::store_words(stream, words.data(), words.size(), 100, region.marks());
  test::fault(stream);
  Commit commit = region.commit(stream);
  Errc code = error_of([&] { commit.wait_snapshot(); });
  EXPECT_TRUE(code == Errc::device || code == Errc::kernel_fault) << to_string(code);
  code = error_of([&] { commit.wait(); });
  EXPECT_TRUE(code == Errc::device || code == Errc::kernel_fault) << to_string(code);
  EXPECT_EQ(error_of([&] { stream.synchronize(); }), Errc::kernel_fault);
  EXPECT_EQ(region.generation(), generation);
  if (close) {
    region.close();  // the device is lost, the region's bytes are not
  } else {
    region.abandon();
  }
}

TEST_F(RegionKernelTest, AKernelFaultLosesNothingThatWasPersisted) {
#if defined(HOLDFAST_SANITIZE) && defined(HOLDFAST_BACKEND_CPU)
  GTEST_SKIP() << "the address sanitizer ends a process that faults";
#endif
  for (const char* close : {"0", "1"}) {
    Region::create(path(), options(kMiB))
        .allocate<std::uint32_t>("words", kWords, Tracking::marked);
    test::Child child("KernelChild.DISABLED_Faults",
                      {{"HOLDFAST_TEST_REGION", path()}, {"HOLDFAST_TEST_CLOSE", close}});
    EXPECT_EQ(child.wait(), 0);
    Region region = Region::open(path());
    EXPECT_EQ(region.open_report().arena_found, close[0] == '0');
    const auto words = region.find<std::uint32_t>("words");
    for (std::size_t i = 0; i < kWords; ++i) ASSERT_EQ(words[i], 100 + i);
    region.close();
    Region::destroy(path());
  }
}

}  // namespace
}  // namespace holdfast
