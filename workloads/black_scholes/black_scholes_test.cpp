// Prices against the oracle and known values; modes, kills, options.
#include "black_scholes/black_scholes.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "checkpointing/iterative_checks.hpp"

namespace black_scholes {
namespace {

using checkpointing_checks::error_with;
using holdfast::Errc;

struct Prices {
  std::vector<float> call, put;
};

// In pinned memory, which kernels and host threads can use.
Prices price_all(const Options& options, const std::vector<Scenario>& scenarios, bool on_cpu) {
  holdfast::Stream stream;
  const std::uint64_t count = options.spot.size();
  holdfast::PinnedBuffer<float> spot(count), strike(count), years(count), call(count), put(count);
  std::copy(options.spot.begin(), options.spot.end(), spot.data());
  std::copy(options.strike.begin(), options.strike.end(), strike.data());
  std::copy(options.years.begin(), options.years.end(), years.data());
  std::fill_n(call.data(), count, 0.0f);
  std::fill_n(put.data(), count, 0.0f);
  const Book book{count, spot.data(), strike.data(), years.data(), call.data(), put.data()};
  for (std::uint64_t i = 0; i < scenarios.size(); ++i) {
    if (on_cpu) {
      price_on_cpu(2, book, scenarios[i], i);
    } else {
      price(stream, book, scenarios[i], i);
    }
  }
  stream.synchronize();
  return {{call.data(), call.data() + count}, {put.data(), put.data() + count}};
}

TEST(BlackScholes, CheckpointsAreAlikeWhateverCopiesThem) {
  checkpointing_checks::expect_either_copier(info(), {});
}

TEST(BlackScholes, EveryModeVerifiesAndResumes) {
  checkpointing_checks::expect_every_mode(info(), {});
}

TEST(BlackScholes, KillsAreSurvived) {
  workload::Settings settings;
  settings.steps = 25;
  settings.options["count"] = "2000";
  checkpointing_checks::expect_kills_survived(info(), settings);
}

// Hull, Options, Futures, and Other Derivatives: S = 42, K = 40, r = 0.1, sigma = 0.2, T = 0.5 give
// 4.76 and 0.81.
TEST(BlackScholes, TextbookPricesAreFound) {
  const Options options{{42.0f}, {40.0f}, {0.5f}};
  for (const bool on_cpu : {false, true}) {
    const Prices prices = price_all(options, {{0.1f, 0.2f}}, on_cpu);
    EXPECT_NEAR(prices.call[0], 4.7594, 1e-4);
    EXPECT_NEAR(prices.put[0], 0.8086, 1e-4);
  }
}

TEST(BlackScholes, PricesAreMeansOverScenarios) {
  const Options options = make_options(3, 0, 50);
  const Scenario low{0.02f, 0.2f}, high{0.04f, 0.4f};
  const Prices a = price_all(options, {low}, false), b = price_all(options, {high}, false);
  const Prices both = price_all(options, {low, high}, false);
  for (unsigned i = 0; i < 50; ++i) {
    EXPECT_NEAR(both.call[i], (a.call[i] + b.call[i]) / 2, 1e-5);
    EXPECT_NEAR(both.put[i], (a.put[i] + b.put[i]) / 2, 1e-5);
  }
}

TEST(BlackScholes, KernelsAndHostThreadsAgreeWithTheOracle) {
  constexpr std::uint64_t kSeed = 5;
  for (const std::uint64_t count : {1, 255, 257, 5000}) {
    const Options options = make_options(kSeed, 0, count);
    for (const bool on_cpu : {false, true}) {
      std::vector<Scenario> scenarios;
      for (std::uint64_t i = 0; i < 6; ++i) scenarios.push_back(scenario(kSeed, i));
      const Prices prices = price_all(options, scenarios, on_cpu);
      EXPECT_EQ(compare_with_oracle(kSeed, 6, prices.call, prices.put), "");
    }
  }
}

// An oracle must be able to say no.
TEST(BlackScholes, TheOracleSaysNo) {
  const Options options = make_options(1, 0, 100);
  const std::vector<Scenario> scenarios = {scenario(1, 0), scenario(1, 1)};
  Prices prices = price_all(options, scenarios, false);
  EXPECT_NE(compare_with_oracle(1, 1, prices.call, prices.put), "");
  EXPECT_NE(compare_with_oracle(1, 3, prices.call, prices.put), "");
  EXPECT_NE(compare_with_oracle(2, 2, prices.call, prices.put), "");
  prices.call[51] += 0.001f;
  EXPECT_NE(compare_with_oracle(1, 2, prices.call, prices.put).find("option 51 "),
            std::string::npos);
  prices.put[50] = NAN;
  EXPECT_NE(compare_with_oracle(1, 2, prices.call, prices.put).find("option 50 "),
            std::string::npos);
}

// Options are a function of the seed and their number, however many are made at once.
TEST(BlackScholes, InputsAreMadeAlikeInParts) {
  const Options whole = make_options(9, 0, 10'000), part = make_options(9, 7000, 10);
  for (unsigned i = 0; i < 10; ++i) {
    EXPECT_EQ(whole.spot[7000 + i], part.spot[i]);
    EXPECT_EQ(whole.strike[7000 + i], part.strike[i]);
    EXPECT_EQ(whole.years[7000 + i], part.years[i]);
  }
  EXPECT_NE(make_options(10, 0, 10).spot, make_options(9, 0, 10).spot);
}

TEST(BlackScholes, BadOptionsAreRefused) {
  EXPECT_EQ(error_with(info(), {{"count", "0"}}, {"count=0", "1 to"}), Errc::invalid_argument);
  EXPECT_EQ(error_with(info(), {{"count", "4294967297"}}, {"4294967296"}), Errc::invalid_argument);
  EXPECT_EQ(error_with(info(), {{"scenarios", "-1"}}, {"scenarios"}), Errc::invalid_argument);
}

// Table 1: 4 GB, of which the two copies are.
TEST(BlackScholes, PaperSizeIsThatOfThePaper) {
  workload::Settings settings;
  settings.size = workload::Size::paper;
  const std::uint64_t bytes = info().make(settings)->medium_bytes();
  EXPECT_NEAR(static_cast<double>(bytes), 4.29e9, 0.01e9);
}

}  // namespace
}  // namespace black_scholes
