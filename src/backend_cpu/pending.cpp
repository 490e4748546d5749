#include "backend_cpu/pending.hpp"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <utility>

#include "backend_cpu/events.hpp"
#include "backend_cpu/intercept_state.hpp"
#include "backend_cpu/stream_thread.hpp"
#include "holdfast/cpu/executor.hpp"

namespace holdfast::cpu {

namespace {

struct Pending {
  std::mutex mutex;
  std::set<const void*> streams;
  std::atomic<bool> any{false};  // streams
  std::atomic<bool> overlapped{false};
  std::atomic<bool> stranger{false};
  std::optional<Error> lost_error;
  std::map<const std::byte*, const std::byte*> copied;  // where ranges begin and end: apart
  std::atomic<bool> any_copied{false};
};

// Never destroyed: streams may be later than what is static. Made where no memory is left, too:
// the first one to ask may be a stream that ends.
Pending& pending() {
  alignas(Pending) static std::byte storage[sizeof(Pending)];
  static Pending* const instance = new (storage) Pending;
  return *instance;
}

struct Stack {
  const std::byte* low = nullptr;
  const std::byte* high = nullptr;

  Stack() {
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return;
    void* start = nullptr;
    std::size_t bytes = 0;
    if (pthread_attr_getstack(&attributes, &start, &bytes) == 0) {
      low = static_cast<const std::byte*>(start);
      high = low + bytes;
    }
    pthread_attr_destroy(&attributes);
  }
  bool contains(const void* address) const { return address >= low && address < high; }
};

}  // namespace

void note_queued(const void* stream) {
  if (!kEvents) return;
  if (current_listener() != nullptr && t_hook.host == nullptr && t_hook.thread == nullptr &&
      !StreamThread::is_one()) {
    note_stranger();
  }
  const std::lock_guard lock(pending().mutex);
  pending().streams.insert(stream);
  pending().any = true;
  if (pending().streams.size() > 1) pending().overlapped = true;
}

void note_waited(const void* stream) {
  if (!kEvents) return;
  const std::lock_guard lock(pending().mutex);
  if (stream == nullptr) {
    pending().streams.clear();
  } else {
    pending().streams.erase(stream);
  }
  pending().any = !pending().streams.empty();
}

void note_host_beside(const void* address) {
  if (!pending().any.load(std::memory_order_relaxed)) return;
  if (address != nullptr) {
    static thread_local const Stack stack;
    if (stack.contains(address)) return;
  }
  pending().overlapped = true;
}

void note_stranger() noexcept { pending().stranger = true; }

bool stranger_was_met() { return pending().stranger; }

void note_copied(const void* address, std::size_t bytes) {
  if (!kEvents || current_listener() == nullptr || is_device_memory(address)) return;
  const std::lock_guard lock(pending().mutex);
  const auto* begin = static_cast<const std::byte*>(address);
  const std::byte* end = begin + bytes;
  auto& copied = pending().copied;
  auto next = copied.upper_bound(begin);
  if (next != copied.begin() && std::prev(next)->second >= begin) --next;
  while (next != copied.end() && next->first <= end) {  // they become one
    begin = std::min(begin, next->first);
    end = std::max(end, next->second);
    next = copied.erase(next);
  }
  copied.emplace(begin, end);
  pending().any_copied = true;
}

bool is_copied(const void* address) {
  if (!pending().any_copied.load(std::memory_order_relaxed)) return false;
  const std::lock_guard lock(pending().mutex);
  const auto next = pending().copied.upper_bound(static_cast<const std::byte*>(address));
  return next != pending().copied.begin() && address < std::prev(next)->second;
}

void note_lost_error(const Error& error) noexcept {
  if (!kEvents) return;
  const std::lock_guard lock(pending().mutex);
  pending().lost_error = error;
}

std::optional<Error> take_lost_error() {
  const std::lock_guard lock(pending().mutex);
  return std::exchange(pending().lost_error, std::nullopt);
}

bool work_is_pending() {
  const std::lock_guard lock(pending().mutex);
  return !pending().streams.empty();
}

bool streams_have_overlapped() {
  const std::lock_guard lock(pending().mutex);
  return pending().overlapped;
}

void watch_streams() {
  const std::lock_guard lock(pending().mutex);
  pending().overlapped = pending().stranger = pending().any_copied = false;
  pending().copied.clear();
}

}  // namespace holdfast::cpu
