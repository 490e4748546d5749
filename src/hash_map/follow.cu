// Exporting what changed, and following another map.
#include <algorithm>

#include "hash_map/host.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::detail {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWidth = 8;  // threads for an operation

// What became of keys, each once: those that are there with their values, and those that are not.
struct Sorted {
  std::byte* keys;
  std::byte* values;
  std::byte* erased;
  unsigned long long* counts;  // of these two
};

__global__ void sort_changes(MapBatch batch, Sorted to, std::uint32_t key_bytes,
                             std::uint32_t value_bytes) {
  const MapGroup<kWidth> group;
  const std::uint64_t op = map_thread() / kWidth;
  if (op >= batch.count || batch.status[op] == MapStatus::superseded) return;
  const bool there = batch.found[op] != 0;
  unsigned long long at = 0;
  if (group.rank == 0) at = atomicAdd(&to.counts[there ? 0 : 1], 1ull);
  at = group.from(at, 0);
  map_copy(group, (there ? to.keys : to.erased) + at * key_bytes,
           static_cast<const std::byte*>(batch.keys) + op * key_bytes, key_bytes);
  if (!there) return;
  map_copy(group, to.values + at * value_bytes, batch.out + op * value_bytes, value_bytes);
}

// Where a map is that has begun to apply them.
MapVersion begun(const MapChanges& of) { return {of.to.opening, of.from.number, of.to.seen}; }

void add(MapResult& sum, const MapResult& more) {
  sum.inserted += more.inserted;
  sum.assigned += more.assigned;
  sum.erased += more.erased;
  sum.absent += more.absent;
  sum.superseded += more.superseded;
  sum.full += more.full;
  sum.no_value += more.no_value;
}

}  // namespace

map::Changes& MapHost::recorder(const char* what) const {
  if (changes) return *changes;
  throw Error(Errc::unsupported,
              concat(where, ": ", what,
                     " of a map that was made without a record of changes: make one with "
                     "MapOptions::changes, and insert what this one has (export_batch())"));
}

MapVersion MapHost::version() const {
  const map::Changes& record = recorder("version()");
  if (refs_out_) {
    throw Error(Errc::invalid_argument,
                where +
                    ": version() while a ref is out, whose kernels change what is not "
                    "recorded: wait for them, and quiesce() first");
  }
  return record.version_at(record.number());
}

MapChanges MapHost::export_changes(const MapVersion& since, std::uint64_t most, void* keys,
                                   void* values, void* erased) {
  const map::Changes& record = recorder("export_changes()");
  (void)version();  // refuses refs
  const std::uint64_t from = record.number_of(since);
  const std::uint64_t left = std::min<std::uint64_t>(record.number() - from, max_batch_);
  const auto count = static_cast<std::uint32_t>(std::min(most, left));
  MapChanges result{since, record.version_at(from + count), 0, 0};
  if (count == 0) return result;
  if (keys == nullptr || values == nullptr || erased == nullptr) {
    throw Error(Errc::invalid_argument,
                where + ": export_changes() was given no place for keys, values or erased keys");
  }
  const std::size_t key_bytes = shape().key_bytes, value_bytes = shape().value_bytes;
  const DeviceBuffer<std::byte> keys_out(count * key_bytes), erased_out(count * key_bytes);
  const DeviceBuffer<unsigned long long> counts(2);
  unsigned long long found[2];
  const core::StreamEnd end(stream);
  fill_async(stream, counts.data(), 0, counts.bytes());
  fill_async(stream, memory_.report.data(), 0, sizeof(map::Report));
  MapBatch batch = lookups(keys, erased, count);
  record.bring(stream, from, count, memory_.keys.data());
  label_keys(batch);
  batch.status = memory_.status.data();
  batch.out = room_for_found(count * value_bytes);
  batch.alone = true;
  const MapView seen = view(true);
  claim(seen, batch);
  // By the table, not by the cache: nobody asked for these keys.
  types_.kernels->find(stream, seen, batch);
  const Sorted to{keys_out.data(), room_for_values(count * value_bytes), erased_out.data(),
                  counts.data()};
  launch(stream, dim3(blocks_for(std::uint64_t{count} * kWidth, kThreads)), dim3(kThreads),
         sort_changes, batch, to, shape().key_bytes, shape().value_bytes);
  copy_async(stream, found, counts.data(), sizeof(found));
  stream.synchronize();
  result.upserts = found[0];
  result.tombstones = found[1];
  copy_async(stream, keys, to.keys, found[0] * key_bytes);
  copy_async(stream, values, to.values, found[0] * value_bytes);
  copy_async(stream, erased, to.erased, found[1] * key_bytes);
  stream.synchronize();
  return result;
}

