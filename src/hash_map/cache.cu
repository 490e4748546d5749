#include "hash_map/cache.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/stream_end.hpp"
#include "hash_map/host.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::map {
namespace {

using detail::concat;
using detail::kMapMostRows;
using detail::kMapMostScore;
using detail::kMapRowLoading;
using detail::kMapRowStale;
using detail::MapBatch;
using detail::MapCacheEntry;
using detail::MapCacheRecord;
using detail::MapCacheView;
using detail::MapServed;
using detail::MapView;

constexpr unsigned kThreads = 256;
// Of kernels that read over the link beside others: enough threads to fill it, and few enough to
// leave room for these.
constexpr unsigned kLinkBlocks = 256;
// Of kernels that read all entries beside others.
constexpr unsigned kScanBlocks = 256;

__device__ std::uint64_t grid_threads() { return std::uint64_t{gridDim.x} * blockDim.x; }

// ---- Which values are to be in the cache -------------------------------------------------------

// How much one is to be: 0 is not at all. Of equals those are preferred that are in it.
// Random: by a hash that is another one in each load.
struct Ranking {
  bool random;
  std::uint32_t load;
};

__device__ std::uint32_t rank_of(const MapCacheEntry& entry, std::uint64_t place,
                                 const Ranking& ranking) {
  if (entry.score == 0) return 0;
  if (ranking.random) return MapHash::hash(place ^ std::uint64_t{ranking.load} << 32, 0) | 1;
  return entry.score << 1 | (entry.row != 0 ? 1 : 0);
}

__device__ MapCacheEntry load_entry(const MapCacheEntry* entry) {
  return {detail::map_load(&entry->score), detail::map_load(&entry->row)};
}

// Counts those by a digit of their rank whose digits above are known to be the least one's.
__global__ void tally(const MapCacheEntry* entries, std::uint64_t places, Ranking ranking,
                      CacheChoice* choice, unsigned shift) {
  __shared__ std::uint32_t counts[256];
  for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) counts[i] = 0;
  __syncthreads();
  const std::uint64_t above = ~std::uint64_t{0} << (shift + 8);
  const std::uint32_t least = choice->least;
  for (std::uint64_t i = detail::map_thread(); i < places; i += grid_threads()) {
    const std::uint32_t rank = rank_of(load_entry(entries + i), i, ranking);
    if (rank != 0 && ((rank ^ least) & above) == 0) atomicAdd(&counts[rank >> shift & 255], 1u);
  }
  __syncthreads();
  for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) {
    if (counts[i] != 0) atomicAdd(&choice->tally[i], counts[i]);
  }
}

// The digit of the least rank that is chosen. By one thread.
__global__ void narrow(CacheChoice* choice, unsigned shift) {
  std::uint32_t room = choice->room;
  unsigned digit = 255;
  for (; digit > 0 && choice->tally[digit] < room; --digit) room -= choice->tally[digit];
  choice->least |= digit << shift;
  choice->room = room;
  for (std::uint32_t& count : choice->tally) count = 0;
}

// Rows that are to stay, and places that are to get one, about in the order of their numbers.
__global__ void collect(MapCacheView cache, std::uint64_t places, Ranking ranking,
                        CacheChoice* choice, std::uint8_t* keep, std::uint32_t* fresh) {
  for (std::uint64_t i = detail::map_thread(); i < places; i += grid_threads()) {
    const MapCacheEntry entry = load_entry(cache.entries + i);
    const std::uint32_t rank = rank_of(entry, i, ranking);
    if (rank == 0 || rank < choice->least) continue;
    if (rank == choice->least && atomicAdd(&choice->ties, 1u) >= choice->room) continue;
    if (entry.row != 0) {
      if (entry.row <= cache.count) keep[entry.row - 1] = 1;
      continue;
    }
    const std::uint32_t at = atomicAdd(&choice->fresh, 1u);
    if (at < cache.count) fresh[at] = static_cast<std::uint32_t>(i);
  }
}

// ---- Rows change hands -------------------------------------------------------------------------

