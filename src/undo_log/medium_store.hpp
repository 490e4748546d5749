// How the host stores what must be durable in a region: headers.
#pragma once

#include <cstddef>

#include "holdfast/region.hpp"
#include "holdfast/stream.hpp"

namespace holdfast {

// Stores `bytes` to `to`, an address in the region, by a kernel that persists, and waits: a copy
// would leave the order to the engine. Both are multiples of 8.
void store_durably(Region& region, Stream& stream, void* to, const void* from, std::size_t bytes);

// Copies out of the region, and waits.
void read_back(Stream& stream, void* to, const void* from, std::size_t bytes);

// Stores an object's first bytes, those of a struct that begins with its magic number: all but
// that, and then that. A kill leaves a magic of 0, or all of it. REQUIRES: the object is new.
template <class Header>
void store_header(Region& region, Stream& stream, void* object, const Header& header) {
  constexpr std::size_t kMagicBytes = 8;
  auto* const to = static_cast<std::byte*>(object);
  const auto* const from = reinterpret_cast<const std::byte*>(&header);
  store_durably(region, stream, to + kMagicBytes, from + kMagicBytes, sizeof(header) - kMagicBytes);
  store_durably(region, stream, to, from, kMagicBytes);
}

}  // namespace holdfast
