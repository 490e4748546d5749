// Regions on persistent memory, apart from the medium itself (make_dax_medium() in medium.hpp).
#pragma once

#include <string>

namespace holdfast::core {

// Whether a region at `path` would be one of the dax domain: a character device, or a file whose
// first bytes are a region's. Does not open devices, follow links, block or throw.
bool is_dax_region(const std::string& path);

// Takes the region away: on a device its header, so that the bytes are no region any more, and
// otherwise the file. Throws as opening it does; what is no region is not written to.
void destroy_dax_region(const std::string& path);

}  // namespace holdfast::core
