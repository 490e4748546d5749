// Flushing the processor's caches, for the modes in which the CPU persists.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace workload {

// Writes back every line of [address, address + bytes) with the best instruction that the
// processor has (clwb, clflushopt, clflush), and waits for them. Any thread.
void flush_lines(const void* address, std::uint64_t bytes) noexcept;

// Copies past the caches, to where no other data is in the lines but at the ends, which are written
// back. Waits until it has left the processor. Any thread.
void store_past_caches(void* to, const void* from, std::uint64_t bytes) noexcept;

enum class FlushInstruction { clwb, clflushopt, clflush };
// The best that the processor has.
extern const FlushInstruction kFlushInstruction;

// Writes back the line of `address`, and does not wait. Any thread. (In assembly, so that it is
// inlined into loops that are not compiled for one processor.)
inline void write_line_back(const void* address) noexcept {
  const auto& line = *static_cast<const volatile unsigned char*>(address);
  switch (kFlushInstruction) {
    case FlushInstruction::clwb:
      asm volatile("clwb %0" : : "m"(line) : "memory");
      break;
    case FlushInstruction::clflushopt:
      asm volatile("clflushopt %0" : : "m"(line) : "memory");
      break;
    case FlushInstruction::clflush:
      asm volatile("clflush %0" : : "m"(line) : "memory");
      break;
  }
}

// Calls store(i), which stores to place(i), for i from 0 to count - 1: the lines are asked for
// ahead and written back. Places do not cross lines. Waits, once, for all of them. Any thread.
template <class Place, class Store>
void store_scattered(std::uint64_t count, const Place& place, const Store& store) {
  constexpr std::uint64_t kAhead = 24;
  constexpr std::uintptr_t kLine = 64;
  const auto line_of = [&](std::uint64_t i) {
    return reinterpret_cast<std::uintptr_t>(place(i)) / kLine;
  };
  for (std::uint64_t i = 0; i < std::min(kAhead, count); ++i) __builtin_prefetch(place(i), 1);
  for (std::uint64_t i = 0; i < count; ++i) {
    if (i + kAhead < count) __builtin_prefetch(place(i + kAhead), 1);
    store(i);
    // Neighbours in one line: once is enough.
    if (i + 1 == count || line_of(i + 1) != line_of(i)) write_line_back(place(i));
  }
  _mm_sfence();
}

// Counts bytes that a thread flushes; their sum over all threads of this process, also those that
// have ended. Any thread.
void count_flushed(std::uint64_t bytes);
std::uint64_t flushed_bytes();

// "clwb", "clflushopt" or "clflush".
const char* flush_instruction() noexcept;

// Threads that wait for work, so that a small publish does not pay for starting them.
// Thread safety: one thread.
class Team {
 public:
  // `threads` in all, the caller of for_chunks() among them.
  explicit Team(unsigned threads);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  // Calls body(thread, first, count) for parts of [0, size) of at most `chunk`, in all threads.
  // The first exception is thrown again once all have ended.
  using Body = std::function<void(unsigned thread, std::uint64_t first, std::uint64_t count)>;
  void for_chunks(std::uint64_t size, std::uint64_t chunk, const Body& body);

  unsigned threads() const { return static_cast<unsigned>(others_.size()) + 1; }

 private:
  void serve(unsigned thread);
  void work(unsigned thread);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::uint64_t round_ = 0;
  unsigned busy_ = 0;
  unsigned wanted_ = 0;  // threads that take part in this round
  bool over_ = false;
  const Body* body_ = nullptr;
  std::uint64_t size_ = 0;
  std::uint64_t chunk_ = 0;
  std::atomic<std::uint64_t> next_{0};
  std::exception_ptr error_;
  std::vector<std::thread> others_;
};

}  // namespace workload
