// Kernels of programs whose host code is not instrumented.
#pragma once

#include <cstdint>

#include "holdfast/kernel.hpp"

namespace holdfast::test {

struct Pair {
  static constexpr const char* kTypeName = "pair";
  alignas(64) std::uint64_t payload;
  alignas(64) std::uint64_t valid;
};

template <bool kFixed>
__global__ void publish(Pair* pair);
extern template __global__ void publish<false>(Pair*);
extern template __global__ void publish<true>(Pair*);

// A word of each thread, with nothing between them, and one behind them all.
__global__ void store_words(std::uint64_t* words);

}  // namespace holdfast::test
