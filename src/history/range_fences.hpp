// Which queued work still uses which bytes of a cache's buffer, so that their next owner comes
// behind it without the host's waiting.
//
// A save or restore is done, for the catalog, once it is queued; its copies run later. Whoever gets
// the bytes next, a copy or the host itself, waits here first.
//
// Thread safety: none; the history's mutex is over it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "holdfast/stream.hpp"

namespace holdfast::history {

class RangeFences {
 public:
  // The work before `end` uses the bytes [offset, offset + bytes).
  void add(std::uint64_t offset, std::uint64_t bytes, std::shared_ptr<Event> end);
  // The events of what uses any of these bytes: who takes the bytes comes behind all of them. They
  // stay until they have ended, since who takes the bytes may fail before it has waited, and the
  // next owner must not run into what is queued still.
  std::vector<std::shared_ptr<Event>> over(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  struct Fence {
    std::uint64_t begin, end;
    std::shared_ptr<Event> event;
  };
  std::vector<Fence> fences_;
};

}  // namespace holdfast::history
