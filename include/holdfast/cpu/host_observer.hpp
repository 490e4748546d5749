// Lets the listener see what host code does to memory, as it sees what kernels do.
#pragma once

#include <cstddef>
#include <memory>

namespace holdfast::cpu {

// While it lives, the loads and stores that the calling thread makes in host code of kernel files
// (holdfast_kernels() instruments their host functions, too) are delivered to the current listener
// with Event::host set. Accesses in other files are not seen: say them with note_read() and
// note_write(). Accesses to the thread's stack are delivered like any others; listeners tell by the
// address what concerns them.
//
// A store is delivered at the thread's next access, launch, copy or wait, or when the observer
// ends. If its memory is unmapped by then, it is not delivered.
//
// While a kernel runs, an access waits until the kernel is over: a kernel that waits for a thread
// with an observer never ends.
//
// Does nothing where can_listen() is false. Thread safety: one thread makes and ends it. Within
// another observer of the thread it takes that one's place until it ends.
class HostObserver {
 public:
  HostObserver();
  // Delivers only what begins in [start, start + bytes), and does so faster. REQUIRES: the range
  // stays readable.
  HostObserver(const void* start, std::size_t bytes);
  ~HostObserver();
  HostObserver(const HostObserver&) = delete;
  HostObserver& operator=(const HostObserver&) = delete;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

// Whether the calling thread has an observer, and is not within a function of a stream.
bool is_observed() noexcept;

// Says that the calling thread reads, or has just written, `bytes` bytes. Does nothing where the
// thread has no HostObserver.
void note_read(const void* address, std::size_t bytes, const char* file = __builtin_FILE(),
               unsigned line = __builtin_LINE());
void note_write(const void* address, std::size_t bytes, const char* file = __builtin_FILE(),
                unsigned line = __builtin_LINE());

}  // namespace holdfast::cpu
