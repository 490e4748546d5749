// A map's host side, for maps of any types.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "core/reason.hpp"
#include "core/region_access.hpp"
#include "core/stream_end.hpp"
#include "hash_map/cache.hpp"
#include "hash_map/changes.hpp"
#include "hash_map/format.hpp"
#include "hash_map/kernels.hpp"
#include "hash_map/scores.hpp"
#include "hash_map/table.hpp"
#include "holdfast/sort.hpp"

namespace holdfast::map {

// A copy of the table, level by level; empty: there is none.
using Directory = std::vector<DeviceBuffer<std::byte>>;

// Device memory of a map. Throws no_memory.
struct Memory {
  Memory(const MapParameters& shape, std::uint32_t max_batch, Directory directory);

  Directory directory;
  DeviceBuffer<std::uint32_t> free;       // the ring of free places
  DeviceBuffer<std::uint32_t> used;       // a bit for each place, while the table is surveyed
  DeviceBuffer<unsigned long long> ends;  // of the ring: head, tail
  DeviceBuffer<std::byte*> more_values;   // where the places begin that each growth has added
  DeviceBuffer<std::byte> keys;
  DeviceBuffer<std::uint64_t> labels;  // of keys of 16 bytes and more
  DeviceBuffer<MapStatus> status;
  DeviceBuffer<unsigned long long> claims;
  DeviceBuffer<std::uint32_t> entry_of;
  DeviceBuffer<std::uint32_t> bucket, op, sorted_bucket, sorted_op;
  DeviceBuffer<unsigned> locks{detail::kMapRoomBits / 32};  // of slots, while keys are moved
  PairSorter sorter;
  DeviceBuffer<Report> report{1};
  PinnedBuffer<Report> report_host{1};
  DeviceBuffer<detail::MapSurvey> survey{1};
  PinnedBuffer<detail::MapSurvey> survey_host{1};
  DeviceBuffer<std::byte> values_in, values_out;  // made when they are needed
  DeviceBuffer<std::uint8_t> found;
  DeviceBuffer<MapOp> kinds;            // of a mixed batch; made when they are needed
  DeviceBuffer<std::uint32_t> sources;  // likewise
  std::unique_ptr<Cache> cache;         // null: there is none
  std::unique_ptr<Scores> scores;       // likewise
};

// Memory for copies of levels of so many bytes; empty where they get none.
Directory make_directory(MapOptions::Directory directory,
                         const std::vector<std::uint64_t>& level_bytes, bool on_device);

}  // namespace holdfast::map

namespace holdfast::detail {

// Of two arrays of so many bytes; null: there is none.
inline bool overlap(const void* a, const void* b, std::size_t bytes) {
  if (a == nullptr || b == nullptr) return false;
  const auto x = reinterpret_cast<std::uintptr_t>(a), y = reinterpret_cast<std::uintptr_t>(b);
  return (x > y ? x - y : y - x) < bytes;
}

// Invariant: between calls, what it counts is as the table has it, but for what kernels with refs
// have done since; or `broken_` says why nothing is known.
class MapHost {
 public:
  MapHost(Region& region, std::string where, map::Table table, core::Use use, const MapTypes& types,
          std::uint32_t max_batch, MapOptions::Directory directory, map::Memory memory);
  ~MapHost();
  MapHost(const MapHost&) = delete;
  MapHost& operator=(const MapHost&) = delete;

  // This, for who may use it. Throws closed, in_use in a forked child, and device: an earlier call
  // failed.
  MapHost& usable();

  // Looks at the whole table, puts in order what is not, and makes what is volatile anew. Throws
  // damaged, with nothing changed.
  MapRecovery survey();

