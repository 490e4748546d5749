// Kernels that measure the recorder of the crash-state checker.
#pragma once

#include <cstdint>

#include "holdfast/kernel.hpp"

namespace holdfast::bench {

inline constexpr unsigned kCheckWords = 1 << 13;  // of the arrays

// Each thread loads and stores `count` words.
__global__ void copy_words(unsigned count, const std::uint64_t* in, std::uint64_t* out);
__global__ void store_and_persist(unsigned count, std::uint64_t* out);
// Each thread adds to one word `count` times, and stores what it found last to a word of its own.
__global__ void count_together(unsigned count, std::uint32_t* word, std::uint64_t* out);

}  // namespace holdfast::bench
