#include "pager.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "holdfast/error.hpp"

namespace score {

Pager::Pager(const StoreOptions& options)
    : options_(options),
      page_bytes_(options.page_bytes),
      gpu_(options.gpu_bytes),
      host_(options.host_bytes),
      file_(options.folder + "/pages"),
      frames_{Frames(options.gpu_bytes / options.page_bytes),
              Frames(options.host_bytes / options.page_bytes)} {
  if (frames_[kGpu].count() < 4 || frames_[kHost].count() < 4) {
    throw holdfast::Error(holdfast::Errc::invalid_argument,
                          "the pager: each memory needs four pages at least");
  }
  std::uint32_t first = 0;
  for (std::size_t step = 0; step < options.step_bytes.size(); ++step) {
    const auto count =
        static_cast<std::uint32_t>((options.step_bytes[step] + page_bytes_ - 1) / page_bytes_);
    extents_.push_back({first, count});
    steps_.insert(steps_.end(), count, step);
    first += count;
  }
  pages_.resize(first);
  start([this](Lock& lock, holdfast::Stream& stream) { return write_back(lock, stream); });
  start([this](Lock& lock, holdfast::Stream&) { return write_file(lock); });
  start([this](Lock& lock, holdfast::Stream&) { return prefetch_to_host(lock); });
  start([this](Lock& lock, holdfast::Stream& stream) { return prefetch_to_gpu(lock, stream); });
}

Pager::~Pager() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

// A thread that does `body` over and over, and waits where that had nothing to do.
template <class Body>
void Pager::start(Body body) {
  threads_.emplace_back([this, body] {
    holdfast::Stream stream;
    Lock lock(mutex_);
    while (!stopping_ && !error_) {
      try {
        if (!body(lock, stream)) changed_.wait(lock);
      } catch (...) {
        if (!lock.owns_lock()) lock.lock();
        fail(std::current_exception());
      }
    }
  });
}

void Pager::fail(std::exception_ptr error) {
  if (!error_) error_ = std::move(error);
  changed_.notify_all();
}

void Pager::check() const {
  if (error_) std::rethrow_exception(error_);
}

// --- Frames
// ----------------------------------------------------------------------------------------

std::byte* Pager::address(Memory memory, std::uint32_t frame) const {
  return (memory == kGpu ? gpu_.data() : host_.data()) + frame * page_bytes_;
}

// Of the array, what a page holds: the last of a step may be less than a page.
std::uint64_t Pager::bytes_of(Step step, std::uint32_t page) const {
  const std::uint64_t before = (page - extents_[step].first) * page_bytes_;
  return std::min(page_bytes_, options_.step_bytes[step] - before);
}

void Pager::set_ahead(Memory memory, std::uint32_t page, bool ahead) {
  bool& flag = pages_[page].in[memory].ahead;
  if (flag != ahead) ahead_[memory] += ahead ? 1 : ~std::uint64_t{0};
  flag = ahead;
}

void Pager::drop(Memory memory, std::uint32_t page) {
  Copy& copy = pages_[page].in[memory];
  set_ahead(memory, page, false);
  frames_[memory].give_back(copy.frame);
  copy.frame = kNone;
}

// Consumed pages first, then the least recently used. What was prefetched stays, unless nothing
// else is left for one whose program waits.
void Pager::evict(Memory memory, std::uint64_t wanted, bool demand) {
  std::vector<std::uint32_t> candidates;
  for (std::uint32_t frame = 0; frame < frames_[memory].count(); ++frame) {
    const std::uint32_t number = frames_[memory].page_of(frame);
    if (number == kNone) continue;
    const Page& page = pages_[number];
    const Copy& copy = page.in[memory];
    const bool elsewhere = page.in_file || (memory == kGpu && page.in[kHost].whole());
    const bool takes_past = copy.ahead && !demand;
    if (elsewhere && copy.pins == 0 && !copy.coming && !takes_past) candidates.push_back(number);
  }
  const auto before = [&](std::uint32_t a, std::uint32_t b) {
    const auto key = [&](std::uint32_t i) {
      return std::tuple(pages_[i].in[memory].ahead, !pages_[i].consumed, pages_[i].used);
    };
    return key(a) < key(b);
  };
  const auto count =
      static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(wanted, candidates.size()));
  std::partial_sort(candidates.begin(), candidates.begin() + count, candidates.end(), before);
  for (std::ptrdiff_t i = 0; i < count; ++i) drop(memory, candidates[static_cast<std::size_t>(i)]);
}

