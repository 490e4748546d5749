// Sets of small numbers: the writes of an execution.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace holdfast::check {

// Grows as members are added; what lies past its end is not in it.
class Bitset {
 public:
  bool test(std::size_t i) const {
    return i / 64 < words_.size() && (words_[i / 64] >> (i % 64) & 1) != 0;
  }
  void set(std::size_t i) {
    if (i / 64 >= words_.size()) words_.resize(i / 64 + 1);
    words_[i / 64] |= std::uint64_t{1} << (i % 64);
  }
  void reset(std::size_t i) {
    if (i / 64 < words_.size()) words_[i / 64] &= ~(std::uint64_t{1} << (i % 64));
  }
  Bitset& operator|=(const Bitset& other) {
    if (other.words_.size() > words_.size()) words_.resize(other.words_.size());
    for (std::size_t i = 0; i < other.words_.size(); ++i) words_[i] |= other.words_[i];
    return *this;
  }
  Bitset& operator&=(const Bitset& other) {
    if (words_.size() > other.words_.size()) words_.resize(other.words_.size());
    for (std::size_t i = 0; i < words_.size(); ++i) words_[i] &= other.words_[i];
    return *this;
  }
  Bitset& operator-=(const Bitset& other) {
    const std::size_t both = std::min(words_.size(), other.words_.size());
    for (std::size_t i = 0; i < both; ++i) words_[i] &= ~other.words_[i];
    return *this;
  }
  bool intersects(const Bitset& other) const {
    const std::size_t both = std::min(words_.size(), other.words_.size());
    for (std::size_t i = 0; i < both; ++i) {
      if ((words_[i] & other.words_[i]) != 0) return true;
    }
    return false;
  }
  bool contains(const Bitset& other) const {
    for (std::size_t i = 0; i < other.words_.size(); ++i) {
      const std::uint64_t here = i < words_.size() ? words_[i] : 0;
      if ((other.words_[i] & ~here) != 0) return false;
    }
    return true;
  }
  bool operator==(const Bitset& other) const { return contains(other) && other.contains(*this); }
  std::size_t count() const {
    std::size_t total = 0;
    for (const std::uint64_t word : words_) total += static_cast<std::size_t>(std::popcount(word));
    return total;
  }
  bool empty() const {
    for (const std::uint64_t word : words_) {
      if (word != 0) return false;
    }
    return true;
  }
  void clear() { words_.clear(); }

  // The first `count` numbers.
  static Bitset below(std::size_t count) {
    Bitset all;
    all.words_.assign((count + 63) / 64, ~std::uint64_t{0});
    if (count % 64 != 0) all.words_.back() >>= 64 - count % 64;
    return all;
  }
  // Calls visit(i) for every member, ascending.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (std::size_t i = 0; i < words_.size(); ++i) {
      for (std::uint64_t word = words_[i]; word != 0; word &= word - 1) {
        visit(i * 64 + static_cast<std::size_t>(std::countr_zero(word)));
      }
    }
  }
  // Of the members, whatever the capacity.
  std::uint64_t hash() const {
    std::uint64_t result = 0x9e3779b97f4a7c15u;
    std::size_t last = words_.size();
    while (last > 0 && words_[last - 1] == 0) --last;
    for (std::size_t i = 0; i < last; ++i) {
      result = (result ^ words_[i]) * 0xff51afd7ed558ccdu;
      result ^= result >> 32;
    }
    return result;
  }

 private:
  std::vector<std::uint64_t> words_;
};

}  // namespace holdfast::check
