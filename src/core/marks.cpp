#include "core/marks.hpp"

#include <algorithm>

#include "core/event_access.hpp"

namespace holdfast::core {

MarkMap::MarkMap(std::uint64_t max_pages, const std::byte* base)
    : map_(max_pages), copy_(max_pages), fetched_(max_pages), base_(base), host_(max_pages, 0) {
  load_clear_copied();
}

void MarkMap::mark(std::uint64_t first_page, std::uint64_t last_page) {
  std::fill(host_.begin() + static_cast<std::ptrdiff_t>(first_page),
            host_.begin() + static_cast<std::ptrdiff_t>(last_page) + 1, std::uint8_t{1});
}

void MarkMap::fetch(Stream& stream, std::uint64_t pages,
                    const std::shared_ptr<std::atomic<bool>>& failed) {
  if (taken_) EventAccess::wait(*taken_, stream, failed);
  copy_async(stream, copy_.data(), map_.data(), pages);
  copy_async(stream, fetched_.data(), copy_.data(), pages);
  clear_copied(stream, map_.data(), copy_.data(), pages);
}

void MarkMap::taken(Stream& stream) {
  if (!taken_) taken_ = std::make_unique<Event>();
  taken_->record(stream);
}

std::vector<std::uint8_t> MarkMap::take(std::uint64_t pages, bool with_device) {
  const auto end = static_cast<std::ptrdiff_t>(pages);
  std::vector<std::uint8_t> marks(host_.begin(), host_.begin() + end);
  std::fill(host_.begin(), host_.begin() + end, std::uint8_t{0});
  if (with_device) {
    const std::uint8_t* const fetched = fetched_.data();
    std::uint8_t* const own =
        marks.data();  // as the members, they would be loaded again for each byte
    for (std::uint64_t i = 0; i < pages; ++i) own[i] |= fetched[i];
  }
  return marks;
}

}  // namespace holdfast::core
