#include "backend_cpu/pending.hpp"

#include <mutex>
#include <set>

#include "backend_cpu/intercept_state.hpp"
#include "holdfast/cpu/executor.hpp"

namespace holdfast::cpu {

namespace {

struct Pending {
  std::mutex mutex;
  std::set<const void*> streams;
  bool overlapped = false;
};

Pending& pending() {
  static Pending* const the = new Pending;  // streams may be later than what is static
  return *the;
}

}  // namespace

void note_queued(const void* stream) {
  if (!kEvents) return;
  const std::lock_guard lock(pending().mutex);
  pending().streams.insert(stream);
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
  pending().overlapped = false;
}

}  // namespace holdfast::cpu
