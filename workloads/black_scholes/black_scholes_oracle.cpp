// The formula by the standard library's error function, in double precision.
#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <numbers>

#include "black_scholes/black_scholes.hpp"
#include "holdfast/error.hpp"
#include "workload/in_parts.hpp"

namespace black_scholes {
namespace {

struct Prices {
  double call, put;
};

// The normal distribution between places where the library's function was asked, by cubics that
// have its values and slopes there: off by less than 1e-13, and some times as fast.
class Distribution {
 public:
  Distribution() {
    for (int i = 0; i <= kPlaces; ++i) {
      const double x = -kEnd + i / kDensity;
      places_[i] = {0.5 * std::erfc(-x / std::sqrt(2.0)),
                    std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi) / kDensity};
    }
  }

  double operator()(double x) const {
    const double at = (x + kEnd) * kDensity;
    if (!(at > 0)) return 0;  // also where x is no number: the prices are none, then, either
    if (at >= kPlaces) return 1;
    const int i = static_cast<int>(at);
    const double t = at - i;
    const Place &here = places_[i], &next = places_[i + 1];
    const double rise = next.value - here.value;
    return here.value + t * (here.slope + t * (3 * rise - 2 * here.slope - next.slope +
                                               t * (here.slope + next.slope - 2 * rise)));
  }

 private:
  static constexpr double kEnd = 8.5, kDensity = 512;
  static constexpr int kPlaces = 17 * 512;
  struct Place {
    double value, slope;
  };
  std::array<Place, kPlaces + 1> places_;
};

const Distribution& normal() {
  static const Distribution distribution;
  return distribution;
}

// One option. The put by the parity of put and call.
class Contract {
 public:
  Contract(double spot, double strike, double years)
      : spot_(spot),
        strike_(strike),
        years_(years),
        log_moneyness_(std::log(spot) - std::log(strike)),
        root_years_(std::sqrt(years)) {}

  Prices expected(const Scenario& scenario) const {
    const Distribution& distribution = normal();
    const double rate = scenario.rate, volatility = scenario.volatility;
    const double spread = volatility * root_years_;
    const double middle = (log_moneyness_ + rate * years_) / spread;
    const double bond = strike_ * std::exp(-rate * years_);
    const double call =
        spot_ * distribution(middle + spread / 2) - bond * distribution(middle - spread / 2);
    return {call, call - spot_ + bond};
  }

 private:
  double spot_, strike_, years_, log_moneyness_, root_years_;
};

std::string compare(std::uint64_t i, const Contract& contract,
                    const std::vector<Scenario>& scenarios, float call, float put) {
  Prices sums{0, 0};
  for (const Scenario& scenario : scenarios) {
    const Prices prices = contract.expected(scenario);
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
                                const std::vector<float>& call, const std::vector<float>& put) {
  constexpr std::uint64_t kAtOnce = 4096;  // options
  std::vector<Scenario> all;
  all.reserve(scenarios);
  for (std::uint64_t i = 0; i < scenarios; ++i) all.push_back(scenario(seed, i));
  std::mutex mutex;
  std::uint64_t where = call.size();  // of the first that is wrong, as far as is known
  std::string wrong;
  workload::in_parts(call.size(), kAtOnce, [&](std::uint64_t first, std::uint64_t end) {
    for (std::uint64_t start = first; start < end; start += kAtOnce) {
      const Options some = make_options(seed, start, std::min(kAtOnce, end - start), 1);
      for (std::uint64_t k = 0; k < some.spot.size(); ++k) {
        const std::uint64_t i = start + k;
        std::string found =
            compare(i, {some.spot[k], some.strike[k], some.years[k]}, all, call[i], put[i]);
        if (found.empty()) continue;
        const std::lock_guard lock(mutex);
        if (i < where) {
          where = i;
          wrong = std::move(found);
        }
        return;
      }
    }
  });
  return wrong;
}

}  // namespace black_scholes