void MapHost::refuse_gap(const MapChanges& of) const {
  const map::Changes& record = *changes;
  if (!record.follows()) {
    throw Error(Errc::not_found,
                where +
                    ": apply_changes() to a map that follows none yet: insert a whole export, "
                    "and follow() the version that was before it");
  }
  // A page without operations is in once it has begun.
  const MapVersion& at = record.followed();
  if (of.from == at || (at == begun(of) && at != of.to)) return;
  const bool repeat = of.to == at || (of.to.opening == at.opening && of.to.number <= at.number);
  throw Error(Errc::conflict, concat(where, ": changes from version ", of.from.number,
                                     " of opening ", of.from.opening, " to ", of.to.number,
                                     ", and the map is at ", at.number, " of opening ", at.opening,
                                     ": ", repeat ? "they are in already" : "there is a gap",
                                     "; export_changes() since "
                                     "followed()"));
}

// Of counts that are no page's, what is behind the arrays would be read.
void MapHost::refuse_page(const MapChanges& of, const void* keys, const void* values,
                          const void* erased) const {
  const std::uint64_t recorded = of.to.number - of.from.number;
  if (of.to.opening == 0 || of.to.number < of.from.number || of.to.seen < of.to.number ||
      of.upserts > recorded || of.tombstones > recorded - of.upserts) {
    throw Error(Errc::invalid_argument,
                concat(where, ": changes from version ", of.from.number, " to ", of.to.number,
                       ", behind which ", of.to.seen, " were seen, with ", of.upserts,
                       " upserts and ", of.tombstones,
                       " tombstones, are no page that export_changes() gives: export them again"));
  }
  if ((of.upserts != 0 && (keys == nullptr || values == nullptr)) ||
      (of.tombstones != 0 && erased == nullptr)) {
    throw Error(Errc::invalid_argument,
                where +
                    ": apply_changes() was given no keys, values or erased keys: give what "
                    "export_changes() has filled");
  }
}

// Throws what a batch of these would, which does nothing then.
void MapHost::refuse_unstorable(const void* keys, const void* values, std::uint32_t count) {
  const core::StreamEnd end(stream);
  MapBatch batch{};
  batch.count = count;
  batch.status = memory_.status.data();
  if (shape().places == 0) batch.values = reach_in(values, count * shape().value_bytes);
  take_keys(batch, keys);
  fill_async(stream, memory_.report.data(), 0, sizeof(map::Report));
  claim(view(true), batch);
  copy_async(stream, memory_.report_host.data(), memory_.report.data(), sizeof(map::Report));
  stream.synchronize();
  check_refused();
}

MapResult MapHost::apply_changes(const MapChanges& of, const void* keys, const void* values,
                                 const void* erased) {
  region.check_writable("apply_changes()");
  map::Changes& record = recorder("apply_changes()");
  refuse_gap(of);
  refuse_page(of, keys, values, erased);
  const auto in_pieces = [&](std::uint64_t count, const void* of_keys, const void* of_values,
                             const auto& body) {
    for (std::uint64_t first = 0; first < count; first += max_batch_) {
      const auto at = [first](const void* all, std::uint64_t bytes) -> const void* {
        return all == nullptr ? nullptr : static_cast<const std::byte*>(all) + first * bytes;
      };
      body(at(of_keys, shape().key_bytes), at(of_values, shape().value_bytes),
           static_cast<std::uint32_t>(std::min<std::uint64_t>(max_batch_, count - first)));
    }
  };
  const auto refuse = [&](const void* some, const void* of_them, std::uint32_t count) {
    refuse_unstorable(some, of_them, count);
  };
  in_pieces(of.tombstones, erased, nullptr, refuse);
  in_pieces(of.upserts, keys, values, refuse);
  // From here on some keys may have what is newer than the version.
  whole([&] { record.follow(stream, begun(of)); });
  MapResult result;
  const auto change = [&](MapOperation operation) {
    return [&, operation](const void* some, const void* of_them, std::uint32_t count) {
      add(result, update(operation, some, of_them, nullptr, count, nullptr));
    };
  };
  in_pieces(of.tombstones, erased, nullptr, change(MapOperation::erase));
  in_pieces(of.upserts, keys, values, change(MapOperation::insert_or_assign));
  if (result.not_done() != 0) {
    throw Error(Errc::no_space,
                concat(where, ": ", result.not_done(),
                       " of the pairs that changed found no room, and the map stays at its "
                       "version: reserve() more, and apply the same changes again"));
  }
  whole([&] { record.follow(stream, of.to); });
  return result;
}

void MapHost::follow(const MapVersion& version) {
  region.check_writable("follow()");
  map::Changes& record = recorder("follow()");
  whole([&] { record.follow(stream, version); });
}

MapVersion MapHost::followed() const {
  const map::Changes& record = recorder("followed()");
  return record.follows() ? record.followed() : MapVersion{};
}

}  // namespace holdfast::detail