std::uint32_t Pager::take_frames(Memory memory, const std::vector<std::uint32_t>& pages,
                                 bool demand) {
  Frames& frames = frames_[memory];
  if (frames.free() < pages.size()) evict(memory, pages.size() - frames.free(), demand);
  std::uint32_t taken = 0;
  for (const std::uint32_t page : pages) {
    if (frames.free() == 0) break;
    Copy& copy = pages_[page].in[memory];
    copy.frame = frames.take(page);
    copy.coming = true;
    ++copy.pins;
    ++taken;
  }
  return taken;
}

void Pager::arrived(Memory memory, std::uint32_t page) {
  pages_[page].in[memory].coming = false;
  unpin(memory, page);
}

std::vector<std::uint32_t> Pager::missing(Memory memory, Step step) const {
  std::vector<std::uint32_t> pages;
  for (std::uint32_t i = 0; i < extents_[step].count; ++i) {
    const std::uint32_t page = extents_[step].first + i;
    if (pages_[page].in[memory].frame == kNone) pages.push_back(page);
  }
  return pages;
}

// --- Copies
// ----------------------------------------------------------------------------------------

void Pager::add(std::vector<Move>& moves, std::byte* to, const std::byte* from,
                std::uint64_t bytes) {
  if (!moves.empty()) {
    Move& last = moves.back();
    if (last.to + last.bytes == to && last.from + last.bytes == from) {
      last.bytes += bytes;
      return;
    }
  }
  moves.push_back({to, from, bytes});
}

void Pager::queue(holdfast::Stream& stream, const std::vector<Move>& moves) {
  for (const Move& move : moves) holdfast::copy_async(stream, move.to, move.from, move.bytes);
}

// Whole pages of the file, into their frames of the host.
void Pager::read_file(const std::vector<std::uint32_t>& pages) {
  std::vector<DirectFile::Piece> pieces;
  for (const std::uint32_t page : pages) {
    std::byte* to = address(kHost, pages_[page].in[kHost].frame);
    const std::uint64_t offset = page * page_bytes_;
    if (!pieces.empty()) {
      DirectFile::Piece& last = pieces.back();
      if (last.memory + last.bytes == to && last.offset + last.bytes == offset) {
        last.bytes += page_bytes_;
        continue;
      }
    }
    pieces.push_back({to, page_bytes_, offset});
  }
  file_.read(pieces);
}

// --- The program's calls
// -----------------------------------------------------------------------------------------

void Pager::save(Step step, holdfast::Stream& stream) {
  const Extent extent = extents_[step];
  Lock lock(mutex_);
  std::vector<std::uint32_t> left = missing(kGpu, step);
  bool waited = false;
  while (!left.empty()) {
    check();
    const std::uint32_t taken = take_frames(kGpu, left, true);
    if (taken == 0) {
      if (!std::exchange(waited, true)) ++counts_.waits;
      save_waits_ = true;
      changed_.notify_all();
      changed_.wait(lock);
      save_waits_ = false;
      continue;
    }
    std::vector<Move> moves;
    for (std::uint32_t i = 0; i < taken; ++i) {
      const std::uint32_t page = left[i];
      add(moves, address(kGpu, pages_[page].in[kGpu].frame),
          options_.array + (page - extent.first) * page_bytes_, bytes_of(step, page));
    }
    lock.unlock();
    queue(stream, moves);
    stream.synchronize();
    lock.lock();
    for (std::uint32_t i = 0; i < taken; ++i) {
      arrived(kGpu, left[i]);
      pages_[left[i]].used = ++clock_;
      unsaved_.push_back(left[i]);
    }
    left.erase(left.begin(), left.begin() + taken);
    changed_.notify_all();
  }
}

// Lets go of frames that a restore copies from, once it has.
void Pager::release(Lock& lock, Pinned& pinned, holdfast::Stream& stream) {
  lock.unlock();
  stream.synchronize();
  lock.lock();
  for (const auto& [memory, page] : pinned) unpin(memory, page);
  pinned.clear();
  changed_.notify_all();
}

