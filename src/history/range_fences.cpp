#include "history/range_fences.hpp"

#include <utility>

#include "core/event_access.hpp"

namespace holdfast::history {

void RangeFences::add(std::uint64_t offset, std::uint64_t bytes, std::shared_ptr<Event> end) {
  forget_ended();
  fences_.push_back({offset, offset + bytes, std::move(end)});
}

// Asks a few, in turn, for as long as they have ended: a question is a call of the driver, and a
// backward pass may have queued a hundred restores. As many go as come, however far streams lag.
void RangeFences::forget_ended() {
  constexpr std::size_t kLeast = 2;
  for (std::size_t asked = 0; asked < fences_.size(); ++asked) {
    if (next_ >= fences_.size()) next_ = 0;
    if (core::EventAccess::ended(*fences_[next_].event)) {
      if (next_ + 1 < fences_.size()) std::swap(fences_[next_], fences_.back());
      fences_.pop_back();
    } else if (++next_; asked + 1 >= kLeast) {
      return;
    }
  }
}

std::vector<std::shared_ptr<Event>> RangeFences::over(std::uint64_t offset,
                                                      std::uint64_t bytes) const {
  std::vector<std::shared_ptr<Event>> events;
  for_each_over(offset, bytes, [&](const auto& event) { events.push_back(event); });
  return events;
}

}  // namespace holdfast::history
