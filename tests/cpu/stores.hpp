// Kernels whose stores an optimiser would like to make fewer, other or later ones: each kind that
// g++ -O3 knows.
#pragma once

#include <cstdint>

#include "holdfast/kernel.hpp"

namespace holdfast::test {

struct Counted {
  std::uint64_t count;
  std::uint64_t more;
};
struct Small {
  std::uint32_t a, b;
};
struct Wide {
  std::uint64_t words[8];
};

// Stores to *count every turn, and it is known that no other store may change it.
__global__ void count_every_turn(Counted* __restrict__ head, std::uint64_t* __restrict__ records,
                                 unsigned n);
// The same where only the types say so.
__global__ void count_beside_floats(std::uint32_t* count, float* records, unsigned n);
// The same value every turn, to the same place.
__global__ void same_every_turn(std::uint64_t* place, std::uint64_t* records, unsigned n);
// Overwritten at once, and after another store.
__global__ void overwritten(std::uint64_t* place, std::uint64_t* other);
// What is there already.
__global__ void written_back(std::uint64_t* place);
__global__ void written_again(std::uint64_t* place, std::uint64_t* other);
// Before a branch that overwrites it.
__global__ void overwritten_if(std::uint64_t* place, unsigned yes);
// The same store at the end of both branches, and different values.
__global__ void both_branches(std::uint64_t* place, std::uint64_t* other, unsigned yes);
__global__ void either_value(std::uint64_t* place, unsigned yes);
// Only if: an unconditional store of the old value would be one too many.
__global__ void only_if(std::uint64_t* place, std::uint64_t value, unsigned yes);
// Neighbours, in a row and in a loop.
__global__ void neighbours(std::uint16_t* row);
__global__ void bytes_in_turn(std::uint8_t* row);
__global__ void cleared_in_turn(std::uint32_t* row, unsigned n);
__global__ void copied_in_turn(std::uint64_t* __restrict__ to,
                               const std::uint64_t* __restrict__ from, unsigned n);
// A struct made in place: its members, one by one.
__global__ void small_struct(Small* to, unsigned a, unsigned b);
// A whole that is cleared, and a word of it stored: the clearing stays whole.
__global__ void cleared_then_stored(Wide* to);
// 16 bytes, which a GPU may store at once: taken for four stores, in no order.
__global__ void one_vector(uint4* to);

}  // namespace holdfast::test
