// What the host's tests have compiled for kernels: predicates and initialisers of a map.
#pragma once

#include <cstdint>

#include "holdfast/hash_map.hpp"

namespace holdfast::test {

using OperationsMap = HashMap<std::uint64_t, MapConfig<8>>;

// Exports pairs whose key has the remainder by 3, and whose value's first 4 bytes are a number of
// at least `least`.
std::uint64_t export_some(const OperationsMap& map, std::uint64_t first, std::uint64_t slots,
                          std::uint64_t remainder, std::uint32_t least, std::uint64_t* keys,
                          void* values);

// The value of a key that is new: each of its words is this of the key and the word's number.
inline std::uint32_t initial_word(std::uint64_t key, std::uint32_t seed, std::uint32_t word) {
  return static_cast<std::uint32_t>(key) * 2654435761u + seed + word;
}
MapResult find_or_initialise(OperationsMap& map, const std::uint64_t* keys, std::uint32_t seed,
                             void* out, std::size_t count, MapStatus* status);

}  // namespace holdfast::test
