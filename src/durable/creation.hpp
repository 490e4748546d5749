// For structures whose creation goes on behind their durable objects: a host, device memory.
#pragma once

#include <exception>
#include <utility>

namespace holdfast {

// Does `rest`, of a creation whose durable objects are there. What it throws is thrown on, behind
// `take_back`, which removes them; where that fails, too, they stay, as behind a kill.
template <class Rest, class TakeBack>
auto finish_creation(Rest&& rest, TakeBack&& take_back) -> decltype(rest()) {
  try {
    return rest();
  } catch (...) {
    try {
      take_back();
    } catch (const std::exception&) {
    }
    throw;
  }
}

}  // namespace holdfast