// Empties rows that are not to stay, and plans what empty ones are to have. What was chosen may
// have gone meanwhile, or have come by a row. A thread for each row.
__global__ void plan_rows(MapCacheView cache, CacheChoice* choice, std::uint8_t* keep,
                          const std::uint32_t* fresh) {
  const std::uint64_t row = detail::map_thread();
  if (row >= cache.count) return;
  const std::uint32_t held = cache.place_of_row[row];
  const bool stays = held != 0 && keep[row] != 0;
  keep[row] = 0;
  if (stays) return;
  if (held != 0) {
    cache.entries[held - 1].row = 0;
    cache.place_of_row[row] = 0;
  }
  const std::uint32_t all = min(choice->fresh, cache.count);
  for (;;) {
    const std::uint32_t at = atomicAdd(&choice->next, 1u);
    if (at >= all) return;
    MapCacheEntry& entry = cache.entries[fresh[at]];
    if (entry.score == 0 || entry.row != 0) continue;
    entry.row = kMapRowLoading | static_cast<std::uint32_t>(row + 1);
    cache.plan[row] = fresh[at] + 1;
    return;
  }
}

template <unsigned Width>
__global__ void copy_rows(MapView view) {
  const MapGroup<Width> group;
  const MapCacheView& cache = view.cache;
  for (std::uint64_t row = detail::map_thread() / Width; row < cache.count;
       row += grid_threads() / Width) {
    const std::uint32_t planned = detail::map_load(cache.plan + row);
    if (planned == 0) continue;
    detail::map_copy(group, cache.rows + row * view.stride, detail::map_value_at(view, planned - 1),
                     view.value_bytes);
  }
}

// Rows that are copied serve from here on, if their place has the same value still. Of a value that
// has gone to another place meanwhile the new one is copied.
template <unsigned Width>
__global__ void install_rows(MapView view) {
  const MapGroup<Width> group;
  const MapCacheView& cache = view.cache;
  const std::uint64_t row = detail::map_thread() / Width;
  if (row >= cache.count) return;
  const std::uint32_t planned = cache.plan[row];
  group.sync();  // all have looked
  if (planned == 0) return;
  const std::uint32_t is = cache.entries[planned - 1].row;
  group.sync();
  if (group.rank == 0) cache.plan[row] = 0;
  if ((is & ~kMapRowStale) != (kMapRowLoading | static_cast<std::uint32_t>(row + 1))) return;
  if ((is & kMapRowStale) != 0) {
    detail::map_copy(group, cache.rows + row * view.stride, detail::map_value_at(view, planned - 1),
                     view.value_bytes);
  }
  if (group.rank != 0) return;
  cache.entries[planned - 1].row = static_cast<std::uint32_t>(row + 1);
  cache.place_of_row[row] = planned;
}

__global__ void forget_unused(MapView view, const std::uint32_t* used) {
  const std::uint64_t place = detail::map_thread();
  if (place >= view.capacity) return;
  if ((used[place / 32] >> (place % 32) & 1) == 0) {
    detail::map_cache_drop(view, place, false);
  } else if (view.cache.record == MapCacheRecord::names) {
    view.cache.entries[place].score = 1;
  }
}

// Numbers of batches have come to their end.
__global__ void age(MapCacheEntry* entries, std::uint64_t places) {
  const std::uint64_t place = detail::map_thread();
  if (place < places && entries[place].score != 0) entries[place].score = 1;
}

// ---- Lookups -----------------------------------------------------------------------------------

// The first blocks bring values over the link, the others copy rows.
template <unsigned Width>
__global__ void deliver(MapView view, MapBatch batch, MapServed served, unsigned link_blocks,
                        unsigned long long* all_misses) {
  const MapGroup<Width> group;
  const std::uint64_t bytes = view.value_bytes;
  if (blockIdx.x >= link_blocks) {
    const std::uint64_t op =
        (detail::map_thread() - std::uint64_t{link_blocks} * blockDim.x) / Width;
    if (op >= batch.count) return;
    const std::uint32_t row = served.row[op];
    if (row == 0) return;
    detail::map_copy(group, batch.out + op * bytes, detail::map_row_at(view, row),
                     view.value_bytes);
    return;
  }
  const std::uint32_t misses = *served.misses;
  if (detail::map_thread() == 0) *all_misses += misses;
  const std::uint64_t groups = std::uint64_t{link_blocks} * blockDim.x / Width;
  for (std::uint64_t i = detail::map_thread() / Width; i < misses; i += groups) {
    detail::map_copy(group, batch.out + served.op[i] * bytes,
                     detail::map_value_at(view, served.place[i]), view.value_bytes);
  }
}

}  // namespace

