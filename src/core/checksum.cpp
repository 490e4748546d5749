#include "core/checksum.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "holdfast/error.hpp"

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

PageHash::PageHash(const std::uint8_t* secret) : keyed_(true) {
  std::copy_n(secret, kSecretBytes, secret_.begin());
}

std::uint64_t PageHash::bytes(const void* data, std::size_t bytes) const noexcept {
  return keyed_ ? XXH3_64bits_withSecret(data, bytes, secret_.data(), kSecretBytes)
                : XXH3_64bits(data, bytes);
}

void random_bytes(void* data, std::size_t bytes) {
  auto* to = static_cast<std::byte*>(data);
  while (bytes > 0) {
    const ssize_t got = ::getrandom(to, bytes, 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      throw Error(Errc::io,
                  detail::concat("the system gives no random bytes: ", std::strerror(errno)));
    }
    to += got;
    bytes -= static_cast<std::size_t>(got);
  }
}

}  // namespace holdfast::core
