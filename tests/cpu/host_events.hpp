// Host functions of a kernel file, whose accesses a HostObserver makes visible.
#pragma once

#include <atomic>
#include <cstddef>

#include "holdfast/kernel.hpp"

namespace holdfast::test {

struct Large {
  unsigned long words[5];
};

__global__ void add_one(unsigned* word);

void store_word(unsigned* word, unsigned value);
unsigned load_word(const unsigned* word);
void store_volatile(volatile unsigned* word, unsigned value);
void copy_struct(Large* to, const Large* from);
void copy_bytes(void* to, const void* from, std::size_t bytes);
void increment(std::atomic<unsigned>* word);
void store_and_launch(Stream& stream, unsigned* word, unsigned value);
__global__ void std_fence();
__global__ void std_atomics(std::atomic<unsigned>* word);

}  // namespace holdfast::test
