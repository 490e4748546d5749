// Whether the address sanitizer looks on: searches then take ten times as long, and find what they
// find in other builds.
#pragma once

namespace holdfast::test {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace holdfast::test
