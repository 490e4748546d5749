// From a failing crash state to its cause: the smallest such state, and the two persists whose
// order was missing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "check/order.hpp"

namespace holdfast::check {

struct FailingState {
  const Order* order = nullptr;
  std::size_t point = 0;  // index into Order::points()
  Bitset durable;
};

struct Cause {
  CauseKind kind = CauseKind::missing_order;
  Bitset smallest;                    // the failing state, made small; legal at the same point
  std::optional<std::uint32_t> lost;  // writes
  std::optional<std::uint32_t> kept;
  std::optional<std::uint32_t> fix;  // op: the release, acquire, fence or barrier to change
};

// Whether recovery fails on a legal state of the failing state's point.
using Fails = std::function<bool(const Bitset& durable)>;

// Asks `fails` about a number of states that grows with the state's size times its logarithm.
// `nested`: the state is one that recovery itself left.
Cause find_cause(const FailingState& state, const OrderOptions& options, bool nested,
                 const Fails& fails);

}  // namespace holdfast::check
