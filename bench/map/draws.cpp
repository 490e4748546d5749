#include "draws.hpp"

#include <algorithm>
#include <cmath>

namespace maps {

double zeta(std::uint64_t items, double theta) {
  constexpr std::uint64_t kAdded = 1000;
  double sum = 0;
  for (std::uint64_t k = std::min(items, kAdded); k >= 1; --k) {
    sum += std::pow(static_cast<double>(k), -theta);
  }
  if (items <= kAdded) return sum;
  // Euler and Maclaurin's formula for the rest, to its first derivative.
  const double from = static_cast<double>(kAdded), to = static_cast<double>(items);
  const double area = theta == 1
                          ? std::log(to / from)
                          : (std::pow(to, 1 - theta) - std::pow(from, 1 - theta)) / (1 - theta);
  return sum + area + (std::pow(to, -theta) - std::pow(from, -theta)) / 2 -
         theta * (std::pow(to, -theta - 1) - std::pow(from, -theta - 1)) / 12;
}

Zipf::Zipf(std::uint64_t items, double theta)
    : items_(items),
      theta_(theta),
      first_(integral(1.5) - 1),
      last_(integral(static_cast<double>(items) + 0.5)),
      sure_(2 - inverse(integral(2.5) - std::pow(2, -theta))) {}

double Zipf::integral(double x) const {
  // (x^(1 - theta) - 1) / (1 - theta), also where theta is 1 or nearly so.
  const double log = std::log(x), power = (1 - theta_) * log;
  return std::abs(power) < 1e-8 ? log * (1 + power / 2) : std::expm1(power) / (1 - theta_);
}

double Zipf::inverse(double area) const {
  const double power = std::max((1 - theta_) * area, -1.0);
  return std::exp(std::abs(power) < 1e-8 ? area * (1 - power / 2)
                                         : std::log1p(power) / (1 - theta_));
}

std::uint64_t Zipf::draw(Random& random) const {
  for (;;) {
    const double area = last_ + random.real() * (first_ - last_);
    const double x = inverse(area);
    const double k = std::clamp(std::floor(x + 0.5), 1.0, static_cast<double>(items_));
    if (k - x <= sure_ || area >= integral(k + 0.5) - std::pow(k, -theta_)) {
      return static_cast<std::uint64_t>(k) - 1;
    }
  }
}

ScrambledZipf::ScrambledZipf(std::uint64_t items)
    : items_(items),
      eta_((1 - std::pow(2.0 / static_cast<double>(kRanks), 1 - kTheta)) /
           (1 - (1 + std::pow(0.5, kTheta)) / kZeta)) {}

std::uint64_t ScrambledZipf::rank(double uniform) const {
  const double mass = uniform * kZeta;
  if (mass < 1) return 0;
  if (mass < 1 + std::pow(0.5, kTheta)) return 1;
  return static_cast<std::uint64_t>(static_cast<double>(kRanks) *
                                    std::pow(eta_ * uniform - eta_ + 1, 1 / (1 - kTheta)));
}

std::uint64_t ScrambledZipf::item(std::uint64_t rank) const { return ycsb_hash(rank) % items_; }

std::uint64_t ycsb_hash(std::uint64_t number) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (int byte = 0; byte < 8; ++byte, number >>= 8) {
    hash = (hash ^ (number & 0xff)) * 1099511628211ull;
  }
  return hash >> 63 != 0 ? 0 - hash : hash;
}

}  // namespace maps
