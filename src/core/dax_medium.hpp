// Regions on persistent memory: the medium of the dax domain, and what is done without opening it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/medium.hpp"

namespace holdfast::core {

// Exclusively locked as long as it lives. `max_size` as in RegionOptions; a device has room for
// its own size and no more.
//
// Creating: `size` bytes, with zeroed metadata; the rest of a device holds anything. A file gets
// its name with the flush() of the region's header, which Directory::format() does last. Throws
// already_exists (also for a device that holds a region), no_space.
//
// Opening: `size` is not looked at, the directory tells; size() is the region's. The region is
// checked as Directory::load() does, and one that is refused is not written to. Throws not_found,
// foreign, damaged, newer_version.
//
// Both throw in_use, permission, invalid_argument, unsupported (not DAX, no libpmem2, or pages that
// a GPU cannot use), no_memory, io.
std::unique_ptr<Medium> make_dax_medium(const std::string& path, bool create, std::uint64_t size,
                                        std::uint64_t max_size = 0);

// Whether a region at `path` would be one of the dax domain: a character device, or a file whose
// first bytes are a region's. Does not open devices, follow links, block or throw.
bool is_dax_region(const std::string& path);

// Takes the region away: on a device its header, so that the bytes are no region any more, and
// otherwise the file. Throws as opening it does; what is no region is not written to.
void destroy_dax_region(const std::string& path);

}  // namespace holdfast::core
