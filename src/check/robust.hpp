// Whether what recovery read in a crash state could also have been left by a machine that persists
// every store as it becomes visible, in order. If not, recovery depends on an order that nothing
// gives: a bug that needs no verify() to be found.
//
// Source: PSan (PLDI '22) for the idea, robustness to strict persistency, on CPUs; here with the
// happens-before of docs/model.md: program order, synchronisation (whatever its scope), and kernels
// one after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "check/order.hpp"

namespace holdfast::check {

class Robustness {
 public:
  // `order`, and its trace, outlive it.
  explicit Robustness(const Order& order);

  // What is wrong with reading the cells `reads` in the state `durable` of `point`; empty: some
  // in-order crash of this execution, or of one that only differs in how unordered stores
  // interleave, leaves the same values. `name_of`: of an address.
  std::string violation(const Bitset& durable, const CrashPoint& point,
                        const std::vector<std::uint32_t>& reads,
                        const std::function<std::string(std::uint64_t)>& name_of) const;

 private:
  bool same_value(const Cell& cell, std::uint32_t a, std::uint32_t b) const;

  const Order& order_;
  std::vector<Bitset> before_;               // by write: what happens before it
  std::vector<std::uint32_t> acknowledged_;  // writes made before acknowledgement number i
};

}  // namespace holdfast::check
