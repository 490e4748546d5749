// The reduction against a plain loop, from nothing and from what a crash left.
#include "reduction/reduction.hpp"

#include <gtest/gtest.h>

#include <random>

#include "support/scratch.hpp"

namespace reduction {
namespace {

using holdfast::Errc;
using holdfast::Region;
using holdfast::Scope;
using holdfast::Stream;
using holdfast::test::error_of;

class ReductionTest : public holdfast::test::Scratch {
 protected:
  Region region() {
    holdfast::RegionOptions options;
    options.size = 1u << 20;
    return Region::create(path(), options);
  }
};

holdfast::PinnedBuffer<std::uint32_t> numbers(std::uint64_t count) {
  std::mt19937_64 random(count);
  holdfast::PinnedBuffer<std::uint32_t> result(count);
  for (std::uint64_t i = 0; i < count; ++i) {
    result[i] = random() % 3 == 0 ? 0 : random() % 50 == 0 ? 0xffffffffu : random() % 1000;
  }
  return result;
}

std::uint64_t sum_of(const holdfast::PinnedBuffer<std::uint32_t>& input) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < input.size(); ++i) sum += input[i];
  return sum;
}

TEST_F(ReductionTest, EveryShapeAgreesWithALoop) {
  const std::pair<std::uint32_t, std::uint32_t> shapes[] = {
      {1, 1}, {1, 2}, {2, 1}, {1, 3}, {3, 33}, {7, 100}, {40, 32}, {5, 1024}, {300, 3}};
  for (const auto& [blocks, threads] : shapes) {
    for (const std::uint64_t count : {0u, 1u, 777u, 20'000u}) {
      Region opened = region();
      Reduction sum = Reduction::create(opened, blocks, threads);
      const auto input = numbers(count);
      Stream stream;
      EXPECT_FALSE(sum.done(stream));
      EXPECT_EQ(error_of([&] { sum.total(stream); }, {"run()"}), Errc::not_found);
      sum.run(stream, input.data(), count);
      EXPECT_TRUE(sum.done(stream));
      EXPECT_EQ(sum.total(stream), sum_of(input)) << blocks << " x " << threads << ", " << count;
      // A block's sum is what its threads' shares come to; all of them come to the total.
      const auto partial = sum.partial_sums(stream);
      std::uint64_t blocks_sum = 0;
      for (const auto& stored : partial) EXPECT_NE(stored, 0u);
      for (std::uint32_t block = 0; block < blocks; ++block) {
        blocks_sum += Reduction::decode(partial[std::uint64_t{block} * threads]);
      }
      EXPECT_EQ(blocks_sum, sum_of(input));
      opened.close();
      Region::destroy(path());
    }
  }
}

// A crash leaves a partial sum only with those that it was made from: thread t's with those of
// t + half, for every half that it went through.
void lose_some(std::uint64_t* row, std::uint32_t threads, std::uint32_t thread,
               std::uint32_t first_half, std::mt19937_64& random) {
  if (random() % 3 == 0) return;
  row[thread] = 0;
  for (std::uint32_t half = first_half; half > thread; half /= 2) {
    if (thread + half < threads) lose_some(row, threads, thread + half, half / 2, random);
    if (half == 1) break;
  }
}

TEST_F(ReductionTest, ResumesFromWhatIsThere) {
  constexpr std::uint32_t kBlocks = 6, kThreads = 13, kCount = 1000;
  std::mt19937_64 random(holdfast::test::test_seed());
  const auto input = numbers(kCount);
  Stream stream;
  std::vector<std::uint64_t> whole;
  {
    Region opened = region();
    Reduction sum = Reduction::create(opened, kBlocks, kThreads);
    sum.run(stream, input.data(), kCount);
    whole = sum.partial_sums(stream);
    opened.abandon();
  }
  for (int round = 0; round < 20; ++round) {
    Region again = Region::open(path());
    Reduction found = Reduction::open(again);
    ASSERT_EQ(found.blocks(), kBlocks);
    ASSERT_EQ(found.threads(), kThreads);
    again.find<std::uint64_t>("reduction.total")[0] = 0;
    auto* const rows =
        static_cast<std::uint64_t*>(again.address(again.object("reduction.partial")));
    for (std::uint32_t block = 0; block < kBlocks; ++block) {
      lose_some(rows + block * kThreads, kThreads, 0, 8, random);
    }
    found.run(stream, input.data(), kCount);
    EXPECT_EQ(found.total(stream), sum_of(input)) << "round " << round;
    EXPECT_EQ(found.partial_sums(stream), whole) << "round " << round;
    again.abandon();
  }
}

// With the total there, nothing is computed, so another input does not change it.
TEST_F(ReductionTest, ATotalIsKept) {
  Region opened = region();
  Reduction sum = Reduction::create(opened, 3, 8);
  auto input = numbers(100);
  Stream stream;
  sum.run(stream, input.data(), 100);
  const std::uint64_t total = sum.total(stream);
  sum.run(stream, input.data(), 50);
  EXPECT_EQ(sum.total(stream), total);
}

// Without a crash the narrow release gives the right sum: that is why the bug is hard to see.
TEST_F(ReductionTest, TheNarrowReleaseIsRightWithoutACrash) {
  for (const Scope scope : {Scope::block, Scope::device, Scope::system}) {
    Region opened = region();
    Reduction sum = Reduction::create(opened, 4, 16);
    const auto input = numbers(500);
    Stream stream;
    sum.run(stream, input.data(), 500, scope);
    EXPECT_EQ(sum.total(stream), sum_of(input));
    opened.close();
    Region::destroy(path());
  }
}

TEST_F(ReductionTest, BadShapesAndForeignObjectsAreRefused) {
  Region opened = region();
  EXPECT_EQ(error_of([&] { Reduction::create(opened, 0, 8); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { Reduction::create(opened, 1, 1025); }, {"1025", "1024"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { Reduction::open(opened); }), Errc::not_found);
  // What a creation that was cut off leaves.
  opened.allocate<std::uint64_t>("reduction.total", 1);
  Reduction sum = Reduction::create(opened, 1, 8);
  const auto input = numbers(1);
  Stream stream;
  EXPECT_EQ(error_of([&] { sum.run(stream, input.data(), kMaxNumbers + 1); }),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { Reduction::create(opened, 1, 8); }), Errc::already_exists);
  opened.remove("reduction.partial");
  opened.allocate<std::uint64_t>("reduction.partial", 8);
  EXPECT_EQ(error_of([&] { Reduction::open(opened); }), Errc::invalid_argument);
}

}  // namespace
}  // namespace reduction
