// The prefix sum against a plain loop, from nothing and from what a crash left.
#include "prefix_sum/prefix_sum.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "support/scratch.hpp"

namespace prefix_sum {
namespace {

using holdfast::Errc;
using holdfast::Region;
using holdfast::Stream;
using holdfast::test::error_of;

class PrefixSumTest : public holdfast::test::Scratch {
 protected:
  Region region(std::uint32_t blocks, std::uint32_t threads) {
    holdfast::RegionOptions options;
    options.size = PrefixSum::object_bytes(blocks, threads) + (1u << 18);
    return Region::create(path(), options);
  }
};

holdfast::PinnedBuffer<std::uint32_t> numbers(std::uint64_t count) {
  std::mt19937_64 random(count);
  holdfast::PinnedBuffer<std::uint32_t> result(count);
  // Zeros, too, also at the ends of blocks; and the largest number there is.
  for (std::uint64_t i = 0; i < count; ++i) {
    result[i] = random() % 3 == 0 ? 0 : random() % 50 == 0 ? 0xffffffffu : random() % 1000;
  }
  return result;
}

std::vector<std::uint64_t> expected(const holdfast::PinnedBuffer<std::uint32_t>& input) {
  std::vector<std::uint64_t> sums(input.size());
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = sum += input[i];
  return sums;
}

TEST_F(PrefixSumTest, EveryShapeAgreesWithALoop) {
  const std::pair<std::uint32_t, std::uint32_t> shapes[] = {
      {1, 1}, {1, 2}, {2, 1}, {3, 33}, {7, 100}, {40, 32}, {5, 1024}, {300, 3}};
  for (const auto& [blocks, threads] : shapes) {
    Region opened = region(blocks, threads);
    PrefixSum sum = PrefixSum::create(opened, blocks, threads);
    const auto input = numbers(sum.size());
    Stream stream;
    EXPECT_EQ(sum.rows_done(stream), 0u);
    EXPECT_EQ(error_of([&] { sum.result(stream); }, {"run()"}), Errc::not_found);
    sum.run(stream, input.data());
    EXPECT_EQ(sum.result(stream), expected(input)) << blocks << " x " << threads;
    EXPECT_EQ(sum.rows_done(stream), blocks);
    opened.close();
    Region::destroy(path());
  }
}

TEST_F(PrefixSumTest, ZerosAreNumbersToo) {
  Region opened = region(3, 4);
  PrefixSum sum = PrefixSum::create(opened, 3, 4);
  holdfast::PinnedBuffer<std::uint32_t> input(12);  // zeroed
  std::memset(input.data(), 0, 12 * sizeof(std::uint32_t));
  Stream stream;
  sum.run(stream, input.data());
  EXPECT_EQ(sum.result(stream), std::vector<std::uint64_t>(12, 0));
  EXPECT_EQ(sum.rows_done(stream), 3u);
}

// Any rows may be missing after a crash, and of a row without its last sum any sums.
TEST_F(PrefixSumTest, ResumesFromWhatIsThere) {
  constexpr std::uint32_t kBlocks = 9, kThreads = 17;
  std::mt19937_64 random(holdfast::test::test_seed());
  Region opened = region(kBlocks, kThreads);
  PrefixSum sum = PrefixSum::create(opened, kBlocks, kThreads);
  const auto input = numbers(sum.size());
  Stream stream;
  sum.run(stream, input.data());
  const auto whole = sum.result(stream);
  opened.abandon();

  for (int round = 0; round < 20; ++round) {
    Region again = Region::open(path());
    PrefixSum found = PrefixSum::open(again);
    ASSERT_EQ(found.blocks(), kBlocks);
    ASSERT_EQ(found.threads(), kThreads);
    const auto object = again.object("prefix_sum");
    auto* const rows = static_cast<std::uint64_t*>(again.address(object));
    // Result rows are made only once all rows of the first kernel are there.
    const bool early = round % 2 == 0;
    for (std::uint32_t row = 0; row < 2 * kBlocks; ++row) {
      const bool first_kernel = row < kBlocks;
      const bool lost = first_kernel ? early && random() % 2 == 0 : early || random() % 2 == 0;
      if (!lost) continue;
      for (std::uint32_t i = 0; i < kThreads; ++i) {
        if (i == kThreads - 1 || random() % 2 == 0) rows[row * kThreads + i] = 0;
      }
    }
    found.run(stream, input.data());
    EXPECT_EQ(found.result(stream), whole) << "round " << round;
    again.abandon();
  }
}

// What is there is not computed again: another input does not change it.
TEST_F(PrefixSumTest, RowsThatAreThereArePassedOver) {
  Region opened = region(4, 8);
  PrefixSum sum = PrefixSum::create(opened, 4, 8);
  auto input = numbers(32);
  Stream stream;
  sum.run(stream, input.data());
  const auto whole = sum.result(stream);
  for (std::size_t i = 0; i < input.size(); ++i) input[i] += 1;
  sum.run(stream, input.data());
  EXPECT_EQ(sum.result(stream), whole);
}

TEST_F(PrefixSumTest, BadShapesAndForeignObjectsAreRefused) {
  Region opened = region(4, 8);
  EXPECT_EQ(error_of([&] { PrefixSum::create(opened, 0, 8); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { PrefixSum::create(opened, 1, 1025); }, {"1025", "1024"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { PrefixSum::open(opened); }), Errc::not_found);
  opened.allocate<std::uint64_t>("prefix_sum", 8);
  EXPECT_EQ(error_of([&] { PrefixSum::open(opened); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { PrefixSum::create(opened, 4, 8); }), Errc::already_exists);
}

}  // namespace
}  // namespace prefix_sum
