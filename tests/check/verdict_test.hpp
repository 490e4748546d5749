// Programs whose verdict is known.
#pragma once

#include "holdfast/check.hpp"

namespace holdfast::test {

// One thread publishes a record behind a durability fence.
check::Program published();
// The same with __threadfence() alone, which orders persists under sbrp and not under epoch.
check::Program published_behind_thread_fence();
// The same with ofence() behind it.
check::Program published_behind_both_fences();
// `words` words without an order. It fails in the state in which those of `pattern` are durable, if
// there are 24; else never.
check::Program unordered_words(std::uint32_t words, std::uint32_t pattern);
// Two threads that publish a record each.
check::Program two_threads();
// The host acknowledges before it waits.
check::Program acknowledged_early();
// A run of one thread whose recovery has two.
check::Program recovered_by_two();

}  // namespace holdfast::test
