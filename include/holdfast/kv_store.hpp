// A key-value store of 8-byte keys and values that lives in a region and is updated by kernels, a
// batch at a time, each batch a transaction. Kernels look keys up by themselves through a
// KvStoreRef (kv_store_ref.hpp).
//
// Source: gpKVS of GPM (ASPLOS '22), section 4.1 and Figure 6; its logging, section 5.2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "holdfast/config.hpp"
#include "holdfast/kv_store_ref.hpp"
#include "holdfast/region.hpp"
#include "holdfast/stream.hpp"
#include "holdfast/transaction.hpp"
#include "holdfast/undo_log_ref.hpp"

namespace holdfast {

// A region holds one store, the durable object "kvs", of one of two layouts:
// - in_place: a set-associative table. A key has a few places, and where all of them are taken by
//   others, a SET of it evicts one.
// - log: batches are appended to a log of records, which is cleaned behind them; keys are found by
//   an index in device memory, made again at each opening. Nothing is evicted: a SET for which
//   there is no room is refused. docs/kv-log.md.
//
// Invariants: once set(), erase() or apply() returned, the batch survives what the region's persist
// rung survives; after any crash, a batch is in the store whole or not at all.
//
// Opening it again in the same process ends the earlier store and its refs, also where open() then
// throws no_memory: it has one user, the last. A store that was ended so, one that was moved from,
// and one whose region is closed throw Errc::closed; in a forked child a store throws in_use.
//
// A batch that fails for another reason than one that set() names, such as memory that runs out on
// the host, ends the store: each call throws Errc::device then, until it is opened again. The batch
// is whole or absent then, as behind a crash.
//
// REQUIRES: the region outlives the store, and is not moved meanwhile.
// Thread safety: one thread at a time per store; one store at a time per region. Kernels with a ref
// of it are not bound to that (kv_store_ref.hpp).
class KvStore {
 public:
  // The one key that cannot be stored. It is never found, and erasing it is refused as setting it.
  static constexpr std::uint64_t kReservedKey = KvStoreRef::kReservedKey;

  // How the operations of a batch are laid out over the table. Answers are the same.
  enum class Order {
    automatic,  // ordered where it pays, by a measured rule (docs/results.md)
    unordered,  // in the order of the batch, for comparison
    ordered,    // by their places in the table; Index::fingerprints: of what they read in the log
  };

  // Whether the store keeps a copy of its table in device memory, where kernels then read. Batches
  // and lookups answer the same; what is durable is the table in the region alone.
  enum class Cache {
    automatic,  // where the table is across the link from the GPU, and the copy leaves an eighth of
                // the free device memory
    off,
    on,  // Errc::no_memory where there is no room for it
  };

  enum class Layout : std::uint32_t { in_place = 1, log = 2 };

  // What the index of the layout log has in device memory. Answers are the same, and so is what is
  // on the medium: each opening may choose another.
  enum class Index {
    automatic,     // whole where that leaves an eighth of the free device memory, else fingerprints
    whole,         // keys, values and positions: lookups never leave device memory
    fingerprints,  // of keys, and positions: lookups read their records over the link, in order
  };

  // Of a batch of several kinds.
  enum class Op : std::uint8_t { set = 0, erase = 1 };

  struct Options {
    // Pairs; Layout::in_place: rounded up to a power of two of 8 or more, 16 bytes each.
    std::uint64_t capacity = 0;
    // Operations per batch at most; 1 to 2^26. Each takes about 84 bytes of device memory.
    std::uint32_t max_batch = 0;
    Cache cache = Cache::automatic;
    // conventional: 1,024 partitions under locks, for comparison (GPM, Figure 11); max_batch is
    // then 11,184,128 at most. The store remembers it.
    LogLayout log = LogLayout::coalesced;
    // Chosen at creation, and remembered. Of the layout log, 2^29 pairs is the most; `cache` does
    // not matter, `log` is the coalesced one, and device memory holds 40 to 80 bytes for each pair
    // of the capacity (Index::fingerprints: 16 to 32) and 4 for each record.
    Layout layout = Layout::in_place;
    // Layout::log: records of 16 bytes that the log takes, rounded up to whole segments. 0: twice
    // the capacity and two batches, at which a full store is about half of its log.
    std::uint64_t log_records = 0;
    Index index = Index::automatic;  // Layout::log: until the store is opened again
  };

