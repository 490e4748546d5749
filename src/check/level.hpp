// A crash state that recovery is to face.
#pragma once

#include <cstddef>
#include <string>

#include "check/order.hpp"

namespace holdfast::check {

// That of the first order, and on top of it, what recovery's own writes left at a crash in the
// second. What comes behind `durable` is for the state's name alone.
struct Level {
  const Order* order = nullptr;
  const Bitset* durable = nullptr;
  std::size_t point = 0;                  // index into Order::points()
  const std::string* schedule = nullptr;  // of the recovery from there; null: not known yet
};

}  // namespace holdfast::check
