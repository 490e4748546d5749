// Identifiers: of regions, arenas, commits and boots.
#pragma once

#include <string>

#include "core/format.hpp"

namespace holdfast::core {

// A random UUID (version 4). Throws io.
Uuid new_uuid();
std::string to_text(const Uuid& uuid);

// Tells one boot of this machine from another. Throws unsupported without /proc.
Uuid this_boot();

}  // namespace holdfast::core
