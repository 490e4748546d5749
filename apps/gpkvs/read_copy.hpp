// The copy of the table in device memory that kernels read, so that no thread waits for the link
// before it has chosen a way.
#pragma once

#include <cstdint>

#include "gpkvs/table.hpp"
#include "holdfast/stream.hpp"

namespace gpkvs {

// Whether a table of `bytes` gets a copy where `free` bytes of device memory are. `across_link`:
// the device reaches the table through a link. Throws no_memory where Cache::on asks for more than
// is free.
bool wants_copy(Cache cache, std::uint64_t bytes, std::uint64_t free, bool across_link);

// Memory for the copy of a table of so many buckets, zeroed; empty where it gets none. `on_device`:
// the table itself is in device memory. Throws no_memory (Cache::on).
holdfast::DeviceBuffer<Bucket> make_copy(Cache cache, std::uint64_t buckets, bool on_device);

}  // namespace gpkvs
