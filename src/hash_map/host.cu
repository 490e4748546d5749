#include "hash_map/host.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <string_view>
#include <utility>

#include "core/kernel_memory.hpp"
#include "core/stream_end.hpp"
#include "holdfast/kernel.hpp"
#include "kv_store/rules.hpp"

namespace holdfast {

using detail::concat;

namespace map {
namespace {

std::size_t ring_size(const MapParameters& shape) { return static_cast<std::size_t>(shape.places); }

// Pairs that can be sorted: a batch's, and as many places that those of a batch are near each
// other: it takes them from a part of the addresses, the smaller the more were sorted, and a device
// translates each 64 KiB that it comes to.
std::size_t sorted_at_once(const MapParameters& shape, std::uint32_t max_batch) {
  constexpr std::size_t kPlaces = std::size_t{1} << 22;
  return std::max<std::size_t>(max_batch, std::min(ring_size(shape), kPlaces));
}

}  // namespace

Memory::Memory(const MapParameters& shape, std::uint32_t max_batch, Directory copy)
    : directory(std::move(copy)),
      free(ring_size(shape)),
      used((ring_size(shape) + 31) / 32),
      ends(2),
      keys(std::size_t{max_batch} * shape.key_bytes),
      labels(shape.key_words() != 0 ? max_batch : 0),
      status(max_batch),
      claims(kv::claims_for(max_batch)),
      entry_of(max_batch),
      bucket(max_batch),
      op(sorted_at_once(shape, max_batch)),
      sorted_bucket(op.size()),
      sorted_op(op.size()),
      sorter(op.size()) {}

Directory make_directory(MapOptions::Directory wanted,
                         const std::vector<std::uint64_t>& level_bytes, bool on_device) {
  using Wanted = MapOptions::Directory;
  if (wanted != Wanted::automatic && wanted != Wanted::off && wanted != Wanted::on) {
    throw Error(Errc::invalid_argument,
                concat("hash map: directory ", static_cast<int>(wanted),
                       " is none that there is; give Directory::automatic, Directory::off or "
                       "Directory::on"));
  }
  if (wanted == Wanted::off) return {};
  const std::uint64_t bytes =
      std::accumulate(level_bytes.begin(), level_bytes.end(), std::uint64_t{0});
  const std::uint64_t free = backend::free_device_memory();
  const bool across_link = !on_device && std::string_view(backend::name()) == "cuda";
  if (wanted == Wanted::on && bytes > free) {
    throw Error(
        Errc::no_memory,
        concat("hash map: its directory takes ", bytes, " bytes of device memory, and ", free,
               " are free: free some, or open it with the directory off or automatic"));
  }
  if (wanted == Wanted::automatic &&
      !kv::wants_copy(KvStore::Cache::automatic, bytes, free, across_link)) {
    return {};
  }
  try {
    return {level_bytes.begin(), level_bytes.end()};
  } catch (const Error& error) {
    if (wanted == Wanted::on || error.code() != Errc::no_memory) throw;
    return {};  // what is free may be in pieces
  }
}

}  // namespace map

namespace detail {
namespace {

Error wrong(const std::string& where, const std::string& what) {
  return Error(Errc::invalid_argument, where + ": " + what);
}

}  // namespace

MapHost::MapHost(Region& r, std::string place, map::Table table, core::Use user,
                 const MapTypes& types, std::uint32_t max_batch, MapOptions::Directory directory,
                 map::Memory memory)
    : region(r),
      where(std::move(place)),
      use(std::move(user)),
      table_(std::move(table)),
      types_(types),
      max_batch_(max_batch),
      directory_(directory),
      memory_(std::move(memory)) {
  list_values();
  if (memory_.scores) {
    const auto& scores = memory_.scores->of_slot;
    fill_async(stream, scores.data(), 0, scores.bytes());
  }
}

MapHost::~MapHost() { const core::StreamEnd end(stream); }

MapHost& MapHost::usable() {
  (void)region.path();
  if (!use.lasts()) {
    throw Error(Errc::closed, where + core::kEnded);
  }
  if (!broken_.empty()) {
    throw Error(Errc::device, where + ": an earlier call failed (" + broken_ + "): open it again");
  }
  return *this;
}

MapView MapHost::view(bool alone) const {
  const map::MapParameters& of = shape();
  MapView result;
  const bool by_directory = alone && has_directory();
  for (std::size_t i = 0; i < table_.levels.size(); ++i) {
    result.level[i] = by_directory ? memory_.directory[i].data() : table_.levels[i];
    result.medium[i] = by_directory ? table_.levels[i] : nullptr;
  }
  result.growing = table_.growing;
  if (!table_.values.empty()) {
    result.values = table_.values[0];
    result.more = memory_.more_values.data();
    result.first_places = static_cast<std::uint32_t>(table_.made.places);
  }
  result.free = memory_.free.data();
  result.head = memory_.ends.data();
  result.tail = memory_.ends.data() + 1;
  result.limit = limit_;
  result.empty_key = of.empty_key;
  result.empty_value = of.empty_value;
  result.marks = region.marks();
  result.buckets = of.buckets;
  result.key_words = of.key_words();
  result.value_bytes = of.value_bytes;
  result.stride = of.stride();
  result.capacity = static_cast<std::uint32_t>(of.places);
  if (alone && memory_.cache) result.cache = memory_.cache->view();
  if (alone && memory_.scores) result.scores = memory_.scores->of_slot.data();
  return result;
}

MapView MapHost::give_ref() {
  region.check_writable("a ref of a hash map");
  stream.synchronize();  // places that were given back may still be sorted
  if (changes && !refs_out_) whole([&] { changes->forget(stream); });
  refs_out_ = true;
  use.lend(true);
  return view(false);
}

// ---- A batch -----------------------------------------------------------------------------------

void MapHost::check_count(std::size_t count) const {
  if (count <= max_batch_) return;
  throw wrong(where, concat("a batch of ", count, " operations; this map takes ", max_batch_,
                            " at most (max_batch): split the batch"));
}

namespace {

std::byte* room_in(DeviceBuffer<std::byte>& buffer, std::size_t bytes) {
  if (buffer.size() < bytes) buffer = DeviceBuffer<std::byte>(bytes);
  return buffer.data();
}

}  // namespace

std::byte* MapHost::room_for_values(std::size_t bytes) { return room_in(memory_.values_in, bytes); }
std::byte* MapHost::room_for_found(std::size_t bytes) { return room_in(memory_.values_out, bytes); }

const std::byte* MapHost::reach_in(const void* values, std::size_t bytes) {
  if (values == nullptr) return nullptr;
  if (core::readable_by_kernels(values, bytes)) return static_cast<const std::byte*>(values);
  std::byte* const room = room_for_values(bytes);
  copy_async(stream, room, values, bytes);
  return room;
}

std::byte* MapHost::reach_out(void* values, std::size_t bytes) {
  if (values == nullptr) return nullptr;
  if (core::readable_by_kernels(values, bytes)) return static_cast<std::byte*>(values);
  return room_for_found(bytes);
}

// What reach_out() stood in for, of the operations that have something.
void MapHost::bring_out(void* to, std::size_t count, const std::vector<std::uint8_t>& wanted) {
  const std::size_t each = shape().value_bytes;
  std::vector<std::byte> values(count * each);
  const core::StreamEnd end(stream);
  copy_async(stream, values.data(), memory_.values_out.data(), values.size());
  stream.synchronize();
  for (std::size_t i = 0; i < count; ++i) {
    if (wanted[i] == 0) continue;
    std::memcpy(static_cast<std::byte*>(to) + i * each, values.data() + i * each, each);
  }
}

bool MapHost::orders(const MapView& view, const MapBatch& batch, bool updates) const {
  if (order != MapOptions::Order::automatic) return order == MapOptions::Order::ordered;
  return kv::ordering_pays(shape().table_bytes(), view.medium[0] != nullptr, batch.count, updates);
}

const std::uint32_t* MapHost::order_of(const MapView& view, const MapBatch& batch, bool updates) {
  if (!orders(view, batch, updates)) return nullptr;
  types_.kernels->place(stream, view, batch, memory_.bucket.data(), memory_.op.data());
  memory_.sorter.sort(stream, memory_.bucket.data(), memory_.sorted_bucket.data(),
                      memory_.op.data(), memory_.sorted_op.data(), batch.count,
                      static_cast<unsigned>(std::bit_width(view.buckets)));
  return memory_.sorted_op.data();
}

bool MapHost::sorts_places(std::size_t count) const {
  if (shape().places == 0 || order == MapOptions::Order::unordered) return false;
  return order == MapOptions::Order::ordered ||
         kv::ordering_pays(shape().places * shape().stride(), false, count, false);
}

// Values over the link in the order of their addresses.
void MapHost::find_by_place(const MapView& view, const MapBatch& batch) {
  std::uint32_t* const place = memory_.bucket.data();
  std::uint32_t* const op = memory_.op.data();
  std::uint32_t* sorted_op = memory_.sorted_op.data();
  if (batch.order == sorted_op) sorted_op = memory_.entry_of.data();  // is read meanwhile
  types_.kernels->locate(stream, view, batch, place, op);
  sort_by_place(place, op, sorted_op, batch.count);
  map::launch_gather(stream, view, memory_.sorted_bucket.data(), sorted_op, batch.out, batch.count);
}

void MapHost::sort_by_place(const std::uint32_t* place, const std::uint32_t* op,
                            std::uint32_t* sorted_op, std::uint32_t count) {
  memory_.sorter.sort(stream, place, memory_.sorted_bucket.data(), op, sorted_op, count,
                      static_cast<unsigned>(std::bit_width(shape().places)));
}

// A batch stores its values at the next places of the ring, which earlier ones have freed in their
// own order: they are sorted by address, many at once, so that a small batch's are neighbours.
// Nobody waits for it. REQUIRES: no kernel takes or frees places.
void MapHost::sort_next_places(std::uint32_t count) {
  if (shape().places == 0 || head_ + count <= sorted_until_ || sorted_until_ >= limit_) return;
  const std::uint64_t end = std::min<std::uint64_t>(limit_, head_ + memory_.op.size());
  if (!sorts_places(end - head_)) return;
  const auto bits = static_cast<unsigned>(std::bit_width(shape().places));
  for (std::uint64_t first = head_; first < end;) {
    const std::uint64_t at = first % shape().places;
    const std::uint64_t piece = std::min(end - first, shape().places - at);  // to the ring's end
    std::uint32_t* const places = memory_.free.data() + at;
    memory_.sorter.sort(stream, places, memory_.sorted_bucket.data(), memory_.op.data(),
                        memory_.sorted_op.data(), piece, bits);
    copy_async(stream, places, memory_.sorted_bucket.data(), piece * sizeof(*places));
    first += piece;
  }
  sorted_until_ = end;
}

MapResult MapHost::update(MapOperation operation, const void* keys, const void* values, void* out,
                          std::size_t count, MapStatus* status) {
  return run_batch(operation, keys, values, out, count, [&] {
    return apply(operation, keys, values, out, static_cast<std::uint32_t>(count), status);
  });
}

MapResult MapHost::run_batch(MapOperation operation, const void* keys, const void* values,
                             void* out, std::size_t count, const std::function<MapResult()>& body) {
  region.check_writable("a batch");
  check_count(count);
  if (count == 0) return {};
  if (keys == nullptr) throw wrong(where, "a batch without keys: give one for each operation");
  if (values == nullptr && operation != MapOperation::erase) {
    throw wrong(where, "a batch without values: give one for each key, or erase()");
  }
  if (out == nullptr && operation == MapOperation::find_or_insert) {
    throw wrong(where, "find_or_insert() was given no place for values: give it one for each key");
  }
  const MapResult result = whole(body);
  check_refused();
  return result;
}

void MapHost::check_refused() const {
  const map::Report* const report = memory_.report_host.data();
  if (report->counts[map::kRefusedKeys] != 0) {
    throw wrong(where, concat(report->counts[map::kRefusedKeys], " operation(s) have the key ",
                              shape().empty_key,
                              ", which marks an empty slot (EmptyKey): nothing of this batch was "
                              "done"));
  }
  if (report->counts[map::kRefusedValues] != 0) {
    throw wrong(where, concat(report->counts[map::kRefusedValues],
                              " operation(s) have a value that cannot be stored, ",
                              shape().empty_value, " or ", shape().empty_value ^ 1,
                              " as 8 bytes (EmptyValue): nothing of this batch was done"));
  }
}

// Which operation of each key is the last one. The report is empty before it.
kv::Claims MapHost::claim(const MapView& view, const MapBatch& batch) {
  tag_ = kv::next_tag(stream, tag_, memory_.claims);
  const kv::Claims claims{memory_.claims.data(),
                          static_cast<std::uint32_t>(memory_.claims.size() - 1), tag_};
  map::launch_claims(stream, view, batch, shape().key_bytes, claims, memory_.entry_of.data(),
                     memory_.report.data());
  return claims;
}

MapBatch MapHost::begin_batch(const void* values, void* out, std::uint32_t count) {
  const bool alone = !refs_out_;
  if (alone && memory_.cache) memory_.cache->begin_batch(stream, view(true));
  if (alone && values != nullptr) sort_next_places(count);
  const std::size_t value_bytes = std::size_t{count} * shape().value_bytes;
  marks[0].record(stream);
  MapBatch batch{};
  batch.count = count;
  batch.values = reach_in(values, value_bytes);
  batch.out = reach_out(out, value_bytes);
  batch.status = memory_.status.data();
  batch.refuse = memory_.report.data()->counts + map::kRefusedKeys;
  batch.alone = alone;
  return batch;
}

MapResult MapHost::end_batch(const MapView& view, const MapBatch& batch, void* out,
                             MapStatus* status,
                             const std::function<bool(std::size_t, MapStatus)>& gets,
                             const std::function<void()>& again, Evicting* evicting) {
  marks[2].record(stream);
  report(view, batch);
  std::vector<MapStatus> staged(out != nullptr && batch.out != out ? batch.count : 0);
  core::StreamEnd end(stream);
  const auto copy_statuses = [&] {
    if (!staged.empty()) copy_async(stream, staged.data(), memory_.status.data(), batch.count);
    if (status != nullptr) copy_async(stream, status, memory_.status.data(), batch.count);
    marks[3].record(stream);
    stream.synchronize();
  };
  copy_statuses();
  const auto counted = [&](MapStatus of) {
    return memory_.report_host[0].counts[static_cast<unsigned>(of)];
  };
  const std::uint32_t full = counted(MapStatus::full);
  if (again && full != 0 && batch.alone && !view.growing) {
    make_room(view, batch, again);
    const std::uint32_t left = counted(MapStatus::full);
    if (evicting != nullptr && left != 0 && left != full) retry_full(view, batch, again);
    copy_statuses();
  }
  const bool evicts =
      evicting != nullptr && counted(MapStatus::full) + counted(MapStatus::no_value) != 0;
  score(view, batch, evicting != nullptr ? evicting->scores : nullptr, evicts);
  if (evicts) {
    evict(view, batch, *evicting);
    copy_statuses();
  }
  if (!staged.empty()) {
    std::vector<std::uint8_t> wanted(batch.count);
    for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = gets(i, staged[i]) ? 1 : 0;
    bring_out(out, batch.count, wanted);
  }
  end.has_come();
  size_ -= evicts ? evicting->evicted : 0;
  return finish(memory_.report_host[0], evicts && changes ? evicting->went : batch.count);
}

MapResult MapHost::apply(MapOperation operation, const void* keys, const void* values, void* out,
                         std::uint32_t count, MapStatus* status, const MapElement* element,
                         Evicting* evicting) {
  MapBatch batch = begin_batch(values, out, count);
  MapView seen = view(batch.alone);
  if (element == nullptr) {
    take_keys(batch, keys);
    fill_async(stream, memory_.report.data(), 0, sizeof(map::Report));
    claim(seen, batch);
  } else {
    label_keys(batch);
  }
  if (changes) changes->record(stream, batch);
  batch.order = order_of(seen, batch, true);
  marks[1].record(stream);
  if (element != nullptr && !batch.alone) {
    // What is there changes meanwhile, and each operation looks for itself.
    types_.kernels->accumulate(stream, seen, batch, *element);
  } else {
    types_.kernels->apply(stream, seen, batch, operation);
  }
  return end_batch(
      seen, batch, out, status,
      [](std::size_t, MapStatus of) { return of == MapStatus::inserted || of == MapStatus::kept; },
      [&] {
        end_places(memory_.report_host[0]);
        seen.limit = limit_;
        types_.kernels->make_room(stream, seen, batch, memory_.locks.data());
        types_.kernels->apply(stream, seen, batch, operation);
      },
      evicting);
}

void MapHost::report(const MapView& view, const MapBatch& batch) {
  map::launch_report(stream, view, batch, memory_.report.data());
  copy_async(stream, memory_.report_host.data(), memory_.report.data(), sizeof(map::Report));
}

void MapHost::report_again(const MapView& view, const MapBatch& batch) {
  fill_async(stream, memory_.report.data(), 0, sizeof(map::Report));
  marks[2].record(stream);
  report(view, batch);
  stream.synchronize();
}

// Of several that a round has made room for, one finds it at least.
void MapHost::make_room(const MapView& view, const MapBatch& batch,
                        const std::function<void()>& again) {
  constexpr unsigned kMostRounds = 32;
  auto& full = memory_.report_host[0].counts[static_cast<unsigned>(MapStatus::full)];
  std::uint32_t before = full + 1;
  for (unsigned round = 0; round < kMostRounds && full != 0 && full < before; ++round) {
    before = full;
    fill_async(stream, memory_.locks.data(), 0, kMapRoomBits / 8);
    again();
    report_again(view, batch);
  }
}

void MapHost::retry_full(const MapView& view, const MapBatch& batch,
                         const std::function<void()>& again) {
  map::launch_retry(stream, batch);
  again();
  report_again(view, batch);
}

MapResult MapHost::finish(const map::Report& report, std::uint32_t operations) {
  const auto count = [&](MapStatus status) -> std::uint64_t {
    return report.counts[static_cast<unsigned>(status)];
  };
  MapResult result;
  result.inserted = count(MapStatus::inserted);
  result.assigned = count(MapStatus::assigned);
  result.kept = count(MapStatus::kept);
  result.erased = count(MapStatus::erased);
  result.absent = count(MapStatus::absent);
  result.superseded = count(MapStatus::superseded);
  result.full = count(MapStatus::full);
  result.no_value = count(MapStatus::no_value);
  size_ += result.inserted - result.erased;
  const bool refused =
      report.counts[map::kRefusedKeys] != 0 || report.counts[map::kRefusedValues] != 0;
  if (changes && !refused) changes->recorded(operations);
  end_places(report);
  if (!refs_out_) sort_next_places(static_cast<std::uint32_t>(operations));
  return result;
}

void MapHost::end_places(const map::Report& report) {
  if (shape().places == 0) return;
  head_ = report.head;
  if (refs_out_) return;
  if (head_ > limit_) {  // what was asked for in vain
    head_ = limit_;
    copy_async(stream, memory_.ends.data(), &head_, sizeof(head_));
    stream.synchronize();
  }
  limit_ = report.tail;
}

MapBatch MapHost::lookups(const void* keys, const void* found, std::size_t count) {
  if (keys == nullptr) throw wrong(where, "a lookup without keys: give those to look up");
  if (found == nullptr) throw wrong(where, "a lookup without a place for found: give it one");
  if (memory_.found.size() == 0) memory_.found = DeviceBuffer<std::uint8_t>(max_batch_);
  MapBatch batch{};
  batch.found = memory_.found.data();
  batch.count = static_cast<std::uint32_t>(count);
  return batch;
}

void MapHost::take_keys(MapBatch& batch, const void* keys) {
  copy_async(stream, memory_.keys.data(), keys, std::size_t{batch.count} * shape().key_bytes);
  label_keys(batch);
}

void MapHost::label_keys(MapBatch& batch) {
  batch.keys = memory_.keys.data();
  if (shape().key_words() == 0) return;
  types_.kernels->label(stream, view(!refs_out_), batch, memory_.labels.data());
  batch.labels = memory_.labels.data();
}

void MapHost::look_up(MapBatch& batch, bool waits) {
  const bool by_cache = !refs_out_ && memory_.cache && batch.out != nullptr;
  if (by_cache) memory_.cache->begin_batch(stream, view(true));
  const MapView seen = view(!refs_out_);
  batch.alone = !refs_out_;
  batch.order = by_cache ? nullptr : order_of(seen, batch, false);
  marks[1].record(stream);
  if (by_cache) {
    find_by_cache(seen, batch, waits);
  } else if (batch.out != nullptr && sorts_places(batch.count)) {
    find_by_place(seen, batch);
  } else {
    types_.kernels->find(stream, seen, batch);
  }
  marks[2].record(stream);
}

void MapHost::find(const void* keys, void* values, std::uint8_t* found, std::size_t count) {
  check_count(count);
  if (count == 0) return;
  MapBatch batch = lookups(keys, found, count);
  batch.out = reach_out(values, count * shape().value_bytes);
  std::vector<std::uint8_t> wanted(batch.out != values ? count : 0);
  core::StreamEnd end(stream);
  marks[0].record(stream);
  take_keys(batch, keys);
  look_up(batch, true);
  if (batch.out != nullptr) score(view(batch.alone), batch);
  copy_async(stream, found, memory_.found.data(), count);
  if (!wanted.empty()) copy_async(stream, wanted.data(), memory_.found.data(), count);
  marks[3].record(stream);
  stream.synchronize();
  end.has_come();
  if (!wanted.empty()) bring_out(values, count, wanted);
}

void MapHost::find_async(Stream& by, const void* keys, void* values, std::uint8_t* found,
                         std::size_t count) {
  check_count(count);
  if (count == 0) return;
  MapBatch batch = lookups(keys, found, count);
  const auto reached = [&](const void* memory, std::size_t each, const char* what) {
    if (memory == nullptr || core::readable_by_kernels(memory, count * each)) return;
    throw wrong(where, concat("the ", what,
                              " of a lookup that nobody waits for are in memory that "
                              "kernels cannot use: give device or pinned memory, or find()"));
  };
  reached(keys, shape().key_bytes, "keys");
  reached(values, shape().value_bytes, "values");
  reached(found, 1, "places for found");
  batch.out = static_cast<std::byte*>(values);
  core::StreamEnd end(stream);  // of one that fails
  handed_over.record(by);
  handed_over.wait(stream);
  marks[0].record(stream);
  take_keys(batch, keys);
  look_up(batch, false);
  if (batch.out != nullptr) score(view(batch.alone), batch);
  copy_async(stream, found, memory_.found.data(), count);
  marks[3].record(stream);
  handed_over.record(stream);
  handed_over.wait(by);
  end.has_come();
}

// Keys where kernels read them, and room for a value each.
MapInit MapHost::stage(const void* keys, std::size_t count) {
  region.check_writable("a batch");
  check_count(count);
  if (keys == nullptr) throw wrong(where, "a batch without keys: give one for each operation");
  std::byte* const room = room_for_values(count * shape().value_bytes);
  copy_async(stream, memory_.keys.data(), keys, count * shape().key_bytes);
  return {memory_.keys.data(), room};
}

MapStats MapHost::stats() {
  MapStats stats;
  // Kernels with refs have told nobody what they did.
  stats.size = refs_out_ ? look().pairs : size_;
  stats.capacity = slots();
  stats.table_bytes = table_.bucket_count() * shape().bucket_bytes;
  stats.left_to_move = table_.leaving_buckets() - moved_;
  stats.value_bytes = shape().value_bytes;
  stats.value_places = shape().places;
  if (shape().places != 0) {
    unsigned long long ends[2];
    const core::StreamEnd end(stream);
    copy_async(stream, ends, memory_.ends.data(), sizeof(ends));
    stream.synchronize();
    stats.free_places = ends[1] - std::min<std::uint64_t>(ends[0], limit_);
  }
  stats.max_batch = max_batch_;
  stats.directory = has_directory();
  stats.refs_out = refs_out_;
  if (memory_.cache) stats.cache = memory_.cache->stats(stream);
  return stats;
}

}  // namespace detail
}  // namespace holdfast
