// How far gap-aware eviction is from the best choice, and what others would fetch: printed, and a
// bound asserted. docs/history-eviction.md has the figures.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>

#include "history/cache_simulation.hpp"
#include "support/scratch.hpp"

namespace holdfast::history {
namespace {

using simulation::Evicted;
using simulation::Order;
using simulation::Trace;

double sum(const std::vector<Evicted>& evicted, double (*of)(const Evicted&)) {
  double all = 0;
  for (const Evicted& one : evicted) all += of(one);
  return all;
}

// Ours, the rivals, and other ways to compare windows that were tried.
const std::vector<simulation::NamedPolicy>& policies() {
  static const std::vector<simulation::NamedPolicy> all{
      {"gap-aware", simulation::gap_aware()},
      {"as printed", simulation::as_printed()},
      {"LRU, first fit", simulation::lru_first_fit()},
      {"nearest is farthest",
       simulation::least_key([](const std::vector<Evicted>& evicted, std::uint64_t window) {
         double nearest = 1e18;
         for (const Evicted& one : evicted) {
           nearest = std::min(nearest, static_cast<double>(one.distance));
         }
         return std::vector{-nearest, static_cast<double>(window)};
       })},
      {"least bytes",
       simulation::least_key([](const std::vector<Evicted>& evicted, std::uint64_t window) {
         return std::vector{sum(evicted, [](const Evicted& one) { return double(one.bytes); }),
                            static_cast<double>(window)};
       })},

#define V(name, expr)                                                                          \
  {name, simulation::least_key([](const std::vector<Evicted>& evicted, std::uint64_t window) { \
     return std::vector{sum(evicted,                                                           \
                            [](const Evicted& one) {                                           \
                              const double b = double(one.bytes), d = double(one.distance),    \
                                           n = one.n;                                          \
                              (void)b;                                                         \
                              (void)n;                                                         \
                              return expr;                                                     \
                            }),                                                                \
                        double(window)};                                                       \
   })}
      V("1/(1+d)", 1 / (1 + d)),
      V("b/(1+d)", b / (1 + d)),
      V("b/(1+d)^.5", b / std::sqrt(1 + d)),
      V("b/(1+d)^.25", b / std::pow(1 + d, .25)),
      V("b/(1+d)^.75", b / std::pow(1 + d, .75)),
      V("b/(1+n+d)", b / (1 + n + d)),
      V("b/(1+n/2+d)", b / (1 + n / 2 + d)),
      V("b/(1+n/4+d)", b / (1 + n / 4 + d)),
      V("b/(1+2n+d)", b / (1 + 2 * n + d)),
      V("b/(1+d+d2/n)", b / (1 + d + d * d / (n + 1))),
      V("b/(1+d2/n)", b / (1 + d * d / (n + 1))),
      V("b/(1+d2/n2)", b / (1 + d * d / (n + 1) / (n + 1))),
      V("b^.5/(1+n+d)", std::sqrt(b) / (1 + n + d)),
      V("b*exp(-d/n)", b * std::exp(-d / (n + 1))),
      V("b*exp(-d/2n)", b * std::exp(-d / (2 * n + 1))),
  };
  return all;
}

// One policy over the cases of an order.
struct Tally {
  std::uint64_t fetched = 0;
  std::uint64_t least = 0;
  std::vector<double> ratios;  // of cases whose least is not 0
  std::uint64_t cases = 0;
  std::uint64_t best = 0;  // as good as the optimum

  void add(std::uint64_t of, std::uint64_t optimum) {
    fetched += of;
    least += optimum;
    ++cases;
    best += of == optimum ? 1 : 0;
    if (optimum > 0) ratios.push_back(static_cast<double>(of) / static_cast<double>(optimum));
  }
  double total() const { return static_cast<double>(fetched) / static_cast<double>(least); }
  void print(const char* order, const std::string& name) {
    std::sort(ratios.begin(), ratios.end());
    double mean = 0;
    for (const double ratio : ratios) mean += ratio / static_cast<double>(ratios.size());
    const auto at = [this](double part) {
      return ratios[static_cast<std::size_t>(part * static_cast<double>(ratios.size() - 1))];
    };
    std::printf("| %s | %s | %.3f | %.3f | %.2f | %.2f | %.2f | %.0f %% |\n", order, name.c_str(),
                total(), mean, at(0.5), at(0.95), at(1),
                100.0 * static_cast<double>(best) / static_cast<double>(cases));
  }
};

constexpr const char* kHead =
    "| restores | policy | bytes | mean | median | 95 %% | worst | best "
    "|\n|---|---|---|---|---|---|---|---|\n";

TEST(EvictionOptimum, SmallCachesFetchLittleMoreThanTheBestOfAllPlacements) {
  std::mt19937_64 random(test::test_seed());
  const std::uint64_t cases =
      std::getenv("HOLDFAST_EVICTION_CASES")
          ? std::strtoull(std::getenv("HOLDFAST_EVICTION_CASES"), nullptr, 0)
          : 60;
  std::printf(kHead);
  for (const Order order : simulation::kOrders) {
    std::map<std::string, Tally> tallies;
    for (std::uint64_t i = 0; i < cases; ++i) {
      const Trace trace = simulation::random_trace(random, 12, 9, 6, order);
      std::vector<std::uint64_t> fetched;
      for (const auto& [name, policy] : policies()) {
        fetched.push_back(simulation::Simulation(trace, policy).run());
      }
      const std::uint64_t bound = *std::min_element(fetched.begin(), fetched.end());
      const std::uint64_t least = simulation::least_fetched(trace, bound);
      ASSERT_LE(least, bound);
      ASSERT_GE(least, simulation::least_fetched_by_units(trace));
      for (std::size_t p = 0; p < fetched.size(); ++p) {
        tallies[policies()[p].name].add(fetched[p], least);
      }
    }
    for (const auto& [name, policy] : policies()) tallies[name].print(to_string(order), name);
  }
}

TEST(EvictionOptimum, LargeCachesFetchLittleMoreThanThoseWithoutFragments) {
  std::mt19937_64 random(test::test_seed());
  std::printf(kHead);
  for (const Order order : simulation::kOrders) {
    std::map<std::string, Tally> tallies;
    for (int i = 0; i < 10; ++i) {
      const Trace trace = simulation::random_trace(random, 4096, 384, 256, order);
      const std::uint64_t least = simulation::least_fetched_by_units(trace);
      for (const auto& [name, policy] : policies()) {
        tallies[name].add(simulation::Simulation(trace, policy).run(), least);
      }
    }
    for (const auto& [name, policy] : policies()) tallies[name].print(to_string(order), name);
  }
}

}  // namespace
}  // namespace holdfast::history
