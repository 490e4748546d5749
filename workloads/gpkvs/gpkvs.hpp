// gpKVS: an 8-way set-associative key-value store whose table lives in a region and is updated by
// kernels, a batch at a time, each batch a transaction. Source: GPM (ASPLOS '22) sections 4.1, 5.2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "holdfast/region.hpp"
#include "holdfast/stream.hpp"
#include "holdfast/transaction.hpp"
#include "holdfast/undo_log_ref.hpp"

namespace gpkvs {

// The one key that cannot be stored: it marks an empty way.
inline constexpr std::uint64_t kReservedKey = ~std::uint64_t{0};
inline constexpr unsigned kWays = 8;

// How the operations of a batch are laid out over the table.
enum class Order {
  automatic,  // ordered where it pays, by a measured rule (see docs/results)
  unordered,  // in the order of the batch, for comparison
  ordered,    // by bucket
};

// Whether the store keeps a copy of its table in device memory, where kernels then read. Batches
// and lookups answer the same; what is durable is the table in the region alone.
enum class Cache {
  automatic,  // where the table is across the link from the GPU, and the copy leaves an eighth of
              // the free device memory
  off,
  on,  // Errc::no_memory where there is no room for it
};

struct StoreOptions {
  std::uint64_t capacity = 0;  // pairs, rounded up so that the buckets are a power of two
  // Operations per batch at most; 1 to 2^26. Each takes about 80 bytes of device memory.
  std::uint32_t max_batch = 0;
  Cache cache = Cache::automatic;
  // conventional: 1,024 partitions under locks, for comparison (GPM, figure 11); max_batch is then
  // 11,184,128 at most. The store remembers it.
  holdfast::LogLayout log = holdfast::LogLayout::coalesced;
};

// What one batch did. A key that occurs twice in a batch counts once, with its last value.
struct BatchResult {
  std::uint64_t inserted = 0;  // keys that were not in the store
  std::uint64_t updated = 0;   // keys that were
  std::uint64_t evicted = 0;   // other keys that lost their place in a full bucket
  std::uint64_t removed = 0;   // keys that an ERASE took out
};

struct StoreStats {
  std::uint64_t records = 0;   // pairs in the store
  std::uint64_t capacity = 0;  // ways
  std::uint64_t max_batch = 0;
  std::uint64_t batches = 0;  // committed transactions
  bool cached = false;        // kernels read a copy of the table in device memory
  holdfast::LogLayout log = holdfast::LogLayout::coalesced;
  BatchResult total;  // over all committed batches
};

// Milliseconds of the parts of the last batch, by events in the stream.
struct BatchTiming {
  double copy = 0;    // keys to the device; values come beside what follows
  double order = 0;   // sorting, or grouping by bucket
  double update = 0;  // what changes; log, table, persists
  double commit = 0;  // counters and the transaction's commit point
};

// Invariants: once set() or erase() returned, the batch survives what the region's persist rung
// survives; after any crash, a batch is in the table whole or not at all.
// Thread safety: one thread at a time per store; one store at a time per region.
class Store {
 public:
  // The durable object "kvs" in `region`: a kill leaves it whole or absent. Throws
  // invalid_argument, already_exists, no_space (the message says what it takes), no_memory
  // (Cache::on), and as Durable::create().
  static Store create(holdfast::Region& region, const StoreOptions& options);
  // Opens and recovers. Throws not_found, damaged, unsupported (a store of an earlier version,
  // which has to be made again), no_memory (Cache::on), and as Durable::open(). The copy in device
  // memory may still be being loaded when it returns; batches wait for that.
  static Store open(holdfast::Region& region, Cache cache = Cache::automatic);
  // Bytes that a region must have for a store of these options. Throws invalid_argument.
  static std::uint64_t region_bytes(const StoreOptions& options);

  Store(Store&&) noexcept;
  Store& operator=(Store&&) noexcept;
  ~Store();

  // Stores `count` pairs as one transaction. `keys` and `values` are host, device or region
  // memory. Throws invalid_argument if count exceeds max_batch or a key is kReservedKey, log_full;
  // the store is then unchanged. Returns when the transaction is committed.
  BatchResult set(const std::uint64_t* keys, const std::uint64_t* values, std::size_t count);

  // Looks up `count` keys. values[i] is 0 and found[i] is 0 where a key is absent.
  void get(const std::uint64_t* keys, std::uint64_t* values, std::uint8_t* found,
           std::size_t count);

  // Removes `count` keys as one transaction; keys that are absent are passed over.
  BatchResult erase(const std::uint64_t* keys, std::size_t count);

  // Copies out up to `limit` pairs of the table in table order; returns how many there are.
  // keys and values may be null to count only.
  std::uint64_t scan(std::uint64_t* keys, std::uint64_t* values, std::uint64_t limit);

  // Checks what must hold between batches: no transaction open, every key in its own bucket and
  // there once, the counters equal to the table, and so the copy in device memory, if there is
  // one. Returns the empty string, or what is wrong.
  std::string verify();

  // Returns once the copy in device memory, if there is one, is loaded.
  void await_cache();

  void set_order(Order order);
  StoreStats stats() const;
  holdfast::Recovery recovery() const;  // of open()
  BatchTiming timing() const;
  holdfast::Stream& stream();

  struct Impl;

 private:
  explicit Store(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpkvs
