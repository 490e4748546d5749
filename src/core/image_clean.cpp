// Cleaning: commits of scattered pages leave extents that are partly free. Some of their blocks
// move along with each commit, so that the next one finds whole extents and opening reads little
// that no one needs. docs/format.md, "Where pages go".
#include <algorithm>
#include <array>
#include <iterator>

#include "core/image_plan.hpp"

namespace holdfast::core {

namespace {

// An extent is left alone if freeing it would write more blocks than this.
constexpr std::uint64_t kMostWritten = kExtentBlocks * 3 / 4;

// How many free blocks may lie between others. Opening reads most of them along with the rest,
// and the fewer they are to be, the more has to be moved.
constexpr std::uint64_t hole_limit(std::uint64_t in_force) { return in_force / 4 + kGrowthSlack; }

// The most blocks that a commit writes for others, given its own.
constexpr std::uint64_t budget(std::uint64_t own) { return std::max(own + own / 2, kExtentBlocks); }

constexpr std::uint32_t kNoChange = 0xffffffff;

}  // namespace

class Image::Cleaning {
 public:
  Cleaning(const Image& image, ChangeSet& changes, const Tally& tally)
      : image_(image), map_(*image.map_), changes_(changes), tally_(tally) {}

  std::vector<Move> run() {
    survey();
    if (!needed()) return {};
    change_of_.assign(segments_of(changes_.region_bytes), kNoChange);
    for (std::size_t i = 0; i < changes_.segments.size(); ++i) {
      change_of_[changes_.segments[i].segment] = static_cast<std::uint32_t>(i);
    }
    std::uint64_t left = budget(own());
    for (const std::uint32_t extent : emptiest_first()) {
      if (!needed()) break;
      const std::uint64_t written = look_at(extent);
      if (written == 0 || written > kMostWritten) continue;
      if (written > left) break;
      left -= written;
      free(extent, written);
    }
    // Tables and moved pages are written in the order of the region, and read in that of the file.
    std::sort(changes_.segments.begin(), changes_.segments.end(),
              [](const auto& a, const auto& b) { return a.segment < b.segment; });
    std::sort(moves_.begin(), moves_.end(),
              [](const Move& a, const Move& b) { return a.from < b.from; });
    return std::move(moves_);
  }

 private:
  std::uint64_t own() const { return tally_.staged + tally_.ahead + tally_.tables; }
  std::uint64_t left_in(std::uint64_t extent) const {
    return map_.used(extent) - tally_.dying[extent];
  }

  // Counts what the next commit will find if nothing is moved.
  void survey() {
    for (std::uint64_t extent = 0; extent < map_.extents(); ++extent) {
      if (map_.used(extent) == 0) continue;
      const std::uint64_t left = left_in(extent);
      if (left == 0) {
        roomy_ += kExtentBlocks;
      } else {
        holes_ += kExtentBlocks - left;
        ++with_left_[left];
      }
    }
    const std::uint64_t before = map_.roomy(tally_.in_force);
    roomy_ += before - std::min(before, tally_.staged + tally_.tables);
  }

  // The next commit is taken to be like this one, and to move some pages as well.
  bool needed() const {
    return own() > 0 && (roomy_ < own() + own() / 2 || holes_ > hole_limit(tally_.in_force));
  }

  // The extents that may be worth it, sorted by what is left in them.
  std::vector<std::uint32_t> emptiest_first() const {
    std::array<std::uint64_t, kMostWritten + 2> start{};
    for (std::uint64_t left = 1; left <= kMostWritten; ++left) {
      start[left + 1] = start[left] + with_left_[left];
    }
    std::vector<std::uint32_t> sorted(start[kMostWritten + 1]);
    for (std::uint64_t extent = 0; extent < map_.extents(); ++extent) {
      const std::uint64_t left = left_in(extent);
      if (left == 0 || left > kMostWritten) continue;
      sorted[start[left]++] = static_cast<std::uint32_t>(extent);
    }
    return sorted;
  }

  SegmentChange* change_of(std::uint64_t segment) const {
    const std::uint32_t index = change_of_[segment];
    return index == kNoChange ? nullptr : &changes_.segments[index];
  }

  // Finds what has to be written for this extent to become free: its pages, and the tables that
  // no one has changed so far. 0 if it cannot become free.
  std::uint64_t look_at(std::uint64_t extent) {
    pages_.clear();
    segments_.clear();
    if (map_.is_current(extent)) return 0;
    const std::uint64_t first = BlockMap::extent_block(extent);
    for (std::uint64_t block = first; block < first + kExtentBlocks; ++block) {
      const BlockMap::Owner owner = map_.owner(block);
      if (owner == BlockMap::kFree) continue;
      if (owner == BlockMap::kPending) return 0;
      if (BlockMap::is_table(owner)) {
        add_segment(BlockMap::segment_of(owner));
        continue;
      }
      const std::uint64_t page = BlockMap::page_of(owner);
      const SegmentChange* const change = change_of(page / kSegmentPages);
      if (change != nullptr && (*change->table)[page % kSegmentPages].block != block) continue;
      pages_.push_back(page);
      add_segment(page / kSegmentPages);
    }
    return pages_.size() + segments_.size();
  }

  void add_segment(std::uint64_t segment) {
    if (change_of(segment) != nullptr) return;
    if (std::find(segments_.begin(), segments_.end(), segment) != segments_.end()) return;
    segments_.push_back(segment);
  }

  void free(std::uint64_t extent, std::uint64_t written) {
    image_.map_->close(extent);
    for (const std::uint64_t segment : segments_) {
      change_of_[segment] = static_cast<std::uint32_t>(changes_.segments.size());
      SegmentChange& change = changes_.segments.emplace_back();
      change.segment = segment;
      change.table = std::make_unique<TablePage>(*image_.tables_[segment]);
    }
    for (const std::uint64_t page : pages_) {
      TableEntry& entry = (*change_of(page / kSegmentPages)->table)[page % kSegmentPages];
      moves_.push_back({entry.block, page, &entry});
    }
    roomy_ += kExtentBlocks;
    roomy_ -= std::min(roomy_, written);
    holes_ += segments_.size();  // where their tables were
    holes_ -= std::min(holes_, kExtentBlocks - left_in(extent));
  }

  const Image& image_;
  const BlockMap& map_;
  ChangeSet& changes_;
  const Tally& tally_;
  std::uint64_t roomy_ = 0;  // blocks in runs of an extent at least, for the next commit
  std::uint64_t holes_ = 0;  // free blocks of extents that are partly used
  std::array<std::uint64_t, kExtentBlocks + 1> with_left_{};  // extents
  std::vector<std::uint32_t> change_of_;                      // by segment, into changes_
  std::vector<Move> moves_;
  // Of the extent that is looked at: what has to be written anew.
  std::vector<std::uint64_t> pages_;
  std::vector<std::uint64_t> segments_;
};

std::vector<Image::Move> Image::clean(ChangeSet& changes, const Tally& tally) {
  return Cleaning(*this, changes, tally).run();
}

}  // namespace holdfast::core
