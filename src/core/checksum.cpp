#include "core/checksum.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/format.hpp"

namespace holdfast::core {

std::uint64_t hash_bytes(const void* data, std::size_t bytes) noexcept {
  return XXH3_64bits(data, bytes);
}

bool page_is_zero(const void* page) noexcept {
  const auto* words = static_cast<const std::uint64_t*>(page);
  // Most pages that are not zero say so in their first words.
  if ((words[0] | words[1] | words[2] | words[3]) != 0) return false;
  for (std::size_t i = 0; i < kPage / 8; i += 32) {
    std::uint64_t any = 0;
    for (std::size_t k = 0; k < 32; ++k) any |= words[i + k];
    if (any != 0) return false;
  }
  return true;
}

std::uint64_t page_hash(const void* page) noexcept { return XXH3_64bits(page, kPage); }

}  // namespace holdfast::core
