// When snapshots are taken, and of which segments.
#include <algorithm>
#include <exception>

#include "kv_store/log/log_store.hpp"

namespace holdfast::kv::log {

namespace {

// Of fewer the headers are read as soon as a snapshot is.
constexpr std::uint32_t kManyPieces = 16;
// What is written of the log, in its parts, before closing is worth all snapshots.
constexpr std::uint64_t kPartWritten = 64;

}  // namespace

bool LogStore::is_sealed(std::uint32_t segment) const {
  return segments_[segment].newest != 0 && segment != tail_;
}

void LogStore::seal() {
  if (tail_ == ~0u) return;
  if (tail_pieces_ >= kManyPieces) due_.push_back(tail_);
  tail_pieces_ = 0;
}

void LogStore::take_snapshots(const std::vector<std::uint32_t>& segments) {
  SnapshotList list{};
  list.run = counts_.number;
  const auto take = [&] {
    if (list.count == 0) return;
    with_index(
        [&](const auto& index) { launch_snapshots(stream, medium_, index, snapshots_, list); });
    snapshot_bytes_ += list.count * snapshot_bytes(shape_.segment_records);
    list.count = 0;
  };
  for (const std::uint32_t segment : segments) {
    if (!is_sealed(segment) || taken_[segment] == counts_.number) continue;
    const SegmentState& state = segments_[segment];
    list.entries[list.count++] = {state.oldest, state.newest, state.oldest_piece, segment};
    taken_[segment] = counts_.number;
    if (list.count == SnapshotList::kMost) take();
  }
  take();
  stream.synchronize();
}

void LogStore::snapshot_behind() {
  if (due_.empty()) return;
  take_snapshots(due_);
  due_.clear();
}

// A store that is closed in a hurry, or by a crash, keeps those that it has.
void LogStore::close() noexcept {
  try {
    if (counts_.number == opened_run_ || !broken_.empty() || !use.lasts()) return;
    (void)usable();  // not in a forked child
    const std::uint64_t written = bytes_stored_ / sizeof(Record);
    const bool all = written >= shape_.records() / kPartWritten;
    std::vector<std::uint32_t> due;
    for (std::uint32_t i = 0; i < shape_.segments; ++i) {
      if (all || taken_[i] == 0) due.push_back(i);
    }
    take_snapshots(due);
  } catch (const std::exception&) {
    // The log has all that they would have.
  }
}

void LogStore::add_snapshot_stats(KvStore::Stats& stats) const {
  std::uint64_t oldest = counts_.number;
  for (std::uint32_t i = 0; i < shape_.segments; ++i) {
    if (taken_[i] == 0) continue;
    ++stats.snapshots;
    oldest = std::min(oldest, taken_[i]);
  }
  stats.snapshot_age = counts_.number - oldest;
  stats.snapshot_bytes = snapshot_bytes_;
  stats.snapshots_used = snapshots_used_;
  stats.snapshots_refused = snapshots_refused_;
}

}  // namespace holdfast::kv::log
