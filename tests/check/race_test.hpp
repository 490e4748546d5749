// Small kernels that have one race, or none.
#pragma once

#include "holdfast/kernel.hpp"

namespace holdfast::test {

// In a block of 64 threads: each reads what the next one has written.
__global__ void neighbour(unsigned* out, bool synchronize);
// In a warp: the same, in shared memory.
__global__ void warp_neighbour(unsigned* out, bool synchronize);
__global__ void warp_halves(unsigned* out);
__global__ void dynamic_neighbour(unsigned* out);

__global__ void count_block(unsigned* count);
__global__ void count_device(unsigned* count);

// Block 0 writes data and then the flag that the last block waits for.
__global__ void pass_release_block(unsigned* data, unsigned* flag, unsigned* out);
__global__ void pass_release_device(unsigned* data, unsigned* flag, unsigned* out);
__global__ void pass_release_narrow_acquire(unsigned* data, unsigned* flag, unsigned* out);
enum class Fence { none, block, device, persist, order };
__global__ void pass_volatile(unsigned* data, volatile unsigned* flag, unsigned* out, Fence before,
                              Fence after);
__global__ void pass_volatile_twice(unsigned* data, volatile unsigned* flags, unsigned* out);
__global__ void pass_through_updates(unsigned* data, unsigned* flag, unsigned* out);
__global__ void pass_overwritten(unsigned* data, unsigned* flag, unsigned* out, bool by_releaser);
__global__ void pass_polled(unsigned* data, unsigned* flag, unsigned* out);

// The last block to come sums up what all have written.
__global__ void last_block(const unsigned* in, unsigned* sums, unsigned* count, unsigned* total,
                           bool fence_before, bool fence_after);
__global__ void reduce(const unsigned* in, unsigned* out);
__global__ void adjacent_bytes(unsigned char* bytes);
__global__ void overlapping_words(unsigned char* bytes);
__global__ void add_one_each(unsigned* words);
__global__ void all_read(const unsigned* word, unsigned* out);
__global__ void spin_lock(unsigned* lock, unsigned* sum, bool fence);
__global__ void same_value(unsigned* word);
// Block 0 releases all 8 bytes; block 1 does something strong.
enum class Mixed { whole, store_half, read_half, add_half };
__global__ void mixed_sizes(unsigned long long* word, Mixed kind);
// Of a word that is 0: a swap of equal values, one that fails, and two updates that change nothing.
__global__ void swaps(unsigned* word);
// Block 0 swaps `expected` for itself, block 1 reads.
__global__ void equal_update(unsigned* word, unsigned* out, unsigned expected);

void store_on_host(unsigned* word, unsigned value);
unsigned load_on_host(const unsigned* word);

}  // namespace holdfast::test
