#include "core/snapshot.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <mutex>

#include "core/checksum.hpp"
#include "core/parallel.hpp"

namespace holdfast::core {

StagingBuffer::StagingBuffer(std::uint64_t pages) : pages_(pages) {
  void* memory = ::mmap(nullptr, pages * kPage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(Errc::no_memory, "no memory for the copies of changed pages; raise ulimit -v");
  }
  ::madvise(memory, pages * kPage, MADV_HUGEPAGE);
  memory_ = static_cast<std::byte*>(memory);
}

StagingBuffer::~StagingBuffer() { ::munmap(memory_, pages_ * kPage); }

std::byte* StagingBuffer::reserve(std::uint64_t pages) {
  std::uint64_t used = used_.load();
  do {
    if (pages > pages_ - used) return nullptr;
  } while (!used_.compare_exchange_weak(used, used + pages));
  return memory_ + used * kPage;
}

namespace {

enum class Look : std::uint8_t { free, skip, compare };

// The first object that may have a page from this one on.
auto first_object(const SnapshotInput& input, std::uint64_t page) {
  const auto& objects = input.directory->objects();
  const auto object = std::upper_bound(
      objects.begin(), objects.end(), page * kPage,
      [](std::uint64_t value, const ObjectInfo& other) { return value < other.offset; });
  return object != objects.begin() ? std::prev(object) : object;
}

// Whether a glance tells that no page of a segment is to be looked at: all of it is of one object
// whose writers mark, and nothing is marked. A commit of a few pages passes by nearly all of the
// region so.
bool is_untouched(const SnapshotInput& input, std::uint64_t first, std::uint64_t last) {
  static constexpr std::array<std::uint8_t, kSegmentPages> kNoMarks{};
  if (input.compare_everything || first < kMetadataPages) return false;
  const auto object = first_object(input, first);
  return object != input.directory->objects().end() && object->tracking == Tracking::marked &&
         object->offset / kPage <= first &&
         object->offset / kPage + pages_of(object->bytes()) >= last &&
         std::memcmp(input.marks->data() + first, kNoMarks.data(), last - first) == 0;
}

// Decides for every page of a segment whether it is to be looked at.
void plan_segment(const SnapshotInput& input, std::uint64_t first, std::uint64_t last,
                  std::vector<Look>& look) {
  look.assign(kSegmentPages, Look::free);
  for (std::uint64_t page = first; page < std::min(last, kMetadataPages); ++page) {
    look[page - first] = Look::compare;
  }
  const auto& objects = input.directory->objects();
  auto object = first_object(input, first);
  for (; object != objects.end() && object->offset < last * kPage; ++object) {
    if (object->tracking == Tracking::none) continue;  // to the image it is free space
    const std::uint64_t begin = std::max(first, object->offset / kPage);
    const std::uint64_t end = std::min(last, object->offset / kPage + pages_of(object->bytes()));
    const bool all = input.compare_everything || object->tracking == Tracking::hashed;
    for (std::uint64_t page = begin; page < end; ++page) {
      look[page - first] = all || (*input.marks)[page] != 0 ? Look::compare : Look::skip;
    }
  }
}

class SegmentScan {
 public:
  SegmentScan(const SnapshotInput& input, const Image& image, StagingBuffer& staging)
      : input_(input), image_(image), staging_(staging) {}

  void run(std::uint64_t segment) {
    const std::uint64_t first = segment * kSegmentPages;
    const std::uint64_t last =
        std::min(first + kSegmentPages, pages_of(input_.directory->region_bytes()));
    if (is_untouched(input_, first, last)) return;
    std::vector<Look> look;
    plan_segment(input_, first, last, look);
    SegmentChange change;
    change.segment = segment;
    std::uint64_t compared = 0;
    for (std::uint64_t page = first; page < last; ++page) {
      const Look what = look[page - first];
      if (what == Look::skip) continue;
      const TableEntry before = image_.entry(page);
      const std::byte* const content = input_.region + page * kPage;
      bool zero = true;
      if (what == Look::compare) {
        zero = page_is_zero(content);
        ++compared;
      }
      if (zero ? before.block == 0 : before.block != 0 && image_.hash()(content) == before.hash) {
        continue;
      }
      make_table(change, first);
      (*change.table)[page - first] = {};
      (zero ? change.zeroed : change.pages).push_back(static_cast<std::uint16_t>(page - first));
    }
    examined_ += compared;
    if (!change.table) return;
    copy_pages(change, first);
    const std::lock_guard lock(mutex_);
    changes_.push_back(std::move(change));
  }

  Snapshot finish() {
    Snapshot snapshot;
    std::sort(changes_.begin(), changes_.end(),
              [](const auto& a, const auto& b) { return a.segment < b.segment; });
    snapshot.changes.region_bytes = input_.directory->region_bytes();
    snapshot.changes.segments = std::move(changes_);
    snapshot.pages_examined = examined_;
    snapshot.bytes_written = written_;
    return snapshot;
  }

 private:
  void make_table(SegmentChange& change, std::uint64_t first) const {
    if (change.table) return;
    change.table = std::make_unique<TablePage>();
    for (std::uint64_t i = 0; i < kSegmentPages; ++i) (*change.table)[i] = image_.entry(first + i);
  }

  // The hash that goes into the table is that of the copy, which no one can change any more.
  void copy_pages(SegmentChange& change, std::uint64_t first) {
    if (change.pages.empty()) return;
    std::byte* to = staging_.reserve(change.pages.size());
    const bool staged = to != nullptr;
    std::unique_ptr<std::byte, void (*)(void*)> own(nullptr, std::free);
    if (!staged) {
      own.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, change.pages.size() * kPage)));
      if (!own) throw Error(Errc::no_memory, "no memory for the copies of changed pages");
      to = own.get();
    }
    std::size_t kept = 0;
    for (const std::uint16_t index : change.pages) {
      std::byte* const copy = to + kept * kPage;
      std::memcpy(copy, input_.region + (first + index) * kPage, kPage);
      if (page_is_zero(copy)) {  // became so in between
        change.zeroed.push_back(index);
        continue;
      }
      (*change.table)[index] = {image_.hash()(copy), kUnplaced};
      change.pages[kept++] = index;
    }
    change.pages.resize(kept);
    if (staged) {
      change.content = to;
    } else {
      written_ += image_.write_ahead(change, to);
    }
  }

  const SnapshotInput& input_;
  const Image& image_;
  StagingBuffer& staging_;
  std::mutex mutex_;
  std::vector<SegmentChange> changes_;
  std::atomic<std::uint64_t> examined_{0};
  std::atomic<std::uint64_t> written_{0};
};

// Starting threads costs more than looking at a few pages.
unsigned threads_for(const SnapshotInput& input) {
  if (input.compare_everything) return worker_count();
  std::uint64_t work = 0;
  for (const ObjectInfo& object : input.directory->objects()) {
    if (object.tracking == Tracking::hashed) work += pages_of(object.bytes());
  }
  for (const std::uint8_t mark : *input.marks) work += mark;
  return work < 1024 ? 1 : worker_count();
}

}  // namespace

Snapshot take_snapshot(const SnapshotInput& input, Image& image, StagingBuffer& staging) {
  image.settle();
  staging.clear();
  SegmentScan scan(input, image, staging);
  const unsigned threads = image.store().writers() == 1 ? 1 : threads_for(input);
  parallel_for(segments_of(input.directory->region_bytes()), threads,
               [&](std::size_t segment) { scan.run(segment); });
  return scan.finish();
}

}  // namespace holdfast::core
