#include "history/range_fences.hpp"

#include <algorithm>
#include <utility>

#include "core/event_access.hpp"

namespace holdfast::history {

void RangeFences::add(std::uint64_t offset, std::uint64_t bytes, std::shared_ptr<Event> end) {
  std::erase_if(fences_, [](const Fence& fence) { return core::EventAccess::ended(*fence.event); });
  fences_.push_back({offset, offset + bytes, std::move(end)});
}

std::vector<std::shared_ptr<Event>> RangeFences::over(std::uint64_t offset,
                                                      std::uint64_t bytes) const {
  std::vector<std::shared_ptr<Event>> events;
  const std::uint64_t end = offset + bytes;
  for (const Fence& fence : fences_) {
    if (fence.begin < end && fence.end > offset) events.push_back(fence.event);
  }
  return events;
}

}  // namespace holdfast::history
