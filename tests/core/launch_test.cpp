// Launches on either backend: how many blocks there are, and from which threads.
#include "holdfast/launch.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <vector>

#include "core/launch_kernels.hpp"
#include "support/error_of.hpp"

namespace holdfast {
namespace {

using test::error_of;

constexpr std::uint64_t kMostBlocks = 0x7fffffff;
constexpr std::uint64_t kMost = ~std::uint64_t{0};

TEST(BlocksFor, RoundsUp) {
  EXPECT_EQ(blocks_for(1, 256), 1u);
  EXPECT_EQ(blocks_for(255, 256), 1u);
  EXPECT_EQ(blocks_for(256, 256), 1u);
  EXPECT_EQ(blocks_for(257, 256), 2u);
  EXPECT_EQ(blocks_for(7, 1), 7u);
}

TEST(BlocksFor, IsOneForNoItems) { EXPECT_EQ(blocks_for(0, 256), 1u); }

TEST(BlocksFor, CountsIn64Bits) {
  EXPECT_EQ(blocks_for((std::uint64_t{1} << 32) + 1, 1024), (1u << 22) + 1);
  EXPECT_EQ(blocks_for(kMostBlocks * 1024, 1024), kMostBlocks);
  EXPECT_EQ(blocks_for(kMost, kMost), 1u) << "no overflow";
  EXPECT_EQ(blocks_for(kMost, std::uint64_t{1} << 40), 1u << 24);
}

TEST(BlocksFor, RefusesWhatNoGridHas) {
  const auto refused = [](std::uint64_t items, std::uint64_t per_block,
                          const std::vector<std::string>& words) {
    EXPECT_EQ(error_of([&] { blocks_for(items, per_block); }, words), Errc::invalid_argument);
  };
  refused(kMostBlocks * 1024 + 1, 1024, {"2199023254529 items", "2147483648 blocks", "2147483647"});
  refused(kMost, 1, {"18446744073709551615"});
  refused(1, 0, {"0 items", "threads of a block"});
}

std::vector<std::uint32_t> read(const DeviceBuffer<std::uint32_t>& words) {
  std::vector<std::uint32_t> values(words.size());
  Stream stream;
  copy_async(stream, values.data(), words.data(), words.bytes());
  stream.synchronize();
  return values;
}

TEST(BlocksFor, GivesEachItemOneThread) {
  Stream stream;
  for (const std::uint64_t count : {0, 1, 63, 64, 65, 1000}) {
    const DeviceBuffer<std::uint32_t> words(1024);
    test::add_one_to_each(stream, words.data(), count);
    stream.synchronize();
    const std::vector<std::uint32_t> values = read(words);
    for (std::uint64_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], i < count ? 1u : 0u);
  }
}

TEST(Launch, ThreadsMayLaunchAtOnceOnStreamsOfTheirOwn) {
  constexpr int kLaunches = 100;
  std::vector<DeviceBuffer<std::uint32_t>> words;
  for (int i = 0; i < 8; ++i) words.emplace_back(200);
  std::vector<std::thread> threads;
  for (const auto& mine : words) {
    threads.emplace_back([&mine] {
      Stream stream;
      for (int i = 0; i < kLaunches; ++i) {
        test::add_one_to_each(stream, mine.data(), mine.size());
      }
      stream.synchronize();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& mine : words) {
    EXPECT_EQ(read(mine), std::vector<std::uint32_t>(mine.size(), kLaunches));
  }
}

TEST(Launch, ThreadsMayShareAStreamInTurn) {
  const DeviceBuffer<std::uint32_t> words(200);
  Stream stream;
  for (int i = 0; i < 50; ++i) {
    std::thread([&] { test::add_one_to_each(stream, words.data(), words.size()); }).join();
  }
  stream.synchronize();
  EXPECT_EQ(read(words), std::vector<std::uint32_t>(words.size(), 50));
}

}  // namespace
}  // namespace holdfast
