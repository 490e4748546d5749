#include "core/parallel.hpp"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace holdfast::core {

unsigned worker_count() noexcept {
  // hardware_concurrency() honours the affinity mask; more than 16 gain nothing on one socket's
  // memory.
  return std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
}

void parallel_for(std::size_t count, unsigned threads,
                  const std::function<void(std::size_t)>& body) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&]() noexcept {
    for (std::size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      try {
        body(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next.store(count);
      }
    }
  };

  // The application's signal handlers run on its own threads: ours inherit a full mask.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::vector<std::thread> pool;
  const std::size_t wanted = std::min<std::size_t>(threads, count);
  try {
    for (std::size_t i = 1; i < wanted; ++i) pool.emplace_back(work);
  } catch (const std::exception&) {
    // No more threads, or no memory for them: those that run do the work.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  work();
  for (std::thread& thread : pool) thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace holdfast::core
