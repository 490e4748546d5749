// A stream of the CPU backend: an in-order queue and the worker thread that serves it.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "backend_cpu/stream_thread.hpp"
#include "holdfast/stream.hpp"

namespace holdfast {

struct Stream::Impl {
  // Whether a task runs even once the stream has met an error: events must complete.
  enum class Run { unless_failed, always };

  Impl();
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Queues a task. What it throws becomes the stream's error. `ready`: in an Exploration, whether
  // it can be done now; it is done behind task number `waits_for`, too.
  void push(std::function<void()> task, Run run = Run::unless_failed,
            std::function<bool()> ready = nullptr, std::uint64_t waits_for = 0);
  void wait();              // until all queued tasks are done
  void throw_if_failed();   // REQUIRES: wait() has returned
  bool is_serving() const;  // a thread of this process works on it
  // One of the process that forked this one does. Such a stream cannot even be destroyed: a
  // condition waits for the threads that wait for it.
  bool is_inherited() const { return worker_ != nullptr && !is_serving(); }
  const std::optional<Error>& error() const { return error_; }  // REQUIRES: called by a task of it

  // For an engine, which does the stream's tasks itself: does one; notes an error.
  void attempt(const std::function<void()>& function);
  void adopt() { process_ = ::getpid(); }  // as if it had a worker
  void fail(const Error& error) {
    if (!error_) error_.emplace(error);
  }

 private:
  void check_process() const;  // throws in_use if it is inherited
  struct Task {
    std::function<void()> function;
    Run run;
  };
  void serve();

  std::mutex mutex_;
  std::condition_variable work_, idle_;
  std::deque<Task> queue_;
  bool busy_ = false;
  std::atomic<bool> stop_{false};
  std::atomic<std::uint32_t> left_{0};  // tasks that are queued or run
  bool seen_ = false;                   // the error was thrown to the caller
  std::optional<Error> error_;
  cpu::StreamThread* worker_ = nullptr;  // started by the first push()
  // That has the worker; a forked child has not.
  std::atomic<pid_t> process_{0};
};

}  // namespace holdfast
