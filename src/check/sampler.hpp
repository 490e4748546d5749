// The states that are tried where there are too many for all of them.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "check/explore.hpp"
#include "holdfast/check.hpp"

namespace holdfast::check {

// In this order, until the budget is spent: for pairs of persists that recovery reads, a smallest
// and a largest state with the one and without the other; states that differ from all and from
// nothing in up to two persists; random ones.
class Sampler {
 public:
  // `read`: by cell, whether recovery reads it.
  Sampler(Explorer& explorer, const Options& options, const std::vector<std::uint32_t>& read,
          std::function<bool()> out_of_budget);

  void run();
  std::uint64_t pairs() const { return pairs_; }
  std::uint64_t pairs_tried() const { return pairs_tried_; }

 private:
  struct Pair {
    std::uint32_t without = 0;
    std::uint32_t with = 0;
  };
  void try_pairs();
  bool try_pair(const Pair& pair);
  void try_deviations();
  void try_random();
  bool try_state(std::size_t point, const Bitset& durable);
  Bitset without(std::size_t point, std::uint32_t write) const;

  Explorer& explorer_;
  const Order& order_;
  const Options& options_;
  std::function<bool()> out_of_budget_;
  std::vector<std::uint32_t> writes_;  // that recovery reads
  std::uint64_t pairs_ = 0;
  std::uint64_t pairs_tried_ = 0;
};

}  // namespace holdfast::check
