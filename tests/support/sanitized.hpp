// Whether the address sanitizer looks on: searches then take ten times as long, and find what they
// find in other builds.
#pragma once

namespace holdfast::test {

#if defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// Of what is tried one after the other (bytes that flip, allocations that fail) every kEvery-th is.
inline constexpr unsigned kEvery = kSanitized ? 7 : 1;

}  // namespace holdfast::test
