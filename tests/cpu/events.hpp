// Small kernels whose every event is known.
#pragma once

#include <cstdint>

#include "holdfast/kernel.hpp"

namespace holdfast::test {

__global__ void load_add_store(const unsigned* in, unsigned* out);
__global__ void all_operations(unsigned* words, std::uint64_t* flag);
__global__ void through_shared(unsigned* out);
__global__ void local_only(unsigned* out);
__global__ void with_barriers(unsigned* out);

struct Pair {
  std::uint64_t a, b;
};
struct ByValue {
  unsigned words[6];
};
__global__ void by_value(ByValue arguments, unsigned* out);
// Structs that calls return into memory and take from memory.
__global__ void struct_calls(const Pair* in, Pair* out, uint4* vectors);

// An inline function that the host uses too: the linker must not merge the two.
inline unsigned shared_helper(const unsigned* words, unsigned count) {
  unsigned sum = 0;
  for (unsigned i = 0; i < count; ++i) sum += words[i] * (sum + 3);
  return sum;
}
__global__ void uses_shared_helper(const unsigned* words, unsigned count, unsigned* out);

}  // namespace holdfast::test
