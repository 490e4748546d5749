// Which queued work still uses which bytes of a cache's buffer, so that their next owner comes
// behind it without the host's waiting.
//
// A save or restore is done, for the catalog, once it is queued; its copies run later. Whoever gets
// the bytes next, a copy or the host itself, waits here first.
//
// Thread safety: none; the history's mutex is over it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "holdfast/stream.hpp"

namespace holdfast::history {

class RangeFences {
 public:
  // The work before `end` uses the bytes [offset, offset + bytes). Throws bad_alloc, and changes
  // nothing then. Amortized O(1) questions to the device.
  void add(std::uint64_t offset, std::uint64_t bytes, std::shared_ptr<Event> end);
  // body(event) for what uses any of these bytes: who takes the bytes comes behind all of them.
  // They stay until they have ended, since who takes the bytes may fail before it has waited, and
  // the next owner must not run into what is queued still.
  template <class Body>
  void for_each_over(std::uint64_t offset, std::uint64_t bytes, Body&& body) const {
    const std::uint64_t end = offset + bytes;
    for (const Fence& fence : fences_) {
      if (fence.begin < end && fence.end > offset) body(fence.event);
    }
  }
  std::vector<std::shared_ptr<Event>> over(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  struct Fence {
    std::uint64_t begin, end;
    std::shared_ptr<Event> event;
  };
  void forget_ended();

  std::vector<Fence> fences_;
  std::size_t next_ = 0;  // to be asked
};

}  // namespace holdfast::history
