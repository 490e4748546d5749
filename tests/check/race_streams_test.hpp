// Kernels and host code that work beside each other.
#pragma once

#include <cstdint>

#include "holdfast/kernel.hpp"

namespace holdfast::test {

// Each thread writes a word of its own.
__global__ void put(unsigned* words, unsigned value);
__global__ void copy_word(unsigned* to, const unsigned* from);

enum class Sent { plainly, device_fence, persisted };
// Writes data and then the flag; waits for the flag and then reads data.
__global__ void send(unsigned* data, volatile unsigned* flag, Sent how);
__global__ void receive(const unsigned* data, const volatile unsigned* flag, unsigned* out);

// What one thread or the host does to plain words and to flags, which are 0 until they are told.
struct RacingAct {
  enum class What : std::uint8_t { load, store, tell, ask } what = What::load;
  unsigned word = 0;
  bool if_told = false;  // only if the flag was told when it asked last
};
struct RacingActs {
  RacingAct acts[4];
  unsigned count = 0;
};
// In one thread. Words and flags are 64 bytes apart.
__global__ void act(RacingActs acts, unsigned* words, unsigned* flags);

unsigned ask_on_host(const volatile unsigned* flag);
void wait_on_host(const volatile unsigned* flag);
void tell_on_host(volatile unsigned* flag);
void store_on_host(unsigned* word, unsigned value);
unsigned load_on_host(const unsigned* word);

}  // namespace holdfast::test
