// Kernels that look keys up through a KvStoreRef.
#pragma once

#include <cstddef>
#include <cstdint>

#include "holdfast/kv_store.hpp"

namespace holdfast::test {

enum class Looking { alone, by_warp };

// A thread for each of the keys. found[i] is 0 or 1; values[i] is left as it is where a key is
// absent. Stream-ordered.
void look_up(Stream& stream, const KvStoreRef& ref, Looking how, const std::uint64_t* keys,
             std::uint64_t* values, std::uint8_t* found, std::size_t count);

// Looks a key up so often, in an index of fingerprints. *last: the last value that was found.
// Stream-ordered.
void launch_look_while_it_moves(Stream& stream, const detail::KvView& view, std::uint64_t key,
                                unsigned lookups, std::uint64_t* last, std::uint64_t* wrong);

}  // namespace holdfast::test
