#include "history/allocation_table.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <limits>

#include "holdfast/error.hpp"

namespace holdfast::history {

AllocationTable::AllocationTable(std::uint64_t capacity, std::uint64_t alignment)
    : alignment_(alignment), capacity_(0) {
  if (!std::has_single_bit(alignment)) {
    throw Error(Errc::invalid_argument,
                detail::concat("a tier's alignment of ", alignment,
                               " bytes is no power of two: give one, such as 4096"));
  }
  if (capacity < alignment) {
    throw Error(Errc::invalid_argument,
                detail::concat("a tier of ", capacity, " bytes has no room for one unit of ",
                               alignment, ": give it more bytes"));
  }
  capacity_ = capacity / alignment * alignment;
  fragments_.push_back({0, capacity_, kGap});
}

std::uint64_t AllocationTable::rounded(std::uint64_t bytes) const {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  if (bytes > kMost - (alignment_ - 1)) return kMost;
  return (std::max<std::uint64_t>(bytes, 1) + alignment_ - 1) / alignment_ * alignment_;
}

std::uint64_t AllocationTable::place(std::size_t first, std::size_t last, Step step,
                                     std::uint64_t bytes, Rest rest) {
  assert(first < last && last <= fragments_.size() && step != kGap);
  const std::uint64_t size = rounded(bytes);
  const std::uint64_t begin = fragments_[first].offset;
  const std::uint64_t left =
      fragments_[last - 1].offset + fragments_[last - 1].bytes - begin - size;
  assert(left < fragments_[last - 1].offset + fragments_[last - 1].bytes - begin);
  // Room first: nothing below throws.
  if (fragments_.size() == fragments_.capacity()) fragments_.reserve(2 * fragments_.size());
  for (std::size_t i = first; i < last; ++i) {
    if (fragments_[i].step != kGap) used_ -= fragments_[i].bytes;
  }
  used_ += size;

  // One or two fragments take the window's place. A gap that what is left joins goes with it.
  const std::uint64_t offset = rest == Rest::before ? begin + left : begin;
  std::array<Fragment, 2> now{{{offset, size, step}, {0, 0, kGap}}};
  std::size_t count = 1;
  if (left > 0 && rest == Rest::before) {
    now = {{{begin, left, kGap}, {offset, size, step}}};
    count = 2;
    if (first > 0 && gap_at(first - 1)) {
      --first;
      now[0].offset = fragments_[first].offset;
      now[0].bytes += fragments_[first].bytes;
    }
  } else if (left > 0) {
    now[1] = {offset + size, left, kGap};
    count = 2;
    if (gap_at(last)) now[1].bytes += fragments_[last++].bytes;
  }

  const auto at = fragments_.begin() + static_cast<std::ptrdiff_t>(first);
  const std::size_t kept = std::min(count, last - first);
  std::copy_n(now.begin(), kept, at);
  const auto behind = at + static_cast<std::ptrdiff_t>(kept);
  if (kept < count) {
    fragments_.insert(behind, now[1]);
  } else {
    fragments_.erase(behind, fragments_.begin() + static_cast<std::ptrdiff_t>(last));
  }
  return offset;
}

bool AllocationTable::place_at(std::uint64_t offset, Step step, std::uint64_t bytes) {
  const std::uint64_t size = rounded(bytes);
  if (offset % alignment_ != 0 || size > capacity_ || offset > capacity_ - size) return false;
  const auto gap =
      std::find_if(fragments_.begin(), fragments_.end(), [&](const Fragment& fragment) {
        return fragment.step == kGap && fragment.offset <= offset &&
               offset + size <= fragment.offset + fragment.bytes;
      });
  if (gap == fragments_.end()) return false;
  const auto index = gap - fragments_.begin();
  const Fragment before{gap->offset, offset - gap->offset, kGap};
  const Fragment behind{offset + size, gap->offset + gap->bytes - (offset + size), kGap};
  fragments_.reserve(fragments_.size() + 2);  // nothing below throws
  fragments_[static_cast<std::size_t>(index)] = {offset, size, step};
  if (behind.bytes > 0) fragments_.insert(fragments_.begin() + index + 1, behind);
  if (before.bytes > 0) fragments_.insert(fragments_.begin() + index, before);
  used_ += size;
  return true;
}

bool AllocationTable::erase(Step step) {
  const Fragment* const found = find(step);
  return found != nullptr && erase_at(found->offset);
}

bool AllocationTable::erase_at(std::uint64_t offset) {
  const Fragment* const found = find_at(offset);
  if (found == nullptr) return false;
  used_ -= found->bytes;
  const auto index = static_cast<std::size_t>(found - fragments_.data());
  const std::size_t first = index > 0 && gap_at(index - 1) ? index - 1 : index;
  const std::size_t last = gap_at(index + 1) ? index + 2 : index + 1;
  Fragment& gap = fragments_[first];
  gap.bytes = fragments_[last - 1].offset + fragments_[last - 1].bytes - gap.offset;
  gap.step = kGap;
  gap.note = 0;
  fragments_.erase(fragments_.begin() + static_cast<std::ptrdiff_t>(first + 1),
                   fragments_.begin() + static_cast<std::ptrdiff_t>(last));
  return true;
}

const Fragment* AllocationTable::find(Step step) const {
  if (step == kGap) return nullptr;
  const auto found = std::find_if(fragments_.begin(), fragments_.end(),
                                  [step](const Fragment& f) { return f.step == step; });
  return found == fragments_.end() ? nullptr : &*found;
}

const Fragment* AllocationTable::find_at(std::uint64_t offset) const {
  const auto found =
      std::lower_bound(fragments_.begin(), fragments_.end(), offset,
                       [](const Fragment& f, std::uint64_t at) { return f.offset < at; });
  if (found == fragments_.end() || found->offset != offset || found->step == kGap) return nullptr;
  return &*found;
}

void AllocationTable::set_note(std::uint64_t offset, std::uint64_t note) {
  const Fragment* const found = find_at(offset);
  assert(found != nullptr);
  fragments_[static_cast<std::size_t>(found - fragments_.data())].note = note;
}

bool AllocationTable::valid() const {
  std::uint64_t end = 0;
  std::uint64_t used = 0;
  std::vector<Step> steps;
  bool behind_gap = false;
  for (const Fragment& fragment : fragments_) {
    const bool gap = fragment.step == kGap;
    if (fragment.offset != end || fragment.bytes == 0 || fragment.bytes % alignment_ != 0 ||
        fragment.bytes > capacity_ - end || (gap && behind_gap)) {
      return false;
    }
    if (!gap) {
      used += fragment.bytes;
      steps.push_back(fragment.step);
    }
    end += fragment.bytes;
    behind_gap = gap;
  }
  std::sort(steps.begin(), steps.end());
  return end == capacity_ && used == used_ &&
         std::adjacent_find(steps.begin(), steps.end()) == steps.end();
}

}  // namespace holdfast::history
