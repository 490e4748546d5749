#include "gpkvs/operations.hpp"

#include <algorithm>
#include <cmath>

#include "gpkvs/engine.hpp"

namespace gpkvs {
namespace {

constexpr std::uint64_t kWorthThreads = 1'000'000;  // operations

std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return x ^ x >> 31;
}

// The host's own reading of the hash by which the table places keys.
std::uint64_t table_hash(std::uint64_t key) {
  key = (key ^ key >> 33) * 0xff51afd7ed558ccdull;
  key = (key ^ key >> 33) * 0xc4ceb9fe1a85ec53ull;
  return key ^ key >> 33;
}

// Ranks 1 to n, k with a probability in proportion to k^-0.99. Source: W. Hormann, G. Derflinger,
// "Rejection-inversion to generate variates from monotone discrete distributions" (1996).
class Zipf {
 public:
  explicit Zipf(std::uint64_t n)
      : n_(static_cast<double>(n)),
        first_(integral(1.5) - 1),
        last_(integral(n_ + 0.5)),
        shift_(2 - inverse(integral(2.5) - std::pow(2, -kExponent))) {}

  std::uint64_t rank(std::uint64_t random) const {
    for (;; random = mix(random)) {
      const double uniform = static_cast<double>(random >> 11) * 0x1p-53;
      const double u = last_ + uniform * (first_ - last_);
      const double x = inverse(u);
      const double k = std::clamp(std::floor(x + 0.5), 1.0, n_);
      if (k - x <= shift_ || u >= integral(k + 0.5) - std::pow(k, -kExponent)) {
        return static_cast<std::uint64_t>(k);
      }
    }
  }

 private:
  static constexpr double kExponent = 0.99;
  static double integral(double x) { return (std::pow(x, 1 - kExponent) - 1) / (1 - kExponent); }
  static double inverse(double y) { return std::pow(1 + y * (1 - kExponent), 1 / (1 - kExponent)); }

  double n_, first_, last_, shift_;
};

// Keys in the order of a random walk, those that their bucket has no way for left out.
std::vector<std::uint64_t> make_keys(const OperationsShape& shape) {
  std::vector<std::uint8_t> taken(shape.buckets);
  std::vector<std::uint64_t> keys;
  keys.reserve(shape.keys);
  const std::uint64_t start = mix(shape.seed) << 20;
  for (std::uint64_t i = 0; keys.size() < shape.keys; ++i) {
    const std::uint64_t key = mix(start + i);  // mix is one to one: keys are distinct
    std::uint8_t& ways = taken[table_hash(key) & (shape.buckets - 1)];
    if (key == holdfast::KvStore::kReservedKey || ways == kWays) continue;
    ++ways;
    keys.push_back(key);
  }
  return keys;
}

// Fills `to` with keys; `stream` tells GETs from SETs.
void draw(const Operations& operations, std::uint64_t stream,
          holdfast::PinnedBuffer<std::uint64_t>& to) {
  const std::uint64_t count = to.size();
  const std::uint64_t start = mix(operations.shape.seed * 4 + stream);
  const Zipf zipf(operations.keys.size());
#pragma omp parallel for if (count > kWorthThreads)
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t random = mix(start + i);
    const std::uint64_t place =
        operations.shape.zipf ? zipf.rank(random) - 1 : random % operations.keys.size();
    to[i] = operations.keys[place];
  }
}

}  // namespace

Operations::Operations(const OperationsShape& wanted)
    : shape(wanted),
      keys(make_keys(wanted)),
      gets(wanted.steps * wanted.gets),
      sets(wanted.steps * wanted.sets),
      values(wanted.steps * wanted.sets) {
  draw(*this, 0, gets);
  draw(*this, 1, sets);
  for (std::uint64_t i = 0; i < values.size(); ++i) values[i] = mix(shape.seed + i * 3);
  if (!shape.load) return;
  loaded.resize(keys.size());
  for (std::uint64_t i = 0; i < keys.size(); ++i) loaded[i] = mix(keys[i] + shape.seed);
}

}  // namespace gpkvs
