// For experiments with checkpoints.
#pragma once

#include <cstdint>

#include "holdfast/checkpoint.hpp"

namespace holdfast::testing {

// From now on buffers of fewer bytes are copied by a kernel, others by the copy engine. Throws
// closed.
void set_engine_threshold(Checkpoint& checkpoint, std::uint64_t bytes);

}  // namespace holdfast::testing