// Brings pages that only the file has, through frames of the host: those that the restore has
// pinned itself, too, if there are no others.
void Pager::restore_missing(Lock& lock, Step step, std::vector<std::uint32_t> pages, Pinned& pinned,
                            holdfast::Stream& stream) {
  const std::uint32_t first = extents_[step].first;
  while (!pages.empty()) {
    check();
    const std::uint32_t taken = take_frames(kHost, pages, true);
    if (taken == 0) {
      if (pinned.empty()) {
        changed_.wait(lock);
      } else {
        release(lock, pinned, stream);
      }
      continue;
    }
    const std::vector<std::uint32_t> batch(pages.begin(), pages.begin() + taken);
    lock.unlock();
    read_file(batch);
    std::vector<Move> moves;
    for (const std::uint32_t page : batch) {
      add(moves, options_.array + (page - first) * page_bytes_,
          address(kHost, pages_[page].in[kHost].frame), bytes_of(step, page));
    }
    queue(stream, moves);
    stream.synchronize();
    lock.lock();
    for (const std::uint32_t page : batch) arrived(kHost, page);
    pages.erase(pages.begin(), pages.begin() + taken);
    changed_.notify_all();
  }
}

void Pager::restore(Step step, holdfast::Stream& stream) {
  const Extent extent = extents_[step];
  Lock lock(mutex_);
  restoring_ = step;
  // What is on its way is waited for: another copy of it would be slower.
  const auto on_its_way = [&] {
    for (std::uint32_t i = 0; i < extent.count; ++i) {
      const Page& page = pages_[extent.first + i];
      if (page.in[kGpu].coming || (page.in[kHost].coming && page.in[kGpu].frame == kNone)) {
        return true;
      }
    }
    return false;
  };
  if (on_its_way()) ++counts_.waits;
  while (on_its_way()) {
    check();
    changed_.wait(lock);
  }
  check();
  std::vector<Move> moves;
  std::vector<std::uint32_t> in_file;
  Pinned pinned;
  for (std::uint32_t i = 0; i < extent.count; ++i) {
    const std::uint32_t page = extent.first + i;
    const Memory memory = pages_[page].in[kGpu].whole() ? kGpu : kHost;
    Copy& copy = pages_[page].in[memory];
    const std::uint64_t bytes = bytes_of(step, page);
    if (!copy.whole()) {
      if (!pages_[page].in_file) {
        throw holdfast::Error(holdfast::Errc::not_found,
                              "the pager has no step " + std::to_string(step));
      }
      in_file.push_back(page);
      counts_.restored_bytes[2] += bytes;
      continue;
    }
    ++copy.pins;
    pinned.emplace_back(memory, page);
    counts_.restored_bytes[memory] += bytes;
    add(moves, options_.array + i * page_bytes_, address(memory, copy.frame), bytes);
  }
  lock.unlock();
  queue(stream, moves);
  lock.lock();
  restore_missing(lock, step, std::move(in_file), pinned, stream);
  release(lock, pinned, stream);
  consume(step);
  restoring_ = ~Step{0};
  changed_.notify_all();
}

void Pager::consume(Step step) {
  for (std::uint32_t i = 0; i < extents_[step].count; ++i) {
    const std::uint32_t number = extents_[step].first + i;
    Page& page = pages_[number];
    page.consumed = true;
    page.used = ++clock_;
    for (const Memory memory : {kGpu, kHost}) {
      if (page.in[memory].frame == kNone) continue;
      set_ahead(memory, number, false);
      const bool rests = page.in[memory].pins == 0 && !page.in[memory].coming;
      if (options_.discard_consumed && rests) drop(memory, number);
    }
  }
}

void Pager::hint(std::span<const Step> steps) {
  const Lock lock(mutex_);
  hints_.insert(hints_.end(), steps.begin(), steps.end());
  changed_.notify_all();
}

void Pager::prefetch_start() {
  const Lock lock(mutex_);
  prefetching_ = true;
  changed_.notify_all();
}

void Pager::flush() {
  Lock lock(mutex_);
  flushing_ = true;
  changed_.notify_all();
  while (!unsaved_.empty() || !unwritten_.empty() || saving_ > 0) {
    check();
    changed_.wait(lock);
  }
  flushing_ = false;
  lock.unlock();
  file_.sync();
}

std::uint64_t Pager::ready(std::span<const Step> next) {
  const Lock lock(mutex_);
  std::uint64_t count = 0;
  for (const Step step : next) {
    for (std::uint32_t i = 0; i < extents_[step].count; ++i) {
      if (!pages_[extents_[step].first + i].in[kGpu].whole()) return count;
    }
    ++count;
  }
  return count;
}

StoreCounts Pager::counts() {
  const Lock lock(mutex_);
  StoreCounts counts = counts_;
  counts.pinned_bytes = options_.host_bytes;
  return counts;
}

std::unique_ptr<Store> open_pager(const StoreOptions& options) {
  return std::make_unique<Pager>(options);
}

}  // namespace score
