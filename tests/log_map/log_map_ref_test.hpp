// Kernels that look keys up in a log map by a ref.
#pragma once

#include <cstddef>
#include <cstdint>

#include "holdfast/log_map_ref.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::test {

enum class Looking { alone, by_warp };

// Row i of `rows` and found[i]: of keys[i], as LogMap::find().
void look_up(Stream& stream, const LogMapRef& ref, Looking how, const std::uint64_t* keys,
             std::byte* rows, std::uint8_t* found, std::size_t count);

}  // namespace holdfast::test
