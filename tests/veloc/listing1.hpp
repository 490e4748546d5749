// Score (HPDC '23), Listing 1: a forward pass of checkpoints of changing size, read back in
// reverse.
#pragma once

#include <cstdint>

namespace listing1 {

// Elements of a version: what a compressor leaves of a step.
constexpr std::uint32_t elements_of(int version) {
  return 1000 + static_cast<std::uint32_t>(version * 7919 % 3001);
}
inline constexpr std::uint32_t kMost = 4001;

// Runs the listing over `versions`. Returns how many elements came back wrong, or -1 if a call
// failed.
long long run(const char* config, int versions);

}  // namespace listing1
