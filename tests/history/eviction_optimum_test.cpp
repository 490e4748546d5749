// How far gap-aware eviction is from the best choice, and what others would fetch: printed, and
// bounds asserted. docs/history-eviction.md has the figures.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "history/cache_simulation.hpp"
#include "support/scratch.hpp"

namespace holdfast::history {
namespace {

using simulation::Evicted;
using simulation::Order;
using simulation::Trace;

struct Rival {
  std::string name;
  simulation::Policy policy;
  bool hinted = true;
};

// Windows compared by a sum over what is lost; what is left goes behind the new checkpoint.
Rival least_sum(const std::string& name, double (*loss)(double bytes, double distance)) {
  return {name + ", behind",
          simulation::least_key([loss](const std::vector<Evicted>& lost, std::uint64_t window) {
            double sum = 0;
            for (const Evicted& one : lost) {
              sum += loss(static_cast<double>(one.bytes), static_cast<double>(one.distance));
            }
            return std::vector{sum, static_cast<double>(window)};
          })};
}

std::vector<double> farthest_nearest(const std::vector<Evicted>& lost, std::uint64_t window) {
  double nearest = HUGE_VAL;
  for (const Evicted& one : lost) nearest = std::min(nearest, static_cast<double>(one.distance));
  return {-nearest, static_cast<double>(window)};
}

// Ours first, then those that others have, then other ways to compare windows. The first of these
// is ours but for where it puts what is left.
const std::vector<Rival>& rivals() {
  static const std::vector<Rival> all{
      {"gap-aware", simulation::gap_aware()},
      {"gap-aware, no hints", simulation::gap_aware(), false},
      {"as printed", simulation::as_printed()},
      {"LRU, first fit", simulation::lru_first_fit()},
      least_sum("bytes / (1 + d)", [](double bytes, double d) { return bytes / (1 + d); }),
      least_sum("bytes / sqrt(1 + d)",
                [](double bytes, double d) { return bytes / std::sqrt(1 + d); }),
      least_sum("bytes", [](double bytes, double) { return bytes; }),
      least_sum("1 / (1 + d)", [](double, double d) { return 1 / (1 + d); }),
      {"farthest nearest, behind", simulation::least_key(farthest_nearest)},
  };
  return all;
}

constexpr std::size_t kOurs = 0;
constexpr std::size_t kPrinted = 2;
constexpr std::size_t kLru = 3;

// What each rival fetches.
std::vector<std::uint64_t> fetched_by_all(Trace trace) {
  std::vector<std::uint64_t> fetched;
  for (const Rival& rival : rivals()) {
    trace.hinted = rival.hinted;
    fetched.push_back(simulation::Simulation(trace, rival.policy).run());
  }
  return fetched;
}

// One rival over the cases of an order, beside the least that can be fetched.
struct Tally {
  std::uint64_t fetched = 0;
  std::uint64_t least = 0;
  std::uint64_t cases = 0;
  std::uint64_t best = 0;
  std::vector<double> ratios;  // of cases whose least is not 0

  void add(std::uint64_t of, std::uint64_t optimum) {
    fetched += of;
    least += optimum;
    ++cases;
    best += of == optimum ? 1 : 0;
    if (optimum > 0) ratios.push_back(static_cast<double>(of) / static_cast<double>(optimum));
  }
  double ratio() const { return static_cast<double>(fetched) / static_cast<double>(least); }

  void print(Order order, const std::string& name) {
    std::sort(ratios.begin(), ratios.end());
    const auto at = [this](double part) {
      return ratios.empty()
                 ? 1.0
                 : ratios[static_cast<std::size_t>(part * static_cast<double>(ratios.size() - 1))];
    };
    std::printf("| %s | %s | %.3f | %.2f | %.2f | %.2f | %.0f %% |\n", to_string(order),
                name.c_str(), ratio(), at(0.5), at(0.95), at(1),
                100.0 * static_cast<double>(best) / static_cast<double>(cases));
    std::fflush(stdout);
  }
};

void print_head() {
  std::printf("| restores | policy | bytes / least | median | 95 %% | worst | least reached |\n");
  std::printf("|---|---|---|---|---|---|---|\n");
}

void print(Order order, std::vector<Tally>& tallies) {
  for (std::size_t i = 0; i < tallies.size(); ++i) tallies[i].print(order, rivals()[i].name);
}

// Cases for each order; the documented figures are of 300.
std::uint64_t cases() {
  const char* const given = std::getenv("HOLDFAST_TEST_CASES");
  return given ? std::max<std::uint64_t>(1, std::strtoull(given, nullptr, 0)) : 12;
}

// Nine checkpoints of 1 to 6 units, of which a cache of 12 holds three or four. It holds half of
// them at most: what fits more easily has far more placements, and little to be chosen.
Trace random_small_trace(std::mt19937_64& random, Order order) {
  while (true) {
    Trace trace = simulation::random_trace(random, 12, 9, 6, order);
    const auto bytes = std::accumulate(trace.bytes.begin(), trace.bytes.end(), std::uint64_t{0});
    if (bytes >= 2 * trace.capacity) return trace;
  }
}

TEST(EvictionOptimum, SmallCachesComeNearTheBestOfAllPlacements) {
  std::mt19937_64 random(test::test_seed());
  print_head();
  for (const Order order : simulation::kOrders) {
    std::vector<Tally> tallies(rivals().size());
    for (std::uint64_t i = 0; i < cases(); ++i) {
      const Trace trace = random_small_trace(random, order);
      const std::vector<std::uint64_t> fetched = fetched_by_all(trace);
      const std::uint64_t bound = *std::min_element(fetched.begin(), fetched.end());
      const std::uint64_t least = simulation::least_fetched(trace, bound);
      ASSERT_LE(least, bound) << "not the best of all";
      ASSERT_GE(least, simulation::least_fetched_by_units(trace)) << "less than is possible";
      for (std::size_t p = 0; p < fetched.size(); ++p) tallies[p].add(fetched[p], least);
    }
    print(order, tallies);
    EXPECT_LT(tallies[kOurs].ratio(), 1.25) << to_string(order);
  }
}

// The benchmark's 384 checkpoints, of 1 to 256 units, of which a cache of 4,096 holds 32. All
// placements are too many to try: the bound is what a cache without fragments fetches.
TEST(EvictionOptimum, LargeCachesComeNearThoseWithoutFragments) {
  std::mt19937_64 random(test::test_seed());
  print_head();
  for (const Order order : simulation::kOrders) {
    std::vector<Tally> tallies(rivals().size());
    for (int i = 0; i < 10; ++i) {
      const Trace trace = simulation::random_trace(random, 4096, 384, 256, order);
      const std::uint64_t least = simulation::least_fetched_by_units(trace);
      const std::vector<std::uint64_t> fetched = fetched_by_all(trace);
      for (std::size_t p = 0; p < fetched.size(); ++p) tallies[p].add(fetched[p], least);
      EXPECT_LT(static_cast<double>(fetched[kOurs]), 1.02 * static_cast<double>(least));
      if (order == Order::irregular) {
        EXPECT_LT(fetched[kOurs], fetched[kPrinted]);
        EXPECT_LT(fetched[kOurs], fetched[kLru]);
      }
    }
    print(order, tallies);
  }
}

}  // namespace
}  // namespace holdfast::history