void launch_deliver(Stream& stream, const MapView& view, const MapBatch& batch,
                    const MapServed& served, unsigned long long* all_misses) {
  const unsigned width = width_for(view.value_bytes);
  const auto kernel = width == 4 ? deliver<4> : width == 8 ? deliver<8> : deliver<32>;
  const unsigned copies = blocks_for(std::uint64_t{batch.count} * width, kThreads);
  const unsigned link = std::min(kLinkBlocks, copies);
  launch(stream, dim3(link + copies), dim3(kThreads), kernel, view, batch, served, link,
         all_misses);
}

// ---- The host's side ---------------------------------------------------------------------------

namespace {

std::uint32_t rows_for(const MapCache& options, const MapParameters& shape) {
  const std::uint64_t rows = options.bytes / shape.stride();
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(rows, kMapMostRows));
}

// As map_value_at().
const std::byte* value_at(const Table& table, std::uint64_t place) {
  std::uint64_t first = 0, count = table.made.places;
  for (std::size_t i = 0;; ++i, first += count, count = first) {
    if (place < first + count) return table.values[i] + (place - first) * table.now.stride();
  }
}

Error wrong(const std::string& what) { return Error(Errc::invalid_argument, "hash map: " + what); }

}  // namespace

std::unique_ptr<Cache> make_cache(const MapCache& options, const MapParameters& shape,
                                  MapOptions::Directory directory) {
  using Policy = MapCache::Policy;
  if (options.policy != Policy::frozen && options.policy != Policy::lfu &&
      options.policy != Policy::lru && options.policy != Policy::random) {
    throw wrong(concat("cache.policy ", static_cast<int>(options.policy),
                       " is none that there is; give Policy::frozen, lfu, lru or random"));
  }
  if (options.bytes == 0) return nullptr;
  if (shape.places == 0) {
    throw wrong(concat("cache.bytes ", options.bytes, " for values of ", shape.value_bytes,
                       " bytes, which stand in slots: leave it 0. The directory has them"));
  }
  if (directory == MapOptions::Directory::off) {
    throw wrong(concat("cache.bytes ", options.bytes,
                       " without a directory, by which a cache finds values: leave it 0, or turn "
                       "the directory on"));
  }
  if (options.bytes < shape.stride()) {
    throw wrong(concat("cache.bytes ", options.bytes, "; a value takes ", shape.stride(),
                       ": give as much at least, or 0 for no cache"));
  }
  return std::make_unique<Cache>(options, shape);
}

Cache::Cache(const MapCache& options, const MapParameters& shape)
    : options_(options),
      shape_(shape),
      rows_count_(rows_for(options, shape)),
      entries_(shape.places),
      rows_(std::uint64_t{rows_count_} * shape.stride()),
      place_of_row_(rows_count_),
      plan_(rows_count_),
      fresh_(rows_count_),
      keep_(rows_count_),
      choice_(1),
      batch_misses_(1),
      misses_(1),
      counters_(2) {}

// Whoever uses the map meets the device's errors by its own stream.
Cache::~Cache() { const core::StreamEnd end(loader_); }

MapCacheView Cache::view() const {
  MapCacheView result;
  result.entries = entries_.data();
  result.rows = rows_.data();
  result.place_of_row = place_of_row_.data();
  result.plan = plan_.data();
  result.hits = counters_.data();
  result.count = rows_count_;
  result.now = clock_;
  switch (options_.policy) {
    case MapCache::Policy::frozen:
      result.record = begun_ == 0 ? MapCacheRecord::counts : MapCacheRecord::nothing;
      break;
    case MapCache::Policy::lfu:
      result.record = MapCacheRecord::counts;
      break;
    case MapCache::Policy::lru:
      result.record = MapCacheRecord::batches;
      break;
    case MapCache::Policy::random:
      result.record = MapCacheRecord::names;
      break;
  }
  return result;
}

