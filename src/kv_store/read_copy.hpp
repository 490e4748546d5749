// The copy of the table in device memory that kernels read, so that no thread waits for the link
// before it has chosen a way.
#pragma once

#include <cstdint>

#include "holdfast/stream.hpp"
#include "kv_store/table.hpp"

namespace holdfast::kv {

// Memory for the copy of a table of so many buckets, zeroed; empty where it gets none. `on_device`:
// the table itself is in device memory. Throws no_memory (Cache::on).
DeviceBuffer<Bucket> make_copy(KvStore::Cache cache, std::uint64_t buckets, bool on_device);

}  // namespace holdfast::kv
