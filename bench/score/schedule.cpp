#include "schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace score {

namespace {

constexpr std::uint64_t kUnit = 512;
constexpr double kUniformGb = 48, kLeastGb = 38, kMostGb = 50;

// In [0, 1).
double unit(std::uint64_t random) { return static_cast<double>(random >> 11) * 0x1p-53; }

}  // namespace

const char* to_string(Sizes sizes) { return sizes == Sizes::uniform ? "uniform" : "variable"; }

const char* to_string(Order order) {
  switch (order) {
    case Order::sequential:
      return "sequential";
    case Order::reverse:
      return "reverse";
    case Order::irregular:
      return "irregular";
  }
  return "unknown";
}

const char* to_string(Hints hints) {
  switch (hints) {
    case Hints::none:
      return "none";
    case Hints::single:
      return "single";
    case Hints::all:
      return "all";
  }
  return "unknown";
}

// SplitMix64's finalizer, once for each number.
std::uint64_t mix(std::uint64_t seed, std::uint64_t rank, std::uint64_t i) {
  std::uint64_t x = 0;
  for (const std::uint64_t number : {seed, rank, i}) {
    x += number + 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    x ^= x >> 31;
  }
  return x;
}

std::vector<std::uint64_t> snapshot_bytes(Sizes sizes, std::uint64_t snapshots, std::uint64_t mean,
                                          std::uint64_t seed, std::uint64_t rank) {
  const auto whole = [](double bytes) {
    return std::max<std::uint64_t>(static_cast<std::uint64_t>(bytes / kUnit) * kUnit, kUnit);
  };
  if (sizes == Sizes::uniform) {
    return std::vector<std::uint64_t>(snapshots, whole(static_cast<double>(mean)));
  }
  std::vector<double> weights(snapshots);
  for (std::uint64_t i = 0; i < snapshots; ++i) {
    const double x = static_cast<double>(i) / static_cast<double>(snapshots);
    weights[i] = (0.08 + 0.92 * (1 - std::exp(-6 * x))) * (0.7 + 0.6 * unit(mix(seed, rank, i)));
  }
  const double gb = kLeastGb + (kMostGb - kLeastGb) * unit(mix(seed, rank, snapshots));
  const double shot = static_cast<double>(mean) * static_cast<double>(snapshots) * gb / kUniformGb;
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::uint64_t> bytes(snapshots);
  for (std::uint64_t i = 0; i < snapshots; ++i) bytes[i] = whole(shot * weights[i] / sum);
  return bytes;
}

std::vector<std::uint64_t> restore_order(Order order, std::uint64_t snapshots, std::uint64_t seed) {
  std::vector<std::uint64_t> steps(snapshots);
  std::iota(steps.begin(), steps.end(), std::uint64_t{0});
  if (order == Order::reverse) std::reverse(steps.begin(), steps.end());
  if (order == Order::irregular) {
    for (std::uint64_t i = snapshots; i > 1; --i)
      std::swap(steps[i - 1], steps[mix(seed, 0, i) % i]);
  }
  return steps;
}

}  // namespace score
