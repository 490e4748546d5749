// What the library asks of events beyond their public functions.
#pragma once

#include <atomic>
#include <memory>

#include "holdfast/stream.hpp"

namespace holdfast::core {

struct EventAccess {
  // One that elapsed_ms() is not asked of, which is cheaper to record and to wait for on a GPU.
  static Event untimed();
  static bool is_moved_from(const Event& event) { return event.impl_ == nullptr; }
  // Whether it is complete, or was never recorded. Of one that was moved from that is not known,
  // and the answer is no. Does not wait, and is no question of the host's in the sense of
  // host_asks.hpp: not for loops.
  static bool ended(const Event& event);
  // The same of Event::failed().
  static bool failed(const Event& event);

  // As Event::wait(), but later work runs even if synchronize() would throw: `*failed` is true
  // then.
  static void wait(Event& event, Stream& stream, const std::shared_ptr<std::atomic<bool>>& failed);
};

}  // namespace holdfast::core
