// The prefix sum as a workload: every mode, cut off at any place.
#include "prefix_sum/prefix_sum_workload.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "prefix_sum/prefix_sum_oracle.hpp"
#include "prefix_sum/rows.hpp"
#include "support/scratch.hpp"
#include "workload_checks.hpp"

namespace prefix_sum {
namespace {

using holdfast::Errc;
using holdfast::test::error_of;
using workload::Mode;
using workload::Settings;

std::string name_of(const ::testing::TestParamInfo<Mode>& mode) {
  std::string name = workload::to_string(mode.param);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class PrefixSumModes : public ::testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(All, PrefixSumModes, ::testing::ValuesIn(workload::all_modes()), name_of);

TEST_P(PrefixSumModes, AgreesWithTheOracle) {
  Settings settings;
  const auto usual = workload_checks::run_whole(info(), settings);
  settings.mode = GetParam();
  const auto run = workload_checks::run_whole(info(), settings);
  EXPECT_EQ(run.wrong, "");
  EXPECT_EQ(run.digest, usual.digest);
  EXPECT_EQ(run.steps, 8u);
}

TEST_P(PrefixSumModes, ResumesAfterEachStep) {
  Settings settings;
  settings.mode = GetParam();
  settings.options = {{"rows", "23"}, {"length", "77"}};
  settings.steps = 5;
  const auto whole = workload_checks::run_whole(info(), settings);
  const auto steps = workload_checks::run_step_by_step(info(), settings);
  EXPECT_EQ(steps.wrong, "");
  EXPECT_EQ(steps.digest, whole.digest);
  EXPECT_EQ(steps.steps, 5u);
  // Another number of steps is another order of the same work.
  settings.steps = 1;
  EXPECT_EQ(workload_checks::run_whole(info(), settings).digest, whole.digest);
}

TEST_P(PrefixSumModes, SurvivesKills) {
  if (std::strcmp(holdfast::backend::name(), "cpu") != 0) GTEST_SKIP() << "forks";
  Settings settings;
  settings.mode = GetParam();
  settings.options = {{"rows", "40"}, {"length", "64"}};
  settings.steps = 3;
  workload_checks::expect_kills_survived(info(), settings, 5, holdfast::test::test_seed());
}

TEST(PrefixSumWorkloadTest, UnusualShapes) {
  for (const auto& [rows, length] :
       {std::pair{"1", "1"}, {"1", "1024"}, {"300", "1"}, {"7", "3"}}) {
    for (const Mode mode : {Mode::gpm, Mode::cap_mm, Mode::cpu}) {
      Settings settings;
      settings.mode = mode;
      settings.options = {{"rows", rows}, {"length", length}};
      EXPECT_EQ(workload_checks::run_whole(info(), settings).wrong, "") << rows << " x " << length;
    }
  }
}

// Rows that are there are passed over, where their last sum says so; others are made again whatever
// they hold. By kernels and by host threads.
TEST(PrefixSumWorkloadTest, ResumesFromWhatIsThere) {
  constexpr std::uint32_t kRows = 12, kLength = 9;
  constexpr std::uint64_t kSize = kRows * kLength;
  std::vector<std::uint32_t> numbers(kSize);
  std::iota(numbers.begin(), numbers.end(), 0u);
  const holdfast::PinnedBuffer<std::uint32_t> input(kSize);
  std::copy(numbers.begin(), numbers.end(), input.data());
  const holdfast::PinnedBuffer<std::uint64_t> sums(2 * kSize);
  const holdfast::PinnedBuffer<std::uint64_t> totals(kRows);
  const Rows rows{sums.data(), sums.data() + kSize, kLength};
  std::mt19937_64 random(holdfast::test::test_seed());
  holdfast::Stream stream;
  for (int round = 0; round < 20; ++round) {
    const bool by_kernels = round % 2 == 0;
    const auto run = [&](const RowRange& range) {
      if (!by_kernels) return sum_rows_on_cpu(input.data(), rows, range, 2);
      sum_rows(stream, input.data(), rows, range, totals.data(), true);
      stream.synchronize();
    };
    std::fill_n(sums.data(), sums.size(), 0u);
    run({0, 5});
    run({5, 7});
    const bool in_partial = round % 4 < 2;
    for (std::uint32_t row = 0; row < 2 * kRows; ++row) {
      if (row < kRows && (!in_partial || row < 5)) continue;
      if (row >= kRows && row < kRows + 5) continue;  // of an earlier step
      if (row < kRows ? random() % 2 : !in_partial && random() % 2) continue;
      for (std::uint32_t i = 0; i < kLength; ++i) {
        if (i == kLength - 1 || random() % 2) sums[row * kLength + i] = 0;
      }
    }
    run({5, 7});
    const std::vector<std::uint64_t> partial(sums.data(), sums.data() + kSize);
    const std::vector<std::uint64_t> result(sums.data() + kSize, sums.data() + 2 * kSize);
    EXPECT_EQ(compare_sums(numbers, partial, kLength, true, "partial"), "") << "round " << round;
    EXPECT_EQ(compare_sums(numbers, result, kLength, false, "final"), "") << "round " << round;
  }
}

TEST(PrefixSumWorkloadTest, WithoutPersistsSentinelsAreNotBelieved) {
  const holdfast::PinnedBuffer<std::uint32_t> input(4);
  for (std::uint32_t i = 0; i < 4; ++i) input[i] = i + 1;
  const holdfast::PinnedBuffer<std::uint64_t> sums(8);
  std::fill_n(sums.data(), 8, 99u);
  const holdfast::PinnedBuffer<std::uint64_t> totals(2);
  holdfast::Stream stream;
  sum_rows(stream, input.data(), {sums.data(), sums.data() + 4, 2}, {0, 2}, totals.data(), false);
  stream.synchronize();
  EXPECT_EQ(std::vector<std::uint64_t>(sums.data(), sums.data() + 8),
            (std::vector<std::uint64_t>{2, 4, 4, 8, 2, 4, 7, 11}));
}

TEST(PrefixSumWorkloadTest, TheOracleFindsWrongSums) {
  const std::vector<std::uint32_t> numbers = {1, 2, 3, 4};
  EXPECT_EQ(compare_sums(numbers, {2, 4, 7, 11}, 2, false, "sum"), "");
  EXPECT_EQ(compare_sums(numbers, {2, 4, 4, 8}, 2, true, "sum"), "");
  EXPECT_NE(compare_sums(numbers, {2, 4, 7, 12}, 2, false, "sum"), "");
  EXPECT_NE(compare_sums(numbers, {0, 4, 7, 11}, 2, false, "sum"), "");
}

TEST(PrefixSumWorkloadTest, BadOptionsAreRefused) {
  const auto error_with = [](const char* name, const char* value) {
    Settings settings;
    settings.options[name] = value;
    return error_of([&] { info().make(settings); }, {name, "give"});
  };
  EXPECT_EQ(error_with("rows", "0"), Errc::invalid_argument);
  EXPECT_EQ(error_with("rows", "1048577"), Errc::invalid_argument);
  EXPECT_EQ(error_with("length", "1025"), Errc::invalid_argument);
  EXPECT_EQ(error_with("length", "-1"), Errc::invalid_argument);
}

}  // namespace
}  // namespace prefix_sum
