// The frames of one memory of the pager: which page has which. Pages that stand side by side are
// moved by one copy, so neighbours are given out together where there are some.
//
// Invariant: a frame has one page or none. Thread safety: none.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace score {

class Frames {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  explicit Frames(std::uint64_t count) : pages_(count, kNone), free_(count) {}

  std::uint64_t count() const { return pages_.size(); }
  std::uint64_t free() const { return free_; }
  std::uint32_t page_of(std::uint32_t frame) const { return pages_[frame]; }

  // A free frame, the one behind the last that was given out if that is free. REQUIRES: free() > 0.
  std::uint32_t take(std::uint32_t page) {
    while (pages_[next_] != kNone) next_ = (next_ + 1) % pages_.size();
    const auto frame = static_cast<std::uint32_t>(next_);
    pages_[frame] = page;
    --free_;
    next_ = (next_ + 1) % pages_.size();
    return frame;
  }
  void give_back(std::uint32_t frame) {
    pages_[frame] = kNone;
    ++free_;
  }

 private:
  std::vector<std::uint32_t> pages_;
  std::uint64_t free_;
  std::uint64_t next_ = 0;
};

}  // namespace score
