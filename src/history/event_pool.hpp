// Events that are used again: making one takes as long as the rest of a save's work on the host.
//
// Thread safety: all functions from any number of threads; so are the ends of what take() has
// given, which may come behind the pool's own.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "holdfast/stream.hpp"

namespace holdfast::history {

class EventPool {
 public:
  EventPool() : state_(std::make_shared<State>()) {}
  // An event for streams of the current device, which nobody else has. Its time is not taken.
  // Throws no_memory, device.
  std::shared_ptr<Event> take();

 private:
  struct Slot {
    Event event;
    int device;
  };
  struct State {
    std::mutex mutex;
    std::vector<std::unique_ptr<Slot>> free;
    std::size_t made = 0;  // of which `free` has room for all, so that giving back needs no memory
  };
  std::shared_ptr<State> state_;
};

}  // namespace holdfast::history
