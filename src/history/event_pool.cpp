#include "history/event_pool.hpp"

#include <algorithm>
#include <utility>

#include "core/event_access.hpp"

namespace holdfast::history {

std::shared_ptr<Event> EventPool::take() {
  const int device = backend::device_number();
  std::unique_ptr<Slot> slot;
  {
    const std::lock_guard lock(state_->mutex);
    const auto found =
        std::find_if(state_->free.rbegin(), state_->free.rend(),
                     [&](const std::unique_ptr<Slot>& free) { return free->device == device; });
    if (found != state_->free.rend()) {
      std::swap(*found, state_->free.back());
      slot = std::move(state_->free.back());
      state_->free.pop_back();
    }
  }
  if (!slot) {
    slot = std::make_unique<Slot>(Slot{core::EventAccess::untimed(), device});
    const std::lock_guard lock(state_->mutex);
    if (state_->free.capacity() <= state_->made) state_->free.reserve(2 * state_->made + 8);
    ++state_->made;
  }
  Event* const event = &slot->event;
  Slot* const owned = slot.release();
  // Given back by a throw of this, too.
  return {event, [state = state_, owned](Event*) noexcept {
            std::unique_ptr<Slot> back(owned);
            const std::lock_guard lock(state->mutex);
            state->free.push_back(std::move(back));
          }};
}

}  // namespace holdfast::history
