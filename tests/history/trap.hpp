// A stream that fails.
#pragma once

#include "holdfast/stream.hpp"

namespace holdfast::test {

// Queues a kernel that traps.
void trap(Stream& stream);

}  // namespace holdfast::test
