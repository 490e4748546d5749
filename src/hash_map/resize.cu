// Resizing: a level is added on top, and what the lowest one holds moves there, in steps.
#include <algorithm>
#include <utility>

#include "hash_map/host.hpp"

namespace holdfast::detail {
namespace {

constexpr std::uint64_t kAll = ~std::uint64_t{0};  // buckets

}  // namespace

// Where kernels find the places that were added.
void MapHost::list_values() {
  if (table_.values.size() < 2) return;
  const std::size_t added = table_.values.size() - 1;
  memory_.more_values = DeviceBuffer<std::byte*>(added);
  copy_async(stream, memory_.more_values.data(), table_.values.data() + 1,
             added * sizeof(std::byte*));
  stream.synchronize();
}

void MapHost::refuse_refs(const char* what) const {
  if (!refs_out_) return;
  throw Error(Errc::invalid_argument,
              concat(where, ": ", what,
                     " while a ref is out, whose kernels may look at what moves: "
                     "wait for them, and quiesce() first"));
}

// The free places in a ring that has room for more of them, those that were added behind them.
void MapHost::list_more_places(DeviceBuffer<std::uint32_t> larger) {
  const std::uint64_t before = memory_.free.size();
  const std::uint64_t free = limit_ - head_;
  const std::uint64_t at = before != 0 ? head_ % before : 0;
  const std::uint64_t piece = std::min(free, before - at);
  const std::uint64_t added = larger.size() - before;
  const unsigned long long ends[2] = {0, free + added};
  const core::StreamEnd end(stream);
  copy_async(stream, larger.data(), memory_.free.data() + at, piece * sizeof(std::uint32_t));
  copy_async(stream, larger.data() + piece, memory_.free.data(),
             (free - piece) * sizeof(std::uint32_t));
  map::launch_append_places(stream, larger.data() + free, static_cast<std::uint32_t>(before),
                            static_cast<std::uint32_t>(added));
  copy_async(stream, memory_.ends.data(), ends, sizeof(ends));
  stream.synchronize();
  head_ = ends[0];
  sorted_until_ = head_;
  limit_ = ends[1];
  memory_.free = std::move(larger);
}

void MapHost::grow() {
  region.check_writable("growing a hash map");
  refuse_refs("grow()");
  const map::MapParameters next = map::next_of(table_);
  migrate(kAll);
  // Device memory first: where there is none nothing has changed.
  const std::uint64_t level = map::level_bytes(next, false)[0];
  map::Directory copy;
  if (has_directory()) {
    copy = map::make_directory(directory_, {level}, region.domain() == Domain::device);
  }
  // A load that is under way knows places by where they are now.
  if (memory_.cache) memory_.cache->await(stream, view(true));
  DeviceBuffer<MapCacheEntry> entries(memory_.cache ? next.places : 0);
  DeviceBuffer<std::uint32_t> ring(next.places);
  DeviceBuffer<std::uint32_t> used((next.places + 31) / 32);
  const std::uint64_t on_top = std::uint64_t{next.buckets} * types_.ways;
  DeviceBuffer<unsigned long long> scores(memory_.scores ? on_top + slots() : 0);
  stream.synchronize();
  const core::StreamEnd end(stream);
  const map::Added added = map::make_room(region, stream, table_, next);
  whole([&] {
    map::begin_growth(region, stream, table_, next, added);
    moved_ = 0;
    if (memory_.scores) memory_.scores->extend(stream, std::move(scores), on_top);
    if (copy.empty()) {
      memory_.directory.clear();
    } else {
      fill_async(stream, copy[0].data(), 0, copy[0].bytes());
      memory_.directory.insert(memory_.directory.begin(), std::move(copy[0]));
    }
    if (next.places == 0) return;
    list_values();
    list_more_places(std::move(ring));
    memory_.used = std::move(used);
    if (memory_.cache) memory_.cache->extend(stream, std::move(entries));
  });
}

bool MapHost::migrate(std::uint64_t buckets) {
  region.check_writable("migrate()");
  if (!table_.growing) return false;
  refuse_refs("migrate()");
  const std::uint64_t left = table_.leaving_buckets() - moved_;
  const std::uint64_t count = std::min(buckets, left);
  if (count == 0) return true;
  whole([&] {
    types_.kernels->migrate(stream, view(true), moved_ * types_.ways, count * types_.ways);
    stream.synchronize();
    moved_ += count;
    if (count < left) return;
    map::end_growth(region, stream, table_);
    if (has_directory()) memory_.directory.pop_back();
    moved_ = 0;
  });
  return table_.growing;
}

void MapHost::reserve(std::uint64_t capacity) {
  region.check_writable("reserve()");
  refuse_refs("reserve()");
  const std::uint64_t needed = map::check_reserve(region, table_, capacity);
  // At once, and not level by level: where memory has no room for all, none is taken.
  if (needed > region.size()) region.grow(needed);
  migrate(kAll);
  while (shape().slots() < capacity) {
    grow();
    migrate(kAll);
  }
}

}  // namespace holdfast::detail
