#include "cpu/host_events.hpp"

#include <cstring>

namespace holdfast::test {

__global__ void add_one(unsigned* word) { *word += 1; }

void store_word(unsigned* word, unsigned value) { *word = value; }
unsigned load_word(const unsigned* word) { return *word; }
void store_volatile(volatile unsigned* word, unsigned value) { *word = value; }
void copy_struct(Large* to, const Large* from) { *to = *from; }
void copy_bytes(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
void increment(std::atomic<unsigned>* word) {
  word->store(word->load() + 1);
  word->fetch_add(1);
}
void store_and_launch(Stream& stream, unsigned* word, unsigned value) {
  *word = value;
  launch(stream, 1, 1, add_one, word);
}

__global__ void std_fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
__global__ void std_atomics(std::atomic<unsigned>* word) {
  word->store(word->load() + 1);
  word->fetch_add(1);
}

}  // namespace holdfast::test