  MapResult update(MapOperation operation, const void* keys, const void* values, void* out,
                   std::size_t count, MapStatus* status);
  MapResult apply_mixed(const MapOp* operations, const void* keys, const void* values, void* out,
                        std::size_t count, MapStatus* status);
  MapResult accumulate(const void* keys, const void* deltas, MapElement element, std::size_t count,
                       MapStatus* status);
  MapEviction insert_and_evict(const void* keys, const void* values, const std::uint64_t* given,
                               std::size_t count, const MapWent& went, MapStatus* status);
  void scores(const void* keys, std::uint64_t* scores, std::uint8_t* found, std::size_t count);
  MapInit stage(const void* keys, std::size_t count);
  void find(const void* keys, void* values, std::uint8_t* found, std::size_t count);
  void find_async(Stream& by, const void* keys, void* values, std::uint8_t* found,
                  std::size_t count);
  std::uint64_t export_batch(std::uint64_t first, std::uint64_t slots, void* keys, void* values,
                             const MapCollect& collect);
  MapView give_ref();
  void quiesce();
  std::string verify();
  MapStats stats();
  void reserve(std::uint64_t capacity);
  void grow();
  bool migrate(std::uint64_t buckets);
  void load_cache(bool wait);
  MapVersion version() const;
  MapChanges export_changes(const MapVersion& since, std::uint64_t most, void* keys, void* values,
                            void* erased);
  MapResult apply_changes(const MapChanges& of, const void* keys, const void* values,
                          const void* erased);
  void follow(const MapVersion& version);
  MapVersion followed() const;

  // As it is now.
  const map::MapParameters& shape() const { return table_.now; }
  // Those that hold keys, of the level that is emptied, too.
  std::uint64_t slots() const { return table_.bucket_count() * types_.ways; }

  Region& region;
  std::string where;
  core::Use use;
  Stream stream;
  MapOptions::Order order = MapOptions::Order::automatic;
  MapRecovery recovery;
  std::unique_ptr<map::Changes> changes;  // null: none is recorded
  Event marks[4];
  Event handed_over;  // between the map's stream and a caller's

 private:
  // What a batch that evicts is given, and what comes of it.
  struct Evicting {
    const std::uint64_t* scores = nullptr;  // null: none
    std::byte* values = nullptr;            // of what goes
    std::uint32_t went = 0;
    std::uint32_t evicted = 0;  // of these, pairs that were in the map
  };

