// What the pager does behind the program's back. Each function does one piece of work, with the
// mutex held but while bytes move, and says whether there was any.
#include <algorithm>

#include "pager.hpp"

namespace score {

namespace {

constexpr std::size_t kBatch = 32;  // pages: 64 MiB

}  // namespace

// From the GPU to the host, in the order of the saves.
bool Pager::write_back(Lock& lock, holdfast::Stream& stream) {
  std::vector<std::uint32_t> pages;
  while (!unsaved_.empty() && pages.size() < kBatch) {
    const std::uint32_t page = unsaved_.front();
    const bool gone = pages_[page].in[kGpu].frame == kNone;  // restored, and discarded
    if (!gone) pages.push_back(page);
    unsaved_.pop_front();
  }
  if (pages.empty()) {
    changed_.notify_all();  // flush() may have waited for what is gone
    return false;
  }
  const std::uint32_t taken = take_frames(kHost, pages, save_waits_);
  for (std::size_t i = pages.size(); i > taken; --i) unsaved_.push_front(pages[i - 1]);
  pages.resize(taken);
  if (pages.empty()) return false;
  std::vector<Move> moves;
  for (const std::uint32_t page : pages) {
    ++pages_[page].in[kGpu].pins;
    add(moves, address(kHost, pages_[page].in[kHost].frame),
        address(kGpu, pages_[page].in[kGpu].frame), page_bytes_);
  }
  saving_ += pages.size();
  lock.unlock();
  queue(stream, moves);
  stream.synchronize();
  lock.lock();
  saving_ -= pages.size();
  for (const std::uint32_t page : pages) {
    arrived(kHost, page);
    unpin(kGpu, page);
    unwritten_.push_back(page);
    if (pages_[page].consumed && options_.discard_consumed) {
      drop(kHost, page);
      if (pages_[page].in[kGpu].pins == 0) drop(kGpu, page);
    }
  }
  changed_.notify_all();
  return true;
}

// From the host to the file: as far as room is short, or everything if the program waits for it.
bool Pager::write_file(Lock& lock) {
  std::vector<std::uint32_t> pages;
  std::vector<DirectFile::Piece> pieces;
  const Frames& frames = frames_[kHost];
  // Room is frames that are free, or could be at once.
  const bool short_of_room =
      !unwritten_.empty() &&
      unwritten_.size() + ahead_[kHost] + frames.count() / 4 > frames.count();
  if (!short_of_room && !flushing_) return false;
  while (!unwritten_.empty() && pages.size() < kBatch) {
    const std::uint32_t page = unwritten_.front();
    unwritten_.pop_front();
    if (!pages_[page].in[kHost].whole()) continue;  // restored, and discarded
    ++pages_[page].in[kHost].pins;
    pages.push_back(page);
    pieces.push_back(
        {address(kHost, pages_[page].in[kHost].frame), page_bytes_, page * page_bytes_});
  }
  if (pages.empty()) {
    changed_.notify_all();
    return false;
  }
  saving_ += pages.size();
  lock.unlock();
  file_.write(pieces);
  lock.lock();
  saving_ -= pages.size();
  for (const std::uint32_t page : pages) {
    unpin(kHost, page);
    pages_[page].in_file = true;
    if (pages_[page].consumed && options_.discard_consumed && pages_[page].in[kHost].pins == 0) {
      drop(kHost, page);
    }
  }
  changed_.notify_all();
  return true;
}

// Reads ahead what only the file has. A quarter of the host is left to what the program saves and
// misses.
bool Pager::prefetch_to_host(Lock& lock) {
  std::size_t& next = next_[kHost];
  if (!prefetching_ || next >= hints_.size()) return false;
  const Step step = hints_[next];
  std::vector<std::uint32_t> pages;
  const std::uint64_t limit = frames_[kHost].count() * 3 / 4;
  for (std::uint32_t i = 0; i < extents_[step].count; ++i) {
    const std::uint32_t number = extents_[step].first + i;
    const Page& page = pages_[number];
    if (page.consumed || page.in[kGpu].frame != kNone || step == restoring_) continue;
    if (page.in[kHost].frame != kNone) {
      if (ahead_[kHost] < limit) set_ahead(kHost, number, true);
    } else if (page.in_file) {
      pages.push_back(number);
    }
  }
  if (pages.empty()) {
    ++next;
    changed_.notify_all();
    return true;
  }
  // What the GPU is to have next is read in any case: all that is ahead waits behind it.
  const bool full = ahead_[kHost] + pages.size() > limit && ahead_[kHost] > 0;
  if (full && next > next_[kGpu]) return false;
  pages.resize(take_frames(kHost, pages, false));
  if (pages.empty()) return false;
  for (const std::uint32_t page : pages) set_ahead(kHost, page, true);
  lock.unlock();
  read_file(pages);
  lock.lock();
  for (const std::uint32_t page : pages) {
    arrived(kHost, page);
    if (pages_[page].consumed) set_ahead(kHost, page, false);
  }
  changed_.notify_all();
  return true;
}

bool Pager::prefetch_to_gpu(Lock& lock, holdfast::Stream& stream) {
  std::size_t& next = next_[kGpu];
  if (!prefetching_ || next >= hints_.size()) return false;
  const Step step = hints_[next];
  const Extent extent = extents_[step];
  if (pages_[extent.first].consumed || step == restoring_) {
    ++next;
    return true;
  }
  // The disk has not been read that far.
  if (next >= next_[kHost]) return false;
  std::vector<std::uint32_t> pages = missing(kGpu, step);
  const std::uint64_t limit = frames_[kGpu].count();
  if (ahead_[kGpu] + extent.count > limit && ahead_[kGpu] > 0) return false;
  for (std::uint32_t i = 0; i < extent.count; ++i) {
    const std::uint32_t page = extent.first + i;
    if (pages_[page].in[kGpu].frame != kNone) set_ahead(kGpu, page, true);
  }
  // What left both memories since the disk was read that far is read again.
  for (const std::uint32_t page : pages) {
    if (pages_[page].in[kHost].frame != kNone || !pages_[page].in_file) continue;
    next_[kHost] = next;
    changed_.notify_all();
    return false;
  }
  std::erase_if(pages, [&](std::uint32_t page) { return !pages_[page].in[kHost].whole(); });
  if (pages.empty()) {
    ++next;
    return true;
  }
  pages.resize(take_frames(kGpu, pages, false));
  if (pages.empty()) return false;
  std::vector<Move> moves;
  for (const std::uint32_t page : pages) {
    set_ahead(kGpu, page, true);
    ++pages_[page].in[kHost].pins;
    add(moves, address(kGpu, pages_[page].in[kGpu].frame),
        address(kHost, pages_[page].in[kHost].frame), page_bytes_);
  }
  lock.unlock();
  queue(stream, moves);
  stream.synchronize();
  lock.lock();
  for (const std::uint32_t page : pages) {
    arrived(kGpu, page);
    unpin(kHost, page);
    set_ahead(kHost, page, false);
    if (pages_[page].consumed) set_ahead(kGpu, page, false);
  }
  changed_.notify_all();
  return true;
}

}  // namespace score
