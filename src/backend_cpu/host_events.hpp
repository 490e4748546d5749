// Events that come from outside kernels: from host code and from the copy engine.
#pragma once

#include <cstddef>
#include <functional>
#include <initializer_list>
#include <utility>

#include "backend_cpu/events.hpp"
#include "holdfast/cpu/host_observer.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::cpu {

struct Bytes {
  const void* address;
  std::size_t size;
};

// The calling thread is not observed while it lives: the listener runs, or a hook itself accesses
// memory.
class Silence {
 public:
  Silence() : host_(std::exchange(t_hook.host, nullptr)) {}
  ~Silence() { t_hook.host = host_; }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;

 private:
  HostObserver::State* host_;
};

void deliver_copy(std::initializer_list<Bytes> reads, std::initializer_list<Bytes> writes,
                  const void* pc, const std::function<void()>& work);

// Does `work`, which reads and writes the ranges given, and delivers that.
template <class Work>
void copy_observed(std::initializer_list<Bytes> reads, std::initializer_list<Bytes> writes,
                   const void* pc, const Work& work) {
  if (!kEvents || current_listener() == nullptr) {
    work();
  } else {
    deliver_copy(reads, writes, pc, work);
  }
}

void deliver_synchronize(const void* pc, Stream::Impl* stream, std::uint64_t task);

// The host has waited for a stream, up to a task of it; 0: for all that it was given. Null: for all
// streams.
inline void synchronized(const void* pc, Stream::Impl* stream = nullptr, std::uint64_t task = 0) {
  if (kEvents && current_listener() != nullptr) deliver_synchronize(pc, stream, task);
}

// What the hooks call on a thread that has a HostObserver (t_hook.host); as on_load() and so on.
void on_host_load(const void* address, std::size_t size, bool is_volatile, const void* pc);
void on_host_store(const void* address, std::size_t size, bool is_volatile, const void* pc);
// A store that has been made.
void on_host_stored(const void* address, std::size_t size, const void* pc);
// An atomic operation that has been made. `now` is null but for read-modify-writes, `failed` as in
// Event. REQUIRES: no store is pending.
void on_host_atomic(EventKind kind, const void* address, std::size_t size, const void* value,
                    const void* pc, const void* now = nullptr, bool failed = false);

// Before a strong access in host code of a thread that nobody observes: a function of a stream, or
// another thread than that which makes the run.
void note_unobserved();
// Before any other access there.
void on_unobserved(EventKind kind, const void* address, std::size_t size, bool is_volatile,
                   const void* pc);

// A fence of system scope.
void on_host_fence(const void* pc);

void settle_host_pending();

// Delivers the store that the calling host thread announced, if any.
inline void settle_host() {
  if constexpr (kEvents) {
    if (t_hook.host != nullptr) settle_host_pending();
  }
}

}  // namespace holdfast::cpu