MapView Cache::with_cache(const MapView& seen) const {
  MapView result = seen;
  result.cache = view();
  return result;
}

std::uint32_t Cache::misses() const {
  return std::atomic_ref<std::uint32_t>(*misses_.data()).load(std::memory_order_relaxed);
}

std::uint32_t Cache::expected_misses(std::uint32_t count) const {
  if (lookups_ == 0) return count;
  const std::uint64_t alike = std::uint64_t{misses()} * count / lookups_;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(count, alike));
}

void Cache::note_misses(Stream& stream, std::uint32_t count) {
  copy_async(stream, misses_.data(), batch_misses_.data(), sizeof(std::uint32_t));
  lookups_ = count;
}

void Cache::begin_batch(Stream& stream, const MapView& seen) {
  if (clock_ == kMapMostScore) {
    launch(stream, dim3(blocks_for(entries_.size(), kThreads)), dim3(kThreads), age,
           entries_.data(), std::uint64_t{entries_.size()});
    clock_ = 1;
  }
  ++clock_;
  advance(stream, seen);
  if (options_.load_every != 0 && ++since_ >= options_.load_every) load(stream, seen);
}

void Cache::load(Stream& stream, const MapView& seen) {
  advance(stream, seen);
  const bool had_its_own = options_.policy == MapCache::Policy::frozen && begun_ != 0;
  if (phase_ != Phase::idle || had_its_own) return;
  since_ = 0;
  before_.record(stream);  // entries of the load before are in order
  before_.wait(loader_);
  ++begun_;
  choose();
  phase_ = Phase::choosing;
}

void Cache::choose() {
  const Ranking ranking{options_.policy == MapCache::Policy::random, begun_};
  CacheChoice* const choice = choice_.data();
  fill_async(loader_, choice, 0, sizeof(CacheChoice));
  copy_async(loader_, &choice->room, &rows_count_, sizeof(rows_count_));
  const std::uint64_t places = entries_.size();
  const dim3 grid(std::min(kScanBlocks, blocks_for(places, kThreads)));
  for (const unsigned shift : {24u, 16u, 8u, 0u}) {
    launch(loader_, grid, dim3(kThreads), tally, entries_.data(), places, ranking, choice, shift);
    launch(loader_, dim3(1), dim3(1), narrow, choice, shift);
  }
  launch(loader_, grid, dim3(kThreads), collect, view(), places, ranking, choice, keep_.data(),
         fresh_.data());
  tell_when_done();
}

void Cache::tell_when_done() {
  done_ = std::make_shared<std::atomic<bool>>(false);
  loader_.enqueue([done = done_] { *done = true; });
}

// To the next phase, if the other stream has done its part of this one.
void Cache::advance(Stream& stream, const MapView& seen) {
  if (phase_ == Phase::idle || !*done_) return;
  const unsigned width = width_for(shape_.value_bytes);
  const MapView view = with_cache(seen);
  if (phase_ == Phase::choosing) {
    launch(stream, dim3(blocks_for(rows_count_, kThreads)), dim3(kThreads), plan_rows, view.cache,
           choice_.data(), keep_.data(), fresh_.data());
    before_.record(stream);
    before_.wait(loader_);
    const auto kernel = width == 4 ? copy_rows<4> : width == 8 ? copy_rows<8> : copy_rows<32>;
    const unsigned blocks = blocks_for(std::uint64_t{rows_count_} * width, kThreads);
    launch(loader_, dim3(std::min(kLinkBlocks, blocks)), dim3(kThreads), kernel, view);
    tell_when_done();
    phase_ = Phase::copying;
    return;
  }
  const auto kernel = width == 4   ? install_rows<4>
                      : width == 8 ? install_rows<8>
                                   : install_rows<32>;
  launch(stream, dim3(blocks_for(std::uint64_t{rows_count_} * width, kThreads)), dim3(kThreads),
         kernel, view);
  ++loads_;
  phase_ = Phase::idle;
}

void Cache::await(Stream& stream, const MapView& seen) {
  while (phase_ != Phase::idle) {
    loader_.synchronize();
    advance(stream, seen);
  }
}

