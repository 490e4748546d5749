// Hashes of bytes and pages (XXH3, 64 bits).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/format.hpp"

namespace holdfast::core {

std::uint64_t hash_bytes(const void* data, std::size_t bytes) noexcept;

// REQUIRES: `page` is 8-byte aligned and a page long.
bool page_is_zero(const void* page) noexcept;

// Hashes of pages and tables, by a secret of the image's: equal hashes stand for equal pages, so no
// one who chooses what pages hold may be able to make two with one hash.
class PageHash {
 public:
  using Secret = std::array<std::uint8_t, kSecretBytes>;
  PageHash() = default;  // as version 1 of the format has it: no secret
  explicit PageHash(const std::uint8_t* secret);

  std::uint64_t operator()(const void* page) const noexcept { return bytes(page, kPage); }
  std::uint64_t bytes(const void* data, std::size_t bytes) const noexcept;

 private:
  bool keyed_ = false;
  Secret secret_{};
};

// Fills memory with random bytes from the system. Throws io.
void random_bytes(void* data, std::size_t bytes);

}  // namespace holdfast::core
