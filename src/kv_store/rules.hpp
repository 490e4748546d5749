// What the store decides by itself, as rules that can be tested.
#pragma once

#include <cstddef>
#include <cstdint>

#include "holdfast/kv_store.hpp"

namespace holdfast::kv {

// Ordering a batch by bucket pays once the table outgrows what the GPU's address translation
// covers and the batch is more than a few blocks (docs/results.md, "When ordering pays"). Updates
// store to the table whether or not they read a copy of it. Lookups in a copy stay off the link:
// sorting takes longer than they do.
inline bool ordering_pays(std::uint64_t table_bytes, bool has_copy, std::size_t count,
                          bool updates) {
  if (has_copy && !updates) return false;
  constexpr std::uint64_t kTableBytes = std::uint64_t{512} << 20;
  constexpr std::size_t kCount = std::size_t{1} << 12;
  return table_bytes > kTableBytes && count >= kCount;
}

// Whether a table of `bytes` gets a copy where `free` bytes of device memory are. `across_link`:
// the device reaches the table through a link. Throws no_memory where Cache::on asks for more than
// is free.
bool wants_copy(KvStore::Cache cache, std::uint64_t bytes, std::uint64_t free, bool across_link);

}  // namespace holdfast::kv
