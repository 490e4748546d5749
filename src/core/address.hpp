// What a stream is told to copy or to fill is somewhere.
#pragma once

#include <cstddef>

#include "holdfast/error.hpp"

namespace holdfast::core {

// Throws invalid_argument where `bytes` of `what` are at null: a host that followed it would die.
inline void check_address(const void* address, std::size_t bytes, const char* what) {
  if (address != nullptr || bytes == 0) return;
  throw Error(Errc::invalid_argument, detail::concat(what, " of ", bytes,
                                                     " bytes is null: give the address of memory "
                                                     "that the host or the device can reach"));
}

}  // namespace holdfast::core
