// A log map's host side.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/durable.hpp"
#include "holdfast/log_map.hpp"
#include "holdfast/sort.hpp"
#include "kv_store/log/log_store.hpp"
#include "log_map/kernels.hpp"

namespace holdfast::log_map {

// The durable object of the values. docs/format.md.
struct LogMapParameters {
  static constexpr const char* kTypeName = "log map";
  static constexpr std::uint32_t kVersion = 1;
  std::uint64_t places;
  std::uint32_t value_bytes;
  std::uint32_t reserved;  // 0

  std::uint32_t stride() const;     // of a place
  std::vector<Part> parts() const;  // throws invalid_argument
};
using LogMapObject = Durable<LogMapParameters>;
inline constexpr const char* kValues = "values";

// Removes what a growth that was cut off has left of the values, if anything.
void drop_growth(Region& region, std::string_view name);
// No map has a name with this in it.
inline constexpr std::string_view kGrown = ".index.grown";

// Device memory of a map. Throws no_memory.
struct Memory {
  Memory(std::uint32_t places, std::uint32_t max_batch);

  DeviceBuffer<std::uint32_t> used;     // a bit for each place
  DeviceBuffer<std::uint32_t> list;     // of places that are free, in rising order
  DeviceBuffer<std::uint32_t> scratch;  // for making the list
  DeviceBuffer<std::uint64_t> keys;
  DeviceBuffer<std::uint64_t> taken[2];  // by operation; of one batch and of the next
  DeviceBuffer<std::uint32_t> place, sorted, ops, sorted_ops;
  DeviceBuffer<std::uint8_t> found;
  DeviceBuffer<std::byte> rows;  // made when they are needed
  PairSorter sorter;
};

// What a batch of some of its operations takes besides. Throws no_memory.
struct Selection {
  explicit Selection(std::uint32_t max_batch);

  DeviceBuffer<std::uint32_t> passed_over;  // a bit for each operation
  DeviceBuffer<std::uint32_t> op, old, scratch;
  DeviceBuffer<std::uint64_t> keys;
  DeviceBuffer<std::uint64_t> place;  // by operation of the batch
  DeviceBuffer<Chosen> chosen;
};

}  // namespace holdfast::log_map

namespace holdfast::detail {

// Invariants, between calls: `used` has a bit for each place that a pair of the index names (which
// may be under way in `behind_`: whoever needs it waits for that); no place of the list from
// `taken_` on has one. Or `broken_` says why nothing is known.
class LogMapHost {
 public:
  LogMapHost(Region& region, std::string_view name, std::string where, log_map::LogMapObject object,
             std::shared_ptr<kv::log::LogStore> index);
  ~LogMapHost();
  LogMapHost(const LogMapHost&) = delete;
  LogMapHost& operator=(const LogMapHost&) = delete;

  // This, for who may use it. Throws closed, in_use in a forked child, and device: an earlier call
  // failed.
  LogMapHost& usable();
  void survey();  // finds what is used. Throws damaged

  // `operations`: null where all of them store. `status`: null: nobody asks.
  LogMap::Result assign(const KvStore::Op* operations, const std::uint64_t* keys,
                        const void* values, std::size_t count, MapStatus* status);
  LogMap::Result assign_some(log_map::Which which, const std::uint64_t* keys, const void* values,
                             std::size_t count, MapStatus* status);
  LogMap::Result erase(const std::uint64_t* keys, std::size_t count, MapStatus* status);
  void find(const std::uint64_t* keys, void* values, std::uint8_t* found, std::size_t count);
  LogMapRef ref() const {
    return {KvStoreRef(index_->view()), rows_.values, rows_.stride, rows_.value_bytes};
  }
  std::uint64_t scan(std::uint64_t* keys, void* values, std::uint64_t limit);
  std::string verify();
  LogMap::Stats stats() const;
  // As LogMap::reserve(): the one that is to take this one's place, or null.
  std::shared_ptr<LogMapHost> grown(std::uint64_t capacity, std::uint64_t log_records);
  const std::string& where() const { return where_; }
  const Recovery& recovery() const { return index_->recovery; }
  Stream& stream() const { return index_->stream; }

 private:
  struct Used {
    DeviceBuffer<std::uint32_t> bits;
    log_map::Faults faults;
  };
  void check_batch(const void* keys, std::size_t count) const;
  void check_pairs(const void* keys, const void* values, std::size_t count) const;
  void begin(const std::uint64_t* keys, std::uint32_t count);
  // All of a batch whose keys begin() has.
  log_map::Changes all_of(std::uint32_t count) const;
  // Those that `which` does not leave out, whose status goes to `status`. Waits for them.
  log_map::Changes choose(log_map::Which which, std::uint32_t count, MapStatus* status);
  // Where the status of a batch's operations is put together; null: nobody asks.
  MapStatus* statuses(const MapStatus* asked);
  // Operations, where kernels behind the batch read them.
  const LogMap::Op* kinds(const LogMap::Op* operations, std::uint32_t count);
  // Behind the values: commits that keys have the places that were taken, and settles it. `count`:
  // of the batch.
  LogMap::Result commit(const KvStore::Op* operations, const log_map::Changes& changes,
                        const std::uint64_t* taken, MapStatus* status, std::uint32_t count);
  // Commits that the batch's keys have these places; null: that they are erased, as some of them
  // are by `operations`.
  KvStore::BatchResult change(const KvStore::Op* operations, const log_map::Changes& changes,
                              const std::uint64_t* places);
  // Stores rows to the places that `to` names, from whichever memory.
  void store(const void* values, std::uint32_t count, const std::uint64_t* to);
  // The next `count` places of the list, which is made anew if it has fewer: in the order of their
  // addresses a batch's are as near each other as what is used leaves them, however old the map is.
  void take(std::uint32_t count, std::uint64_t* to);
  // Behind the commit: which places are used now. `asked`: `count` of them, of the batch.
  void settle(const log_map::Changes& changes, const std::uint64_t* taken, MapStatus* asked,
              std::uint32_t count);
  std::uint64_t free_places() const { return places_ - index_->stats().records; }
  // Of what was looked up.
  void read(std::uint32_t count, void* values);
  bool reads_in_order(std::size_t count) const;
  Used used_places() const;
  std::byte* rows(std::uint64_t bytes);
  void end_work() noexcept;  // waits for it
  // Every place with what it has. REQUIRES: the other has fewer, and nothing under way.
  void copy_places(const LogMapHost& other);
  template <class Body>
  auto whole(Body&& body);

  Region& region_;
  std::string name_;
  std::string where_;
  log_map::LogMapObject object_;
  std::shared_ptr<kv::log::LogStore> index_;
  std::uint32_t places_;
  log_map::Rows rows_;
  log_map::Memory memory_;
  std::optional<log_map::Selection> selection_;  // made when it is needed
  DeviceBuffer<MapStatus> status_;               // the same
  DeviceBuffer<LogMap::Op> kinds_;               // the same
  std::uint64_t taken_ = 0;                      // of the list
  std::uint64_t listed_ = 0;                     // in it
  std::uint64_t batches_ = 0;
  std::string broken_;
  Stream writer_;  // values, beside lookups
  Stream behind_;  // what nobody waits for
  Event asked_, written_, changed_, settled_;
};

}  // namespace holdfast::detail