  // What one batch did. A key that occurs twice in a batch counts once, with its last value; but of
  // set() in place each time that it was evicted in between, by another key of the batch.
  struct BatchResult {
    std::uint64_t inserted = 0;  // keys that were not in the store
    std::uint64_t updated = 0;   // keys that were
    std::uint64_t evicted = 0;   // other keys that lost their place to one that is set
    std::uint64_t removed = 0;   // keys that an ERASE took out
  };

  struct Stats {
    std::uint64_t records = 0;   // pairs in the store
    std::uint64_t capacity = 0;  // pairs that it has places for
    std::uint64_t max_batch = 0;
    std::uint64_t batches = 0;  // committed transactions
    bool cached = false;        // kernels read device memory alone: a copy of the table, an index
    LogLayout log = LogLayout::coalesced;
    BatchResult total;  // over all committed batches
    Layout layout = Layout::in_place;
    // Of the layout log; else 0.
    std::uint64_t log_records = 0;      // that it takes, the headers of runs included
    std::uint64_t live_records = 0;     // pairs, and tombstones that are still needed
    std::uint64_t tombstones = 0;       // of them
    std::uint64_t segment_records = 0;  // of a segment, the unit that cleaning makes free
    std::uint64_t segments = 0;
    std::uint64_t free_segments = 0;
    // Snapshots of what is live in a segment, by which it is opened: how many segments have one,
    // runs that were committed since the oldest of them was taken, how many it was opened by, and
    // whether these were not as the log, which was read without any then.
    std::uint64_t snapshots = 0;
    std::uint64_t snapshot_age = 0;
    std::uint64_t snapshots_used = 0;
    bool snapshots_refused = false;
    // Since it was opened: records that its batches had, records that cleaning copied, and bytes
    // stored to the medium for both, and for snapshots, which are part of them. Write amplification
    // is bytes_stored / (16 * batch_records).
    std::uint64_t batch_records = 0;
    std::uint64_t copied_records = 0;
    std::uint64_t bytes_stored = 0;
    std::uint64_t snapshot_bytes = 0;
    Index index = Index::automatic;  // that it has; automatic: it is of the layout in_place

    // Bytes stored for a byte of batches since it was opened; 0 before the first batch.
    double write_amplification() const {
      if (batch_records == 0) return 0;
      return static_cast<double>(bytes_stored) / (16.0 * static_cast<double>(batch_records));
    }
    // Records in segments that are not free for one that is live; 0 where none is.
    double space_amplification() const {
      if (live_records == 0) return 0;
      return static_cast<double>((segments - free_segments) * segment_records) /
             static_cast<double>(live_records);
    }
  };

  // Milliseconds of the parts of the last batch, by events in the stream.
  struct Timing {
    double copy = 0;   // keys to the device; values come beside what follows. Of the layout log:
                       // what kernels cannot read where it is
    double order = 0;  // sorting, or grouping by bucket; of the layout log by key, with the part of
                       // the append that is beside it
    double update = 0;  // what changes; log, table, persists; of the layout log the commit, too
    double commit = 0;  // counters and the transaction's commit point
  };

  // A kill leaves the store whole or absent. Throws invalid_argument, already_exists, no_space (the
  // message says what it takes), no_memory (also Cache::on, and where the index of the layout log
  // does not fit; it names what does), and as Durable::create(); there is none then, or what was
  // there before.
  static KvStore create(Region& region, const Options& options);
  // Opens, and takes back a batch that a crash cut off. Throws not_found, damaged, unsupported (a
  // store of an earlier version, which has to be made again), invalid_argument (no such cache or
  // index), no_memory (also Cache::on, and for an index), and as Durable::open(). The copy in
  // device memory may still be being loaded when it returns; batches, lookups and ref() wait for
  // that.
  static KvStore open(Region& region, Cache cache = Cache::automatic,
                      Index index = Index::automatic);
  // Removes it, whichever layout it has; whoever has it open in this process is ended, as by
  // open(). A kill leaves it whole, or absent with something for the next creation to remove.
  // Throws not_found, and as Durable::remove().
  static void remove(Region& region);
  // Bytes that a region must have for a store of these options. Throws invalid_argument.
  static std::uint64_t region_bytes(const Options& options);

