#include "sets.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "holdfast/error.hpp"

namespace power {
namespace {

using holdfast::detail::concat;

constexpr std::uint64_t kFirst = 0xbf58476d1ce4e5b9u, kSecond = 0x94d049bb133111ebu;
// Of the numbers of SETs, so that they draw other words than the keys are.
constexpr std::uint64_t kDraw = 0x9e3779b97f4a7c15u;

// The inverse of an odd factor modulo 2^64, by Newton's iteration.
constexpr std::uint64_t inverse(std::uint64_t factor) {
  std::uint64_t result = factor;
  for (int i = 0; i < 6; ++i) result *= 2 - factor * result;
  return result;
}
static_assert(kFirst * inverse(kFirst) == 1 && kSecond * inverse(kSecond) == 1);

// The inverse of x ^ (x >> shift).
std::uint64_t unshifted(std::uint64_t word, unsigned shift) {
  std::uint64_t result = word;
  for (unsigned done = shift; done < 64; done += shift) result = word ^ (result >> shift);
  return result;
}

// The bucket of a key as docs/format.md has it, so that what eviction explains is known without
// asking a store.
std::uint64_t bucket_of(std::uint64_t key, std::uint64_t mask) {
  key ^= key >> 33;
  key *= 0xff51afd7ed558ccdu;
  key ^= key >> 33;
  key *= 0xc4ceb9fe1a85ec53u;
  return (key ^ key >> 33) & mask;
}

constexpr std::uint64_t kWays = 8;

}  // namespace

std::uint64_t scrambled(std::uint64_t word) {
  word = (word ^ (word >> 30)) * kFirst;
  word = (word ^ (word >> 27)) * kSecond;
  return word ^ (word >> 31);
}

std::uint64_t unscrambled(std::uint64_t word) {
  word = unshifted(word, 31) * inverse(kSecond);
  word = unshifted(word, 27) * inverse(kFirst);
  return unshifted(word, 30);
}

std::uint64_t Shape::key(std::uint64_t number) const {
  return scrambled(scrambled((number + 1) * kDraw) % keys);
}

Inputs::Inputs(const Shape& shape, unsigned most)
    : shape_(shape),
      most_(most),
      host_keys_(std::size_t{most} * shape.batch),
      host_values_(host_keys_.size()),
      keys_(host_keys_.size()),
      values_(host_keys_.size()) {}

void Inputs::prepare(std::uint64_t first, unsigned count) {
  if (count > most_) throw std::invalid_argument("more batches than there is room for");
  if (first == first_ && count == count_) return;
  const std::size_t sets = std::size_t{count} * shape_.batch;
  for (std::size_t i = 0; i < sets; ++i) {
    const std::uint64_t number = first * shape_.batch + i;
    host_keys_[i] = shape_.key(number);
    host_values_[i] = Shape::value(number);
  }
  holdfast::copy_async(stream_, keys_.data(), host_keys_.data(), sets * sizeof(std::uint64_t));
  holdfast::copy_async(stream_, values_.data(), host_values_.data(), sets * sizeof(std::uint64_t));
  stream_.synchronize();
  first_ = first;
  count_ = count;
}

Oracle::Oracle(const Shape& shape) : shape_(shape), value_(shape.keys) {}

void Oracle::advance(std::uint64_t end) {
  for (std::uint64_t number = done_ * shape_.batch; number < end * shape_.batch; ++number) {
    std::uint64_t& value = value_[unscrambled(shape_.key(number))];
    distinct_ += value == 0 ? 1 : 0;
    value = Shape::value(number);
  }
  done_ = std::max(done_, end);
}

Comparison::Comparison(const Oracle& oracle, std::string system)
    : oracle_(oracle), system_(std::move(system)), seen_(oracle.shape_.keys) {}

void Comparison::fail(const std::string& what) const {
  throw std::runtime_error(concat(system_, ": ", what, ": its time does not count"));
}

void Comparison::pair(std::uint64_t key, std::uint64_t value) {
  const std::uint64_t number = unscrambled(key);
  if (number >= oracle_.shape_.keys || oracle_.value_[number] == 0) {
    fail(concat("it holds the key ", key, ", which was never set"));
  }
  if (oracle_.value_[number] != value) {
    fail(concat("key ", key, " has the value ", value, ", and the last that was set is ",
                oracle_.value_[number]));
  }
  if (seen_[number]) fail(concat("it holds the key ", key, " twice"));
  seen_[number] = true;
  ++pairs_;
}

std::uint64_t Comparison::finish(Losses losses) const {
  if (pairs_ == oracle_.distinct_) return pairs_;
  if (losses == Losses::none) {
    fail(concat("it holds ", pairs_, " of ", oracle_.distinct_, " keys that were set"));
  }
  check_buckets();
  return pairs_;
}

void Comparison::check_buckets() const {
  const std::uint64_t buckets = oracle_.shape_.capacity() / kWays;
  std::vector<std::array<std::uint32_t, 2>> counts(buckets);  // of keys: set, and there
  for (std::uint64_t number = 0; number < oracle_.value_.size(); ++number) {
    if (oracle_.value_[number] == 0) continue;
    auto& count = counts[bucket_of(scrambled(number), buckets - 1)];
    ++count[0];
    count[1] += seen_[number] ? 1 : 0;
  }
  for (std::uint64_t bucket = 0; bucket < buckets; ++bucket) {
    const auto [set, there] = counts[bucket];
    if (there == std::min<std::uint64_t>(set, kWays)) continue;
    fail(concat("bucket ", bucket, " holds ", there, " of the ", set, " keys that were set in it"));
  }
}

}  // namespace power
