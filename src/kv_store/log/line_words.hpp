// How a block reads words of an array that may be across the link.
#pragma once

#include <cstdint>

#include "kv_store/log/batch.hpp"

namespace holdfast::kv::log {

// In shared memory. What a block's threads want, one word each, begins anywhere in a line: read as
// they have it, each warp would ask for a line more than its words take, and the link counts lines.
struct LineWords {
  static constexpr unsigned kLine = 128 / sizeof(std::uint64_t);
  std::uint64_t words[kBlock + kLine];

  // Loads words[number] of an array of `count` for each thread, with the others of its line.
  // Returns where the thread finds it, behind a barrier. What is not in the array is not loaded.
  // REQUIRES: all threads of a block of kBlock call; `number` is one more from thread to thread.
  __device__ unsigned load(const std::uint64_t* from, std::uint32_t number, std::uint32_t count) {
    const std::uint32_t first = number - threadIdx.x;
    const auto lead = static_cast<unsigned>(
        (reinterpret_cast<std::uintptr_t>(from) / sizeof(*from) + first) % kLine);
    for (unsigned i = threadIdx.x; i < kBlock + lead; i += kBlock) {
      const std::uint32_t word = first - lead + i;  // wraps in front of the array
      if (word < count) words[i] = from[word];
    }
    return lead + threadIdx.x;
  }
};

}  // namespace holdfast::kv::log