  KvStore(KvStore&&) noexcept;
  KvStore& operator=(KvStore&&) noexcept;
  ~KvStore();

  // Stores `count` pairs as one transaction. `keys` and `values` are host, device or region
  // memory. Throws invalid_argument if count exceeds max_batch, a key is kReservedKey or one of the
  // two is null, log_full, unsupported (a region that is open for reading), no_space (Layout::log:
  // there would be more pairs than the capacity, or the log is too full for the batch; before
  // anything of it is written); the store is then unchanged. Returns when the transaction is
  // committed.
  BatchResult set(const std::uint64_t* keys, const std::uint64_t* values, std::size_t count);

  // Removes `count` keys as one transaction; keys that are absent are passed over. Otherwise as
  // set().
  BatchResult erase(const std::uint64_t* keys, std::size_t count);

  // Sets and removes as one transaction: operations[i] says which of both is done with keys[i], and
  // of an ERASE values[i] means nothing. Of operations on a key the last one counts, alone: a key
  // that was there and is erased and set is `updated`. What is erased is room for what is set (with
  // Layout::log up to half of the capacity: docs/kv-log.md says why). The
  // three are host, device or region memory; `operations`, where they are the host's, are read
  // before the call waits for anything. Otherwise as set(), and throws invalid_argument where an
  // operation is none.
  BatchResult apply(const Op* operations, const std::uint64_t* keys, const std::uint64_t* values,
                    std::size_t count);

  // Looks up `count` keys, all in the state that the last batch left. values[i] is 0 and found[i]
  // is 0 where a key is absent. All three are host, device or region memory. Throws
  // invalid_argument if count exceeds max_batch or one of the three is null.
  void get(const std::uint64_t* keys, std::uint64_t* values, std::uint8_t* found,
           std::size_t count);

  // For kernels that look keys up by themselves. Returns once the copy in device memory, if there
  // is one, is loaded. kv_store_ref.hpp says what they see, and for how long the ref is good.
  KvStoreRef ref();

  // Copies out up to `limit` pairs in the order of the table, the index, or the log; returns how
  // many there are. `keys` and `values` are the host's, and may be null to count only.
  std::uint64_t scan(std::uint64_t* keys, std::uint64_t* values, std::uint64_t limit);

  // Checks what must hold between batches: no transaction open, every key in its own place and
  // there once, the counters equal to the table, and so the copy in device memory, if there is
  // one. Layout::log: every run's checksum, and every pair of the index equal to its record, which
  // are as many and live in the segments that count them. Returns the empty string, or what is
  // wrong.
  std::string verify();

  // Gives it room for `capacity` pairs, as Options::capacity, with all that it holds; where it has
  // as much, does nothing. Layout::log: also of `log_records` (0: as Options::log_records), and
  // with no less of either than it has. What it has and what it gets are there together for a
  // while, on the medium and in device memory: the region is enlarged for it, up to its max_size. A
  // kill leaves the store as it was, or with its new room. Refs of it end, as by open(), and
  // stream() may be another one. In place no pair is evicted, and batches and logs stay what they
  // are.
  //
  // Throws unsupported (a region that is open for reading), invalid_argument (as create(), also
  // log_records in place), already_exists (an object of the region has the name of one that is made
  // for it, "kvs.grown.records" for example), no_space, no_shared_memory, no_memory, and damaged (a
  // pair in place that is where its key does not belong, which would be lost); the store is then as
  // it was, and the region may be larger.
  void reserve(std::uint64_t capacity, std::uint64_t log_records = 0);

  // Returns once the copy in device memory, if there is one, is loaded.
  void await_cache();

  void set_order(Order order);  // of batches from here on; throws invalid_argument
  Stats stats() const;
  Recovery recovery() const;  // of open()
  Timing timing() const;
  // In which batches and lookups run. A store that another has ended gives it, too, so that its
  // last work can be waited for.
  Stream& stream();

  struct Impl;

 private:
  explicit KvStore(std::shared_ptr<Impl> impl);
  detail::Shared<Impl> impl_;
};

}  // namespace holdfast
