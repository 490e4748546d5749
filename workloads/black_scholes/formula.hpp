// The formula in single precision, for kernels and mode cpu.
#pragma once

#include <cmath>
#include <cstdint>

#include "black_scholes/black_scholes.hpp"
#include "checkpointing/host_device.hpp"

namespace black_scholes {

// The normal distribution up to x, within 1e-7: Abramowitz and Stegun, 26.2.17.
CHECKPOINTING_HOST_DEVICE inline float normal_below(float x) {
  const float t = 1.0f / (1.0f + 0.2316419f * fabsf(x));
  const float sum =
      t * (0.319381530f +
           t * (-0.356563782f + t * (1.781477937f + t * (-1.821255978f + t * 1.330274429f))));
  const float above = 0.39894228f * expf(-0.5f * x * x) * sum;
  return x < 0 ? above : 1.0f - above;
}

// Option i in scenario `number`, taken into the means of its prices.
CHECKPOINTING_HOST_DEVICE inline void price_option(const Book& book, Scenario scenario,
                                                   std::uint64_t number, std::uint64_t i) {
  const float spot = book.spot[i];
  const float strike = book.strike[i];
  const float years = book.years[i];
  const float deviation = scenario.volatility * sqrtf(years);
  const float d1 = (logf(spot / strike) + scenario.rate * years) / deviation + 0.5f * deviation;
  const float d2 = d1 - deviation;
  const float discounted = strike * expf(-scenario.rate * years);
  const float call = spot * normal_below(d1) - discounted * normal_below(d2);
  const float put = discounted * normal_below(-d2) - spot * normal_below(-d1);
  const float weight = 1.0f / static_cast<float>(number + 1);
  book.call[i] += (call - book.call[i]) * weight;
  book.put[i] += (put - book.put[i]) * weight;
}

}  // namespace black_scholes
