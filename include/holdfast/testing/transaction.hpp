// For experiments with recovery.
#pragma once

#include <cstdint>

namespace holdfast::testing {

// From now on the `number`-th call of any Transaction's commit() in this process does not begin: it
// waits for its stream and kills the process (SIGKILL), where a recovery has most to undo. 0: no
// longer. Any thread.
void die_before_commit(std::uint64_t number);

}  // namespace holdfast::testing
