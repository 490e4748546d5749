// A hash map of 8-byte keys and values of one size that lives in a region and is changed a batch at
// a time, each batch a transaction. Its index is in device memory alone; on the medium a change
// appends a record of 16 bytes to a log, and stores the value to a place that is free.
//
// Source: the log and its index are those of KvStore::Layout::log (docs/kv-log.md); values at a
// place of their own and an offset in the index, GPHash (FAST '25), section 3.2.3. docs/log-map.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "holdfast/config.hpp"
#include "holdfast/kv_store.hpp"
#include "holdfast/log_map_ref.hpp"
#include "holdfast/map_status.hpp"
#include "holdfast/region.hpp"
#include "holdfast/stream.hpp"

namespace holdfast {

namespace detail {
class LogMapHost;
}

// Beside HashMap (hash_map.hpp): a batch is in the map whole or not at all, changes are faster, and
// there is device memory for each pair; kernels look keys up, and change nothing; there is no
// cache.
//
// Invariants: once insert_or_assign(), erase() or apply() returned, the batch survives what the
// region's persist rung survives; after any crash, a batch is in the map whole or not at all, and
// no place of a value is lost.
//
// A call that fails for another reason than one that it names, or for want of memory on the host,
// ends the map: each call throws Errc::device then, until it is opened again. The batch that it was
// part of is whole or absent, as behind a crash, and may be there.
//
// Opening it again in the same process ends the earlier map, also where open() then throws
// no_memory. A map that was ended so, one that was moved from, and one whose region is closed throw
// Errc::closed; in a forked child a map throws in_use.
//
// REQUIRES: the region outlives the map, and is not moved meanwhile.
// Thread safety: one thread at a time.
class LogMap {
 public:
  static constexpr std::uint64_t kReservedKey = KvStore::kReservedKey;  // cannot be stored
  static constexpr std::uint32_t kMostValueBytes = 4096;
  static constexpr std::uint32_t kMostBatch = 1u << 24;
  using Op = KvStore::Op;

  struct Options {
    std::uint64_t capacity = 0;     // pairs; 1 to 2^29, and as many values as a region can have
    std::uint32_t value_bytes = 0;  // a multiple of 4; 4 to kMostValueBytes
    std::uint32_t max_batch = 0;    // operations of a batch at most; 1 to kMostBatch
    // Records of 16 bytes that the log takes, rounded up to whole segments, and to 2,048. 0: twice
    // the capacity and two batches. Fewer than the capacity and a batch need is invalid_argument.
    std::uint64_t log_records = 0;
    KvStore::Index index = KvStore::Index::automatic;  // until the map is opened again
  };

  // What one batch did. A key that occurs twice in a batch counts once, with its last value.
  struct Result {
    std::uint64_t inserted = 0;  // keys that were not there
    std::uint64_t assigned = 0;  // keys that were
    std::uint64_t erased = 0;
  };

  struct Stats {
    std::uint64_t size = 0;  // pairs
    std::uint64_t capacity = 0;
    std::uint64_t places = 0;  // for values: the capacity and a batch
    std::uint64_t free_places = 0;
    std::uint32_t value_bytes = 0;
    std::uint32_t max_batch = 0;
    KvStore::Stats index;  // segments, amplification
  };

  // A kill leaves the map whole or absent. Throws invalid_argument (an option; a name of more than
  // 39 bytes, or with ".index.grown" in it), already_exists (also for a durable object of another
  // kind), no_space (the message says what it takes), no_memory (the index does not fit into device
  // memory), and as Durable::create(); it is absent then.
  static LogMap create(Region& region, std::string_view name, const Options& options);
  // Opens, and takes back a batch that a crash cut off. Throws not_found, invalid_argument (of that
  // name is something else; an index that is none), damaged, no_memory, unsupported (a region that
  // is open for reading: recovery stores to it), and as Durable::open().
  static LogMap open(Region& region, std::string_view name,
                     KvStore::Index index = KvStore::Index::automatic);
  // Removes it; whoever has it open in this process is ended, as by open(). A kill leaves it whole,
  // or absent with something for the next creation to remove. Throws not_found, invalid_argument
  // (it is no log map), and as Durable::remove().
  static void remove(Region& region, std::string_view name);
  // Bytes that suffice for a region with such a map alone. Throws invalid_argument.
  static std::uint64_t region_bytes(const Options& options);

