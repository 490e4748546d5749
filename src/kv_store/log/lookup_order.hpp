// Lookups in the order of the records that they read: beyond what the GPU's address translation
// covers, the link is several times as fast in that order (docs/results.md, "When ordering pays").
#pragma once

#include <cstdint>

#include "holdfast/sort.hpp"
#include "kv_store/log/batch.hpp"

namespace holdfast::kv::log {

// Owns the device memory to order up to `max_count` lookups. Stream-ordered, and one at a time.
class LookupOrder {
 public:
  explicit LookupOrder(std::uint32_t max_count);
  // Bytes of device memory that one takes, about.
  static std::uint64_t bytes(std::uint64_t max_count) { return max_count * kBytes; }

  // As launch_look(). REQUIRES: claimed.
  void look(Stream& stream, const FingerprintIndex& index, const Batch& batch, Outcome* outcome);
  // As launch_get().
  void get(Stream& stream, const FingerprintIndex& index, const std::uint64_t* keys,
           std::uint64_t* values, std::uint8_t* found, std::uint32_t count);

 private:
  // Four words here; the sort takes about two.
  static constexpr std::uint64_t kBytes = 6 * sizeof(std::uint32_t) + 2;
  void sort(Stream& stream, const FingerprintIndex& index, std::uint32_t count);

  // By lookup, and sorted: the record it reads first, as words of the index have it, and its
  // number.
  DeviceBuffer<std::uint32_t> records_, numbers_, sorted_records_, sorted_numbers_;
  PairSorter sorter_;
};

}  // namespace holdfast::kv::log
