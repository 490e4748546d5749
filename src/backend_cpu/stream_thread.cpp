#include "backend_cpu/stream_thread.hpp"

#include <pthread.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backend_cpu/soon.hpp"

namespace holdfast::cpu {
namespace {

constexpr std::size_t kMostIdle = 64;

constinit thread_local bool t_is_one = false;

}  // namespace

// Never destroyed: streams may be later than any static object.
struct IdleThreads {
  std::mutex mutex;
  std::vector<StreamThread*> threads;

  static IdleThreads& instance();
};

namespace {

std::atomic<IdleThreads*> g_idle{nullptr};

// A forked child has none of its parent's threads.
void forget_threads_after_fork() { g_idle.store(new IdleThreads); }

}  // namespace

IdleThreads& IdleThreads::instance() {
  static std::once_flag once;
  std::call_once(once, [] {
    g_idle.store(new IdleThreads);
    pthread_atfork(nullptr, nullptr, &forget_threads_after_fork);
  });
  return *g_idle.load();
}

StreamThread* StreamThread::start(std::function<void()> job) {
  IdleThreads& idle = IdleThreads::instance();
  StreamThread* thread = nullptr;
  {
    const std::lock_guard lock(idle.mutex);
    idle.threads.reserve(kMostIdle);  // so that finish() needs no memory
    if (!idle.threads.empty()) {
      thread = idle.threads.back();
      idle.threads.pop_back();
    }
  }
  if (thread == nullptr) thread = new StreamThread;
  thread->job_ = std::move(job);
  thread->given_.release();
  return thread;
}

void StreamThread::finish() {
  acquire_soon(done_);
  IdleThreads& idle = IdleThreads::instance();
  {
    const std::lock_guard lock(idle.mutex);
    if (idle.threads.size() < kMostIdle) {
      idle.threads.push_back(this);
      return;
    }
  }
  given_.release();
  thread_.join();
  delete this;
}

bool StreamThread::is_one() noexcept { return t_is_one; }

void StreamThread::serve() {
  t_is_one = true;
  for (;;) {
    acquire_soon(given_);
    if (!job_) return;
    std::exchange(job_, nullptr)();
    done_.release();
  }
}

}  // namespace holdfast::cpu
