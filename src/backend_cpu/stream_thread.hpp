// The threads that serve streams. They outlive their streams and serve those that come: a recovery
// that is run for each of thousands of crash states makes and drops several streams each time.
#pragma once

#include <functional>
#include <semaphore>
#include <thread>

namespace holdfast::cpu {

class StreamThread {
 public:
  // A thread that runs `job`: an idle one, or a new one. Never null. Throws std::system_error where
  // the system has no thread left. Any thread may call it.
  static StreamThread* start(std::function<void()> job);
  // Whether the calling thread is one.
  static bool is_one() noexcept;
  // Waits until the job is over and gives the thread back: it must not be used any more.
  void finish();

 private:
  StreamThread() : thread_([this] { serve(); }) {}
  void serve();

  std::function<void()> job_;  // empty: the thread ends
  std::binary_semaphore given_{0}, done_{0};
  std::thread thread_;  // last: it uses the others
};

}  // namespace holdfast::cpu