  bool has_directory() const { return !memory_.directory.empty(); }
  void load_directory();
  // The table as kernels see it that are alone, or that refs may be beside.
  MapView view(bool alone) const;
  bool orders(const MapView& view, const MapBatch& batch, bool updates) const;
  const std::uint32_t* order_of(const MapView& view, const MapBatch& batch, bool updates);
  // The operations of a batch that is claimed, those of one key side by side.
  const std::uint32_t* order_by_key(const MapView& view, const MapBatch& batch);
  // Whether so many places of values are worth their sorting.
  bool sorts_places(std::size_t count) const;
  void find_by_place(const MapView& view, const MapBatch& batch);
  // `waits`: it may wait for the device.
  void find_by_cache(const MapView& view, const MapBatch& batch, bool waits);
  void look_up(MapBatch& batch, bool waits);
  MapBatch lookups(const void* keys, const void* found, std::size_t count);
  // The keys of a batch, whose count is set, where kernels read them.
  void take_keys(MapBatch& batch, const void* keys);
  void label_keys(MapBatch& batch);  // that are there already
  // Leaves places in memory_.sorted_bucket.
  void sort_by_place(const std::uint32_t* place, const std::uint32_t* op, std::uint32_t* sorted_op,
                     std::uint32_t count);
  void read_by_place(const MapView& view, const MapBatch& batch, MapMixed& mixed);
  void sort_next_places(std::uint32_t count);
  // Where kernels can read or write what the caller has there.
  const std::byte* reach_in(const void* values, std::size_t bytes);
  std::byte* reach_out(void* values, std::size_t bytes);
  void bring_out(void* to, std::size_t count, const std::vector<std::uint8_t>& wanted);
  MapSurvey look();
  std::string verify_level(std::size_t level, class Audit& audit);
  void refuse_refs(const char* what) const;
  map::Changes& recorder(const char* what) const;
  void refuse_gap(const MapChanges& of) const;
  void refuse_page(const MapChanges& of, const void* keys, const void* values,
                   const void* erased) const;
  void refuse_unstorable(const void* keys, const void* values, std::uint32_t count);
  void list_values();
  void list_more_places(DeviceBuffer<std::uint32_t> larger);
  void check_count(std::size_t count) const;
  MapResult finish(const map::Report& report, std::uint32_t operations);
  void end_places(const map::Report& report);  // those that came free are free for what follows
  // `element`: the values are what gather_deltas() has left, which has claimed the batch.
  MapResult apply(MapOperation operation, const void* keys, const void* values, void* out,
                  std::uint32_t count, MapStatus* status, const MapElement* element = nullptr,
                  Evicting* evicting = nullptr);
  // While there are operations that found all of their slots taken: `again` has keys moved by
  // kernels, with memory_.locks, and applies those that have room then.
  void make_room(const MapView& view, const MapBatch& batch, const std::function<void()>& again);
  void report(const MapView& view, const MapBatch& batch);  // to the host, which has to wait for it
  // Of all of the batch, of which more is done now; waits.
  void report_again(const MapView& view, const MapBatch& batch);
  MapResult make_mixed(const MapOp* operations, const void* keys, const void* values, void* out,
                       std::uint32_t count, MapStatus* status);
  // A batch, as far as its keys: a cache's part of it is begun.
  MapBatch begin_batch(const void* values, void* out, std::uint32_t count);
  // Brings back what became of it, and waits. `gets(i, status)`: whether operation i has a value in
  // `out`, which batch.out stands in for. `again`: of make_room(), if it may make any. (A growing
  // table keeps slots for keys, and makes room by that.)
  MapResult end_batch(const MapView& view, const MapBatch& batch, void* out, MapStatus* status,
                      const std::function<bool(std::size_t, MapStatus)>& gets,
                      const std::function<void()>& again = {}, Evicting* evicting = nullptr);
  // Applies once more what stayed `full` where keys have moved: one may have left a slot free.
  void retry_full(const MapView& view, const MapBatch& batch, const std::function<void()>& again);
  map::Scores& scored(const char* what) const;
  // `evicts`: and notes whose pairs do not go.
  void score(const MapView& view, const MapBatch& batch, const std::uint64_t* given = nullptr,
             bool evicts = false);
  void evict(MapView view, const MapBatch& batch, Evicting& evicting);
  void check_evicts(const void* values, const std::uint64_t* given, std::size_t count,
                    const MapWent& went) const;
  // Throws if the last batch was refused.
  void check_refused() const;
  kv::Claims claim(const MapView& view, const MapBatch& batch);
  // Device memory for so many bytes of what comes in, and of what is found.
  std::byte* room_for_values(std::size_t bytes);
  std::byte* room_for_found(std::size_t bytes);
  std::byte* gather_deltas(const void* keys, const void* deltas, MapElement element,
                           std::uint32_t count);
  // Refuses what cannot be, before and behind `body`, which applies it.
  MapResult run_batch(MapOperation operation, const void* keys, const void* values, void* out,
                      std::size_t count, const std::function<MapResult()>& body);
  // What `body` throws breaks the map.
  template <class Body>
  auto whole(Body&& body) {
    try {
      return body();
    } catch (const std::exception& error) {
      // Who opens it again looks at the table, and the caller's arrays may be gone.
      { const core::StreamEnd end(stream); }
      core::keep_reason(broken_, error);
      throw;
    }
  }

  map::Table table_;
  MapTypes types_;
  std::uint32_t max_batch_;
  MapOptions::Directory directory_;
  map::Memory memory_;
  std::uint64_t moved_ = 0;  // buckets of the level that is emptied
  std::uint64_t size_ = 0;
  std::uint64_t limit_ = 0;
  std::uint64_t head_ = 0;          // as the last report had it
  std::uint64_t sorted_until_ = 0;  // of the ring, from head_ on
  std::uint32_t tag_ = 0;
  bool refs_out_ = false;
  std::string broken_;
};

}  // namespace holdfast::detail
