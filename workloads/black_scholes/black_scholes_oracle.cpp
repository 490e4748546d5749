// The formula by the standard library's error function, serially and in double precision.
#include <algorithm>
#include <cmath>

#include "black_scholes/black_scholes.hpp"
#include "holdfast/error.hpp"

namespace black_scholes {
namespace {

struct Prices {
  double call, put;
};

double distribution(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

// The put by the parity of put and call.
Prices expected(double spot, double strike, double years, const Scenario& scenario) {
  const double rate = scenario.rate, volatility = scenario.volatility;
  const double total = volatility * volatility * years;
  const double moneyness = std::log(spot) - std::log(strike) + rate * years;
  const double bond = strike * std::exp(-rate * years);
  const double call = spot * distribution((moneyness + total / 2) / std::sqrt(total)) -
                      bond * distribution((moneyness - total / 2) / std::sqrt(total));
  return {call, call - spot + bond};
}

// Of option i; `options` holds it alone.
std::string compare(std::uint64_t i, const Options& options, const std::vector<Scenario>& scenarios,
                    float call, float put) {
  Prices sums{0, 0};
  for (const Scenario& scenario : scenarios) {
    const Prices prices = expected(options.spot[0], options.strike[0], options.years[0], scenario);
    sums.call += prices.call;
    sums.put += prices.put;
  }
  const auto rounds = static_cast<double>(scenarios.size());
  const Prices should{sums.call / rounds, sums.put / rounds};
  if (std::abs(call - should.call) <= kTolerance && std::abs(put - should.put) <= kTolerance) {
    return {};
  }
  return holdfast::detail::concat("option ", i, " after ", scenarios.size(),
                                  " scenarios: call and put are ", call, " and ", put,
                                  ", and should be ", should.call, " and ", should.put);
}

}  // namespace

std::string compare_with_oracle(std::uint64_t seed, std::uint64_t scenarios,
                                const std::vector<float>& call, const std::vector<float>& put,
                                std::uint64_t budget) {
  std::vector<Scenario> all;
  all.reserve(scenarios);
  for (std::uint64_t i = 0; i < scenarios; ++i) all.push_back(scenario(seed, i));
  const std::uint64_t most = std::max<std::uint64_t>(budget / scenarios, 1);
  const std::uint64_t stride = (call.size() + most - 1) / most;
  for (std::uint64_t i = 0; i < call.size(); i += stride) {
    std::string wrong = compare(i, make_options(seed, i, 1), all, call[i], put[i]);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace black_scholes
