#include "core/pending_writers.hpp"

#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "core/event_access.hpp"

namespace holdfast::core {

void PendingWriters::add(std::shared_ptr<Event> end) {
  if (EventAccess::is_moved_from(*end)) detail::throw_moved_from("event");
  if (ends_.size() >= limit_) drop_ended();
  ends_.push_back(std::move(end));
}

// Nothing else says when the writer has ended.
void PendingWriters::check_there() const {
  for (const std::shared_ptr<Event>& end : ends_) {
    if (!EventAccess::is_moved_from(*end)) continue;
    throw Error(Errc::closed,
                "an event that pending() was given was moved from, and what it was of may be under "
                "way: move it back, or abandon() the region");
  }
}

void PendingWriters::drop_ended() {
  std::erase_if(ends_, [&](const std::shared_ptr<Event>& end) {
    if (!EventAccess::ended(*end)) return false;
    if (EventAccess::failed(*end)) failed_ = true;
    return true;
  });
  limit_ = std::max<std::size_t>(16, 2 * ends_.size());
}

void PendingWriters::hold(Stream& stream, const std::shared_ptr<std::atomic<bool>>& failed) {
  check_there();
  drop_ended();
  for (const std::shared_ptr<Event>& end : ends_) EventAccess::wait(*end, stream, failed);
  if (std::exchange(failed_, false)) *failed = true;
}

bool PendingWriters::wait() {
  check_there();
  for (const std::shared_ptr<Event>& end : ends_) {
    try {
      end->synchronize();
    } catch (const Error&) {
      failed_ = true;
    }
  }
  ends_.clear();
  return std::exchange(failed_, false);
}

bool PendingWriters::all_ended() const noexcept {
  return std::all_of(ends_.begin(), ends_.end(),
                     [](const auto& end) { return EventAccess::ended(*end); });
}

namespace {

struct Kept {
  pid_t process;  // whose streams the writers are on; a forked child has none of them
  PendingWriters writers;
  WrittenMemory memory;
};

struct Keeper {
  std::mutex mutex;
  std::vector<Kept> kept;
};
// Never destroyed: streams may be later.
Keeper& keeper() {
  static Keeper* const instance = new Keeper;
  return *instance;
}

}  // namespace

void keep_for(PendingWriters writers, WrittenMemory memory) noexcept {
  try {
    const std::lock_guard lock(keeper().mutex);
    keeper().kept.reserve(keeper().kept.size() + 1);
    keeper().kept.push_back({::getpid(), std::move(writers), std::move(memory)});
  } catch (const std::exception&) {
    (void)memory.release();  // for good
  }
}

void release_kept() {
  std::vector<Kept> ended;  // let go of when the lock is
  const std::lock_guard lock(keeper().mutex);
  auto& kept = keeper().kept;
  const auto first = std::partition(kept.begin(), kept.end(), [](const Kept& one) {
    return one.process != ::getpid() || !one.writers.all_ended();
  });
  ended.assign(std::make_move_iterator(first), std::make_move_iterator(kept.end()));
  kept.erase(first, kept.end());
}

}  // namespace holdfast::core
