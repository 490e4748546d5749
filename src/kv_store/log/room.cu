// Where runs go, and cleaning, which makes room for them.
#include <algorithm>

#include "kv_store/log/log_store.hpp"

namespace holdfast::kv::log {

using detail::concat;

namespace {

constexpr std::uint64_t kRecordBytes = sizeof(Record);

}  // namespace

std::uint64_t LogStore::room() const {
  const std::uint64_t left = tail_ == ~0u ? 0 : shape_.segment_records - tail_used_;
  return (left > kHeaderRecords ? left - kHeaderRecords : 0) + free_.size() * piece_room();
}

RunPlan LogStore::plan(std::uint64_t records, std::uint64_t tombstones) {
  RunPlan run;
  run.shift = shift_;
  run.records = static_cast<std::uint32_t>(records);
  run.tombstones = static_cast<std::uint32_t>(tombstones);
  run.before = counts_;
  run.before.number += 1;
  run.before.opening = opening_;
  const std::uint64_t left = tail_ == ~0u ? 0 : shape_.segment_records - tail_used_;
  std::size_t taken = 0;
  if (left > kHeaderRecords) {
    run.first = (tail_ << shift_) + tail_used_;
    run.first_room = static_cast<std::uint32_t>(left - kHeaderRecords);
    run.chain = chain_;
  } else {
    run.first = free_[taken++] << shift_;
    run.first_room = static_cast<std::uint32_t>(piece_room());
  }
  run.pieces = run.piece_of(run.records - 1) + 1;
  const std::uint32_t more = run.pieces - 1;
  if (more <= RunPlan::kInline) {
    for (std::uint32_t i = 0; i < more; ++i) run.inline_segments[i] = free_[taken + i];
    return run;
  }
  std::copy_n(free_.begin() + static_cast<std::ptrdiff_t>(taken), more, memory_.segments_in.data());
  copy_async(stream, memory_.segments.data(), memory_.segments_in.data(),
             more * sizeof(std::uint32_t));
  run.segments = memory_.segments.data();
  return run;
}

void LogStore::advance(const RunPlan& run, const Outcome& done) {
  counts_.number = run.before.number;
  chain_ = done.chain;
  for (std::uint32_t piece = 0; piece < run.pieces; ++piece) {
    const bool goes_on = piece == 0 && run.first % shape_.segment_records != 0;
    if (!goes_on) {
      seal();
      tail_ = free_.front();
      free_.pop_front();
      tail_used_ = 0;
      segments_[tail_].oldest = counts_.number;
      segments_[tail_].oldest_piece = piece;
    }
    tail_used_ += kHeaderRecords + run.end_of(piece) - run.begin_of(piece);
    segments_[tail_].newest = counts_.number;
    ++tail_pieces_;
  }
  bytes_stored_ += (run.records + std::uint64_t{run.pieces} * kHeaderRecords) * kRecordBytes +
                   sizeof(Commit::word);
}

// A run that is sure to fit: nothing has to be counted before it is written.
bool LogStore::is_sure(std::uint32_t count) const {
  return pairs_ + count <= shape_.capacity && pairs_ + tombstones_ + count <= most_entries_ &&
         used_slots_ + count <= most_slots();
}

void LogStore::make_room(std::uint64_t records) {
  const std::uint64_t wanted = records + kReservedSegments * piece_room();
  const std::uint64_t most = shape_.segments * piece_room();
  while (pairs_ + tombstones_ + wanted > most && drop_oldest_tombstones()) {
  }
  const auto gains = [&](Choice choice) {
    const std::uint64_t before = room();
    return clean(wanted - before, std::max<std::uint64_t>(max_batch, piece_room()), choice) &&
           room() > before;
  };
  // Each turn gains room, or takes away tombstones, of which no more come.
  while (pairs_ + tombstones_ + wanted <= most && room() < wanted) {
    if (gains(Choice::benefit) || gains(Choice::least) || drop_oldest_tombstones()) continue;
    break;
  }
  if (room() >= wanted) return;
  const std::uint64_t live = pairs_ + tombstones_;
  throw Error(
      Errc::no_space,
      concat("store: a batch of ", records, " operations; of its log of ", shape_.records(),
             " records ", live, " are live, and ", kReservedSegments * shape_.segment_records,
             " are kept for cleaning: split the batch, erase pairs, or make a store of a "
             "larger log. Nothing of this batch was stored"));
}

// ---- Cleaning -----------------------------------------------------------------------------------

void LogStore::bring_counts() {
  copy_async(stream, memory_.counts_out.data(), memory_.counts.data(), memory_.counts.bytes());
  counts_come_ = true;
}

void LogStore::update_states() {
  if (!counts_come_) {
    bring_counts();
    stream.synchronize();
  }
  counts_come_ = false;
  const std::uint32_t* const live = memory_.counts_out.data();
  const std::uint32_t* const tombs = live + shape_.segments;
  for (std::uint32_t i = 0; i < shape_.segments; ++i) {
    segments_[i].live = live[i];
    segments_[i].tombstones = tombs[i];
    segments_[i].spare = i == tail_ ? shape_.segment_records - tail_used_ : 0;
  }
}

bool LogStore::clean(std::uint64_t wanted, std::uint64_t most, Choice choice) {
  update_states();
  const std::uint64_t left = choice == Choice::least ? free_.size() * piece_room() : room();
  const Victims victims = choose_victims(segments_, tail_, shape_.segment_records, counts_.number,
                                         wanted, std::min(most, left), choice);
  if (victims.segments.empty()) return false;
  const bool takes_tail = contains(victims, tail_);
  std::copy(victims.segments.begin(), victims.segments.end(), memory_.victims_in.data());
  copy_async(stream, memory_.victims.data(), memory_.victims_in.data(),
             victims.segments.size() * sizeof(std::uint32_t));

  VictimList list{memory_.victims.data(), static_cast<std::uint32_t>(victims.segments.size()),
                  kNone};
  const std::uint32_t oldest = tombstones_ != 0 ? oldest_of(segments_, tail_) : kNone;
  std::uint64_t tombstones = 0;
  std::uint64_t dropped = 0;
  for (const std::uint32_t segment : victims.segments) {
    const std::uint32_t tombs = segments_[segment].tombstones;
    tombstones += tombs;
    if (segment != oldest || tombs == 0 || takes_tail) continue;
    list.drops = segment;
    dropped = tombs;
  }
  const std::uint64_t records = victims.live - dropped;
  RunPlan run;
  if (takes_tail) tail_ = ~0u;
  if (records != 0) run = plan(records, tombstones - dropped);
  begin_work(std::max(run.pieces, 1u));
  with_index([&](const auto& index) {
    if (records != 0) {
      launch_keep(stream, medium_, index, list, run, memory_.slots.data(), work());
    }
    launch_retire(stream, medium_, index, list, run, work().outcome);
  });
  const Outcome done = await_outcome();
  if ((records != 0 && done.committed == 0) || done.gone != dropped) {
    throw Error(Errc::device, concat(where, ": cleaning found ", done.kept, " pairs and ",
                                     done.kept_tombs + done.gone, " tombstones where ", records,
                                     " records are to be live"));
  }
  if (records != 0) advance(run, done);
  bytes_stored_ += victims.segments.size() * sizeof(std::uint64_t);
  copied_records_ += records;
  tombstones_ -= dropped;
  gone_slots_ += dropped;
  for (const std::uint32_t segment : victims.segments) {
    segments_[segment] = {};
    taken_[segment] = 0;
    free_.push_back(segment);
  }
  return true;
}

std::uint64_t LogStore::slack() const {
  constexpr std::uint64_t kPart = 128;  // of the log: so much less of it is used
  return std::min<std::uint64_t>(max_batch, shape_.records() / kPart);
}

std::uint64_t LogStore::room_kept(std::uint32_t count) const {
  return count + kReservedSegments * piece_room() + slack();
}

// One piece of cleaning, and never more than the largest batch has. No earlier than it has to be,
// since what is cleaned later has less that is live; but there has to be room for the copies, too:
// where there is little, one batch takes many pieces. Small batches take turns at waiting for one.
void LogStore::clean_behind(std::uint32_t count) noexcept {
  try {
    const std::uint64_t most = std::max<std::uint64_t>(max_batch, piece_room());
    const std::uint64_t kept = room_kept(count);
    const bool crowded = tombstones_ != 0 && (pairs_ + tombstones_ + max_batch > most_entries_ ||
                                              used_slots_ + max_batch > most_slots());
    if (crowded || room() < kept - slack() / 2) {
      const bool oldest = crowded || tombstones_ > (pairs_ + tombstones_) / 4;
      (void)clean(kept > room() ? kept - room() : 1, most,
                  oldest ? Choice::oldest : Choice::benefit);
    }
    if (gone_slots_ > base_.mask / 16) sweep();
    snapshot_behind();
  } catch (const std::exception& error) {
    broken_ = error.what();  // the batch is in; the next call says it
  }
}

// For a batch that has no room beside them. One segment at a time, each of them once.
bool LogStore::drop_oldest_tombstones() {
  for (std::uint32_t i = 0; i < shape_.segments && tombstones_ != 0; ++i) {
    const std::uint64_t before = tombstones_;
    if (!clean(1, piece_room(), Choice::oldest)) return false;
    if (tombstones_ < before) return true;
  }
  return false;
}

bool LogStore::drop_tombstones(std::uint64_t count) {
  const std::uint64_t before = tombstones_;
  while (before - tombstones_ < count && drop_oldest_tombstones()) {
  }
  return tombstones_ < before;
}

void LogStore::sweep() {
  begin_work(1);
  with_index([&](const auto& index) { launch_sweep(stream, index, work().outcome); });
  used_slots_ -= await_outcome().gone;
  gone_slots_ = 0;
}

}  // namespace holdfast::kv::log
