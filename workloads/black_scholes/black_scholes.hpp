// Prices of European options by the formula of Black and Scholes, over many scenarios of rate and
// volatility, with a checkpoint of the predicted prices every so many scenarios. Source: GPM
// (ASPLOS '22) section 4.2 and Table 1; the formula: Black and Scholes (1973).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "holdfast/stream.hpp"
#include "workload/workload.hpp"

namespace black_scholes {

inline constexpr std::uint64_t kMaxOptions = std::uint64_t{1} << 32;

workload::Info info();

// What all options share in one scenario.
struct Scenario {
  float rate;        // without risk, continuous, a year
  float volatility;  // a year
};
Scenario scenario(std::uint64_t seed, std::uint64_t number);

// Options [first, first + spot.size()) of the input that is generated from a seed.
struct Options {
  std::vector<float> spot, strike;  // money
  std::vector<float> years;         // until they expire
};
// Made by that many threads of OpenMP.
Options make_options(std::uint64_t seed, std::uint64_t first, std::uint64_t count,
                     unsigned threads = 1);

// Device memory, or host memory in mode cpu: `count` of each. The predicted prices are the means
// over the scenarios so far.
struct Book {
  std::uint64_t count;
  const float* spot;
  const float* strike;
  const float* years;
  float* call;
  float* put;
};

// Takes scenario `number` (0 for the first) into the prices. Kernels: stream-ordered.
void price(holdfast::Stream& stream, const Book& book, Scenario scenario, std::uint64_t number);
void price_on_cpu(int threads, const Book& book, Scenario scenario, std::uint64_t number);

// Compares the prices of all options after `scenarios` with the formula in double precision, by
// host threads. Empty, or what is wrong.
std::string compare_with_oracle(std::uint64_t seed, std::uint64_t scenarios,
                                const std::vector<float>& call, const std::vector<float>& put);
// Of a price, for spot and strike prices of up to 100.
inline constexpr double kTolerance = 1e-4;

}  // namespace black_scholes
