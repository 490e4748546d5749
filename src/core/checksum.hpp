// Hashes of bytes and pages (XXH3, 64 bits).
#pragma once

#include <cstddef>
#include <cstdint>

namespace holdfast::core {

std::uint64_t hash_bytes(const void* data, std::size_t bytes) noexcept;

// REQUIRES: `page` is 8-byte aligned and a page long.
bool page_is_zero(const void* page) noexcept;

std::uint64_t page_hash(const void* page) noexcept;

}  // namespace holdfast::core
