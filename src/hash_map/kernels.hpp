// Kernels of a map that are the same for all types of maps.
#pragma once

#include <cstdint>

#include "holdfast/hash_map.hpp"
#include "holdfast/stream.hpp"
#include "kv_store/claims.hpp"

namespace holdfast::map {

inline constexpr unsigned kStatuses = 16;       // counts by MapStatus, and what is refused
inline constexpr unsigned kWithoutValues = 12;  // of a mixed batch; are counted as refused values,
inline constexpr unsigned kRefusedKinds = 13;   // too
inline constexpr unsigned kRefusedKeys = 14;
inline constexpr unsigned kRefusedValues = 15;

// What the host learns of a batch.
struct Report {
  std::uint32_t counts[kStatuses];
  unsigned long long head;  // of the ring of free places
  unsigned long long tail;
};

// Threads for a value: as many as it has pieces of 16 bytes, up to a warp.
inline unsigned width_for(std::uint32_t value_bytes) {
  return value_bytes <= 64 ? 4 : value_bytes <= 128 ? 8 : 32;
}

// Sets the status of every operation: superseded where a later one has its key, else none yet.
// Counts what cannot be stored. Stream-ordered, as all of these.
void launch_claims(Stream& stream, const detail::MapView& view, const detail::MapBatch& batch,
                   std::uint32_t key_bytes, const kv::Claims& claims, std::uint32_t* entry_of,
                   Report* report);
// Counts what became of the operations, and adds the ring's ends.
void launch_report(Stream& stream, const detail::MapView& view, const detail::MapBatch& batch,
                   Report* report);
// Takes the status of what is `full`.
void launch_retry(Stream& stream, const detail::MapBatch& batch);
// Stores the values of places [of count, in rising order; view.capacity: none] where their
// operations have them.
void launch_gather(Stream& stream, const detail::MapView& view, const std::uint32_t* place,
                   const std::uint32_t* op, std::byte* out, std::uint32_t count);
// Fills the ring with the places that are not `used`, from its beginning.
void launch_list_free(Stream& stream, const detail::MapView& view, const std::uint32_t* used);
// Places first, first + 1, ... of `count`.
void launch_append_places(Stream& stream, std::uint32_t* to, std::uint32_t first,
                          std::uint32_t count);

}  // namespace holdfast::map
