// Waits that are mostly short. A launch and the wait for it follow each other within microseconds,
// which is less than it takes to put a thread to sleep and to wake it: so whoever waits looks some
// more times before it sleeps, and lets others go on.
#pragma once

#include <semaphore>
#include <thread>

namespace holdfast::cpu {

inline constexpr int kLooks = 64;

// Returns when done() is true, or soon.
template <class Done>
void look_for(const Done& done) {
  for (int i = 0; i < kLooks && !done(); ++i) std::this_thread::yield();
}

inline void acquire_soon(std::binary_semaphore& semaphore) {
  bool acquired = false;
  look_for([&] { return acquired = semaphore.try_acquire(); });
  if (!acquired) semaphore.acquire();
}

}  // namespace holdfast::cpu