void Cache::reconcile(Stream& stream, const MapView& seen, const std::uint32_t* used) {
  launch(stream, dim3(blocks_for(entries_.size(), kThreads)), dim3(kThreads), forget_unused,
         with_cache(seen), used);
}

void Cache::extend(Stream& stream, DeviceBuffer<MapCacheEntry> larger) {
  copy_async(stream, larger.data(), entries_.data(), entries_.bytes());
  stream.synchronize();
  entries_ = std::move(larger);
}

MapCacheStats Cache::stats(Stream& stream) const {
  unsigned long long counters[2];
  copy_async(stream, counters, counters_.data(), sizeof(counters));
  stream.synchronize();
  return {rows_count_, counters[0], counters[1], loads_};
}

std::string Cache::audit(Stream& stream, const Table& table, const std::vector<bool>& named) const {
  std::vector<MapCacheEntry> entries(entries_.size());
  std::vector<std::uint32_t> place_of_row(rows_count_);
  const std::size_t bytes = shape_.value_bytes;
  std::vector<std::byte> row_bytes(bytes), value(bytes);
  const core::StreamEnd end(stream);
  copy_async(stream, entries.data(), entries_.data(), entries_.bytes());
  copy_async(stream, place_of_row.data(), place_of_row_.data(), place_of_row_.bytes());
  stream.synchronize();
  std::uint64_t serving = 0;
  for (std::uint64_t place = 0; place < entries.size(); ++place) {
    const MapCacheEntry& entry = entries[place];
    if (!named[place] && (entry.row != 0 || entry.score != 0)) {
      return concat("the cache knows of place ", place, ", which no word names");
    }
    if (entry.row == 0 || (entry.row & kMapRowLoading) != 0) continue;
    ++serving;
    if (entry.row > rows_count_ || place_of_row[entry.row - 1] != place + 1) {
      return concat("the cache has place ", place, " in row ", entry.row - 1, ", and not so there");
    }
    copy_async(stream, row_bytes.data(),
               rows_.data() + std::size_t{entry.row - 1} * shape_.stride(), bytes);
    copy_async(stream, value.data(), value_at(table, place), bytes);
    stream.synchronize();
    if (row_bytes != value) return concat("the cache has another value than place ", place);
  }
  const auto empty = std::count(place_of_row.begin(), place_of_row.end(), 0u);
  if (serving + static_cast<std::uint64_t>(empty) != rows_count_) {
    return "the cache has rows of places that do not have them";
  }
  return {};
}

}  // namespace holdfast::map

namespace holdfast::detail {

// REQUIRES: the batch is alone, and has a place for values.
void MapHost::find_by_cache(const MapView& view, const MapBatch& batch, bool waits) {
  map::Cache& cache = *memory_.cache;
  MapServed served{memory_.entry_of.data(), cache.batch_misses(), memory_.bucket.data(),
                   memory_.op.data()};
  fill_async(stream, served.misses, 0, sizeof(*served.misses));
  // Where few are expected it neither waits for their number nor sorts them.
  const bool sorts = sorts_places(cache.expected_misses(batch.count));
  // Without a count of the misses all are sorted, what is no miss to the end.
  if (sorts && !waits) fill_async(stream, served.place, 0xff, batch.count * sizeof(*served.place));
  types_.kernels->serve(stream, view, batch, served);
  cache.note_misses(stream, batch.count);
  std::uint32_t misses = batch.count;
  if (sorts && waits) {
    stream.synchronize();
    misses = cache.misses();
  }
  if (sorts && misses != 0 && sorts_places(misses)) {
    sort_by_place(served.place, served.op, memory_.sorted_op.data(), misses);
    served.place = memory_.sorted_bucket.data();
    served.op = memory_.sorted_op.data();
  }
  map::launch_deliver(stream, view, batch, served, cache.counters() + 1);
}

void MapHost::load_cache(bool wait) {
  if (!memory_.cache) {
    throw Error(Errc::invalid_argument,
                where + ": it has no cache to load: give MapOptions::cache some bytes");
  }
  whole([&] {
    if (wait) {
      memory_.cache->await(stream, view(true));
    } else {
      memory_.cache->load(stream, view(true));
    }
  });
}

}  // namespace holdfast::detail
