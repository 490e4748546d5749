// The writers of a region that have not ended, so that no commit overtakes them.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "holdfast/stream.hpp"

namespace holdfast::core {

// A writer that failed has ended: what it left is what a crash would have left of it, marks that it
// did not come to set included.
//
// Thread safety: none.
class PendingWriters {
 public:
  // `end` is recorded behind the writer's last store. Throws closed if it was moved from.
  void add(std::shared_ptr<Event> end);

  // Work that is queued on `stream` from here on runs once all have ended. `*failed` is true by
  // then if one of them has failed. Throws closed if an event was moved from since, as wait() does.
  void hold(Stream& stream, const std::shared_ptr<std::atomic<bool>>& failed);

  // Returns once all have ended. True: one of them has failed.
  bool wait();

  bool all_ended() const noexcept;

 private:
  void check_there() const;
  void drop_ended();

  std::vector<std::shared_ptr<Event>> ends_;
  std::size_t limit_ = 16;  // of ends_, before they are looked at: a fixed cost for each
  bool failed_ = false;     // one that has been dropped, and no commit knows of it
};

// Memory that writers may still store into.
using WrittenMemory = std::unique_ptr<void, void (*)(void*)>;
// Keeps it until they have ended.
void keep_for(PendingWriters writers, WrittenMemory memory) noexcept;
// Lets go of what was kept for writers that have ended since.
void release_kept();

}  // namespace holdfast::core
