#include "black_scholes/black_scholes.hpp"
#include "checkpointing/iterative.hpp"

namespace black_scholes {

using checkpointing::mix;
using checkpointing::uniform;

Scenario scenario(std::uint64_t seed, std::uint64_t number) {
  return {uniform(mix(seed + 1, 2 * number), 0.01f, 0.05f),
          uniform(mix(seed + 1, 2 * number + 1), 0.15f, 0.45f)};
}

Options make_options(std::uint64_t seed, std::uint64_t first, std::uint64_t count,
                     unsigned threads) {
  Options options{std::vector<float>(count), std::vector<float>(count), std::vector<float>(count)};
  const bool many = count >= 4096 && threads > 1;
#pragma omp parallel for schedule(static) num_threads(static_cast <int>(threads)) if (many)
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t place = 3 * (first + i);
    options.spot[i] = uniform(mix(seed, place), 5.0f, 100.0f);
    options.strike[i] = uniform(mix(seed, place + 1), 5.0f, 100.0f);
    options.years[i] = uniform(mix(seed, place + 2), 0.25f, 10.0f);
  }
  return options;
}

}  // namespace black_scholes
