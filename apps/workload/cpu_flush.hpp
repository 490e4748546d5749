// Flushing the processor's caches, for the modes in which the CPU persists.
#pragma once

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
