// Which key an operation takes: the distributions of the map's benchmarks. A draw is a function of
// random words that the caller brings, so that the draw of an operation depends on its number
// alone.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define MAPS_BOTH_SIDES __host__ __device__
#else
#define MAPS_BOTH_SIDES
#endif

namespace maps {

// A permutation of the 64-bit words (the finalizer of splitmix64; Steele, Lea, Flood: "Fast
// splittable pseudorandom number generators", OOPSLA '14).
MAPS_BOTH_SIDES constexpr std::uint64_t scrambled(std::uint64_t word) {
  word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
  word = (word ^ (word >> 27)) * 0x94d049bb133111ebull;
  return word ^ (word >> 31);
}

// splitmix64: the words of one operation.
class Random {
 public:
  Random(std::uint64_t seed, std::uint64_t number)
      : state_(scrambled(seed + 0x9e3779b97f4a7c15ull) ^ scrambled(number)) {}
  std::uint64_t word() { return scrambled(state_ += 0x9e3779b97f4a7c15ull); }
  // In [0, 1).
  double real() { return static_cast<double>(word() >> 11) * 0x1p-53; }
  // In [0, below). Its bias, below / 2^64, is no one's concern here.
  std::uint64_t whole(std::uint64_t below) {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(word()) * below) >> 64);
  }

 private:
  std::uint64_t state_;
};

// The sum of k^-theta for k from 1 to `items`, without adding them all up.
double zeta(std::uint64_t items, double theta);

// Zipf's distribution itself: rank r (0 is the most frequent) in proportion to (r + 1)^-theta. By
// rejection-inversion, which is exact and needs no table (Hörmann, Derflinger: "Rejection-inversion
// to generate variates from monotone discrete distributions", 1996).
class Zipf {
 public:
  Zipf(std::uint64_t items, double theta);  // REQUIRES: items > 0, theta >= 0
  std::uint64_t draw(Random& random) const;
  std::uint64_t items() const { return items_; }
  double theta() const { return theta_; }

 private:
  double integral(double x) const;  // of x^-theta, from 1
  double inverse(double area) const;
  std::uint64_t items_;
  double theta_;
  double first_, last_, sure_;
};

// What YCSB calls "zipfian", as its ScrambledZipfianGenerator draws it: a rank out of 10^10 + 1 by
// the approximation of Gray et al. ("Quickly generating billion-record synthetic databases", 1994)
// with a constant for the sum, of which the FNV-1a hash, modulo the items, is the item. It is less
// skewed than Zipf's distribution over as many items, since an item stands for many ranks.
class ScrambledZipf {
 public:
  explicit ScrambledZipf(std::uint64_t items);
  std::uint64_t draw(Random& random) const { return item(rank(random.real())); }
  std::uint64_t rank(double uniform) const;  // of a uniform draw in [0, 1)
  std::uint64_t item(std::uint64_t rank) const;

  static constexpr std::uint64_t kRanks = 10'000'000'001ull;
  static constexpr double kTheta = 0.99;
  static constexpr double kZeta = 26.46902820178302;

 private:
  std::uint64_t items_;
  double eta_;
};

// YCSB's hash of a number: FNV-1a over its eight bytes, lowest first, of whose result Java takes
// the magnitude.
std::uint64_t ycsb_hash(std::uint64_t number);

}  // namespace maps