  LogMap(LogMap&&) noexcept;
  LogMap& operator=(LogMap&&) noexcept;
  ~LogMap();

  // Stores `count` pairs as one transaction. `keys`: count words; `values`: count rows of
  // value_bytes, without gaps. Both are host, device or region memory. Throws invalid_argument
  // (more than max_batch, a key is kReservedKey, one of the two is null and count is not 0),
  // unsupported (a region that is open for reading), no_space (there would be more pairs than the
  // capacity, or the log is too full), no_memory (device memory for values that kernels cannot read
  // where they are); the map is then unchanged. Returns when the transaction is committed.
  //
  // status[i]: what became of operation i, inserted or assigned, and superseded where a later one
  // has its key; host, device or region memory. Null: nobody asks, which is faster.
  Result insert_or_assign(const std::uint64_t* keys, const void* values, std::size_t count,
                          MapStatus* status = nullptr);
  // Stores, as one transaction, the pairs whose keys are not there when it begins; the others are
  // `kept`, all of them. Otherwise as above; where all are kept nothing is stored.
  Result insert(const std::uint64_t* keys, const void* values, std::size_t count,
                MapStatus* status = nullptr);
  // Stores, as one transaction, the pairs whose keys are there; the others are `absent`, all of
  // them. Otherwise as above.
  Result assign(const std::uint64_t* keys, const void* values, std::size_t count,
                MapStatus* status = nullptr);
  // Removes keys as one transaction; operations on those that are not there are `absent`. Of
  // several on one that is there any is `erased`, and the others are superseded. Otherwise as
  // above.
  Result erase(const std::uint64_t* keys, std::size_t count, MapStatus* status = nullptr);

  // Stores and removes as one transaction: operations[i] says which of both is done with keys[i],
  // and where it is an erasure row i of `values` means nothing. Of operations on a key the last one
  // counts, alone: a key that was there and is erased and stored is `assigned`. Of erasures of a
  // key that is erased the status is as of erase(). `operations` are as `keys`; the host's are read
  // before the call waits for anything. Otherwise as insert_or_assign(), and throws
  // invalid_argument where an operation is none.
  Result apply(const Op* operations, const std::uint64_t* keys, const void* values,
               std::size_t count, MapStatus* status = nullptr);

  // found[i] is 1 where keys[i] is there, and row i of `values` has its value then; else found[i]
  // is 0, and row i is as it was. `values` may be null: what is there. All are host, device or
  // region memory, `values` and `found` such as may be written to. Throws invalid_argument (more
  // than max_batch; keys or found are null), no_memory.
  void find(const std::uint64_t* keys, void* values, std::uint8_t* found, std::size_t count);

  // For kernels that look keys up by themselves. log_map_ref.hpp says what they see, and for how
  // long the ref is good.
  LogMapRef ref();

  // Copies out up to `limit` pairs, in no order that means anything; returns how many there are.
  // `keys` and `values` are the host's, and may be null. Throws no_memory.
  std::uint64_t scan(std::uint64_t* keys, void* values, std::uint64_t limit);

  // Checks the log and its index (KvStore::verify()), and that each value has a place of its own
  // and all others are free. Values have no checksums of their own. Returns the empty string, or
  // what is wrong.
  std::string verify();

  // Makes it a map for `capacity` pairs, of `log_records` (0: as Options::log_records), with all
  // that it holds, where it has room for fewer of either, and with no less of the other than it
  // has; else does nothing. All of it is there twice meanwhile: the region is enlarged for it, up
  // to its max_size. A kill leaves the map as it was, or with its new room. stream() is another one
  // then. Throws invalid_argument (as create(); a name of more than 32 bytes), unsupported (a
  // region that is open for reading), already_exists (an object of the region has the name of one
  // that it makes, "<name>.index.grown.records" for example), no_space, no_memory; the map is then
  // as it was, and the region may be larger.
  void reserve(std::uint64_t capacity, std::uint64_t log_records = 0);

  std::uint64_t size() const;
  Stats stats() const;
  Recovery recovery() const;  // of open()
  // Batches and lookups begin behind what it has under way, and have ended when they return. A map
  // that another has ended gives it, too.
  Stream& stream();

 private:
  explicit LogMap(std::shared_ptr<detail::LogMapHost> host);
  detail::Shared<detail::LogMapHost> host_;
};

}  // namespace holdfast
