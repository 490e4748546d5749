// What `discard_consumed` does: a checkpoint goes once a restore has given the program its bytes.
// A restore that is queued has not: the stream may fail before it, and the program restores again
// from another one. Until the copies have ended well the checkpoint stays.
#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "core/event_access.hpp"
#include "history/engine.hpp"

namespace holdfast::history {

// REQUIRES: the mutex is held; a restore that was not to keep the checkpoint is queued.
void Engine::consumed(Step step, std::shared_ptr<Event> end, const void* stream) {
  const auto record = records_.find(step);
  if (record == records_.end()) return;
  try {
    consumed_.push_back({step, record->second.id, std::move(end), stream});
  } catch (const std::bad_alloc&) {  // the bytes are where they should be: then it stays
  }
}

bool Engine::is_consumed(Step step) const {
  return std::any_of(consumed_.begin(), consumed_.end(),
                     [&](const Consumed& consumed) { return consumed.step == step; });
}

void Engine::discard_unless_hinted(Step step) {
  if (core_->catalog.is_hinted(step)) return;  // it will be wanted again
  changing([&] {
    core_->catalog.discard(step);
    note_evictions();
    forget_if_gone(step);
  });
}

// Whether any has ended. Of each stream those behind the first that has not are not asked: a
// question is a call of the driver. REQUIRES: the mutex is held.
bool Engine::discard_consumed() {
  std::vector<const void*> running;
  std::vector<Consumed> ended;
  running.reserve(consumed_.size());  // nothing throws in the middle
  ended.reserve(consumed_.size());
  std::erase_if(consumed_, [&](Consumed& consumed) {
    if (std::find(running.begin(), running.end(), consumed.stream) != running.end()) return false;
    if (!core::EventAccess::ended(*consumed.end)) {
      running.push_back(consumed.stream);
      return false;
    }
    ended.push_back(std::move(consumed));
    return true;
  });
  for (const Consumed& consumed : ended) {
    if (core::EventAccess::failed(*consumed.end)) continue;
    const auto record = records_.find(consumed.step);
    // Another may have the number by now.
    if (record == records_.end() || record->second.id != consumed.record) continue;
    discard_unless_hinted(consumed.step);
  }
  return !ended.empty();
}

// Waits for what is queued. REQUIRES: no call of another thread goes on.
void Engine::discard_all_consumed(Lock& lock) {
  while (!consumed_.empty() && !core_->broken) {
    const std::shared_ptr<Event> end = consumed_.front().end;
    lock.unlock();
    try {
      end->synchronize();
    } catch (...) {  // it has ended
    }
    lock.lock();
    discard_consumed();
  }
}

}  // namespace holdfast::history
