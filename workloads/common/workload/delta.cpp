#include "workload/delta.hpp"

#include <algorithm>
#include <bit>

#include "workload/cpu_flush.hpp"

namespace workload {
namespace {

using holdfast::Errc;
using holdfast::Error;
using holdfast::detail::concat;
using holdfast::testing::Access;
using holdfast::testing::Throttle;

// Tiles that a thread takes at a time: several times in a step, so that copies go on while others
// store, and that no thread has much to do when the others are done.
constexpr std::uint64_t kFewestTiles = 32;
constexpr std::uint64_t kMostTiles = 4096;
constexpr std::uint64_t kTimes = 4;

std::uint64_t tiles_for(std::uint64_t changes) {
  return (changes + DeltaTile::kChanges - 1) / DeltaTile::kChanges;
}

std::uint64_t part_of(std::uint64_t tiles, unsigned threads) {
  return std::clamp(tiles / (threads * kTimes), kFewestTiles, kMostTiles);
}

}  // namespace

// In one cache line, which reaches the medium as it is at some moment: `progress` is stored last.
struct alignas(64) Delta::LogHeader {
  std::uint64_t count;
  std::uint64_t progress;  // that the logged changes lead to
};

Delta::Delta(Backing& backing, std::uint32_t array, std::uint64_t bytes, std::uint64_t most,
             DeltaOrder order)
    : backing_(backing),
      array_(array),
      cells_(bytes / sizeof(Cell)),
      most_(most),
      tiles_(tiles_for(most)) {
  if (cells_ > std::uint64_t{1} << 32) {
    throw Error(Errc::invalid_argument,
                concat("mode ", to_string(backing.mode()), " takes an array of ",
                       (std::uint64_t{1} << 32) * sizeof(Cell), " bytes at most, not of ", bytes,
                       ": give a smaller one, or take mode cap-mm"));
  }
  if (order == DeltaOrder::sorted) sorter_.emplace(most);
  if (backing.mode() == Mode::cap_delta) {
    log_ = backing.target("delta log", medium_bytes(backing.mode(), most));
  } else {
    backing.set_up_staging(kMostTiles * sizeof(DeltaTile));
  }
}

DeltaOrder delta_order_option(const Settings& settings) {
  return choice_option<DeltaOrder>(
      settings, "changes", {{"gathered", DeltaOrder::gathered}, {"sorted", DeltaOrder::sorted}});
}

std::uint64_t Delta::medium_bytes(Mode mode, std::uint64_t most) {
  if (mode != Mode::cap_delta) return 0;
  return sizeof(LogHeader) + tiles_for(most) * sizeof(DeltaTile);
}

Delta::LogHeader& Delta::header() const {
  return *reinterpret_cast<LogHeader*>(backing_.on_medium(log_));
}

const DeltaTile* Delta::logged() const {
  return reinterpret_cast<const DeltaTile*>(backing_.on_medium(log_) + sizeof(LogHeader));
}

void Delta::publish(std::uint64_t count, std::uint64_t progress) {
  backing_.stream().synchronize();
  if (count > most_) {
    throw Error(Errc::invalid_argument,
                concat("a step gathered ", count, " changes, and ", most_, " were announced"));
  }
  backing_.timed([&] {
    if (count == 0) return;
    if (backing_.mode() == Mode::cap_delta) {
      commit(in_order(count), count, progress);
      store_logged(count);
    } else {
      store_raw(in_order(count), count);
    }
  });
  backing_.set_progress(progress);
}

const DeltaTile* Delta::in_order(std::uint64_t count) {
  if (!sorter_) return tiles_.data();
  const DeltaTile* const sorted = sorter_->sort(backing_.stream(), tiles_.data(), count,
                                                static_cast<unsigned>(std::bit_width(cells_ - 1)));
  backing_.stream().synchronize();
  return sorted;
}

// The log is free: the step before has set its progress, so that nobody reads what it logged.
void Delta::commit(const DeltaTile* tiles, std::uint64_t count, std::uint64_t progress) {
  backing_.copy_to_target(log_, sizeof(LogHeader), tiles, tiles_for(count) * sizeof(DeltaTile));
  const Throttle::Mark begun = backing_.throttle().mark();
  header().count = count;
  __atomic_store_n(&header().progress, progress, __ATOMIC_RELEASE);
  flush_lines(&header(), sizeof(LogHeader));
  backing_.count_written(sizeof(LogHeader));
  backing_.throttle().write(begun, sizeof(LogHeader), Access::random);
  backing_.throttle().wait();
}

void Delta::store_logged(std::uint64_t count) {
  const Throttle::Mark begun = backing_.throttle().mark();
  const std::uint64_t tiles = tiles_for(count);
  backing_.team().for_chunks(tiles, part_of(tiles, backing_.cpu_threads()),
                             [&](unsigned, std::uint64_t first, std::uint64_t number) {
                               const std::uint64_t before = first * DeltaTile::kChanges;
                               apply(logged() + first,
                                     std::min(number * DeltaTile::kChanges, count - before));
                             });
  backing_.count_written(count * sizeof(Cell));
  backing_.throttle().write(begun, count * sizeof(Cell), Access::random);
  backing_.throttle().wait();
}

// Every thread copies a part and stores it while others copy.
void Delta::store_raw(const DeltaTile* tiles, std::uint64_t count) {
  const Throttle::Mark begun = backing_.throttle().mark();
  const std::uint64_t filled = tiles_for(count);
  backing_.team().for_chunks(filled, part_of(filled, backing_.cpu_threads()),
                             [&](unsigned thread, std::uint64_t first, std::uint64_t number) {
                               const std::uint64_t before = first * DeltaTile::kChanges;
                               const unsigned char* const here = backing_.stage(
                                   thread, tiles + first, number * sizeof(DeltaTile));
                               apply(reinterpret_cast<const DeltaTile*>(here),
                                     std::min(number * DeltaTile::kChanges, count - before));
                             });
  backing_.count_written(count * sizeof(Cell));
  backing_.throttle().write(begun, count * sizeof(Cell), Access::random);
  backing_.throttle().wait();
}

// By the calling thread; durable on return.
void Delta::apply(const DeltaTile* tiles, std::uint64_t count) {
  auto* const cells = reinterpret_cast<Cell*>(backing_.on_medium(array_));
  const auto place = [&](std::uint64_t i) {
    return cells + tiles[i / DeltaTile::kChanges].cell[i % DeltaTile::kChanges];
  };
  store_scattered(count, place, [&](std::uint64_t i) {
    *place(i) = tiles[i / DeltaTile::kChanges].value[i % DeltaTile::kChanges];
  });
}

void Delta::recover() {
  if (backing_.mode() != Mode::cap_delta) return;
  const LogHeader& log = header();
  const std::uint64_t progress = backing_.progress();
  if (log.progress <= progress) return;  // nothing was committed behind it
  bool sound = log.progress == progress + 1 && log.count <= most_;
  for (std::uint64_t i = 0; sound && i < log.count; ++i) {
    sound = logged()[i / DeltaTile::kChanges].cell[i % DeltaTile::kChanges] < cells_;
  }
  if (!sound) {
    throw Error(Errc::damaged,
                concat("the redo log of a step that was cut off holds ", log.count,
                       " changes that lead from step ", progress, " to ", log.progress,
                       " and do not fit its array: remove the region and begin anew"));
  }
  backing_.timed([&] { store_logged(log.count); });
  backing_.set_progress(log.progress);
  backing_.reload(array_);
}

}  // namespace workload
