// A store's device memory, and which form of an index it has room for.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "kv_store/log/batch.hpp"
#include "kv_store/log/lookup_order.hpp"

namespace holdfast::kv::log {

using AnyIndex = std::variant<Index, FingerprintIndex>;

class Memory {
 public:
  // `asked`: Index::automatic chooses by what is free. Throws no_memory, and names what needs less,
  // and the layout that needs none of it.
  static Memory make(const LogParameters& shape, KvStore::Index asked);
  AnyIndex index(const Record* records) const;
  void clear_index(Stream& stream);  // makes it empty again; stream-ordered
  KvStore::Index form() const {
    return order ? KvStore::Index::fingerprints : KvStore::Index::whole;
  }

  DeviceBuffer<KvPair> pairs;         // Index::whole
  DeviceBuffer<std::uint32_t> where;  // the same
  DeviceBuffer<std::uint64_t> words;  // Index::fingerprints
  DeviceBuffer<std::uint32_t> lives;  // the same
  std::optional<LookupOrder> order;   // the same
  DeviceBuffer<std::uint32_t> slot_of;
  DeviceBuffer<std::uint32_t> counts;  // by segment: live; and then tombs
  DeviceBuffer<std::uint64_t> keys, values;
  DeviceBuffer<unsigned long long> claims;
  DeviceBuffer<std::uint32_t> claim_of, slots;
  DeviceBuffer<std::uint32_t> segments, victims;  // of a run's pieces; that are cleaned
  DeviceBuffer<std::byte> work;                   // an Outcome, and the sums of pieces
  PinnedBuffer<Outcome> outcome{1};
  PinnedBuffer<Report> report{1};
  PinnedBuffer<std::uint64_t> staged{2 *
                                     std::size_t{kSmallBatch}};  // keys and values of a small batch
  // For the lists and counts of cleaning, as of runs: each is through before the next is written.
  PinnedBuffer<std::uint32_t> segments_in, victims_in, counts_out;
  // Of mixed batches; made at the first one.
  struct Mixed {
    explicit Mixed(std::uint32_t max_batch) : kinds(max_batch), order(max_batch) {}
    DeviceBuffer<KvStore::Op> kinds;
    DeviceBuffer<std::uint32_t> order, cursors{2};
    PinnedBuffer<std::uint32_t> order_in{kSmallBatch};  // of a small one
  };
  std::optional<Mixed> mixed;
  DeviceBuffer<std::uint64_t> values_out;  // made at the first get()
  DeviceBuffer<std::uint8_t> found_out;

 private:
  Memory(const LogParameters& shape, KvStore::Index form);

  std::uint64_t mask_;
  std::uint32_t shift_;
  std::uint32_t positions_;
};

}  // namespace holdfast::kv::log
