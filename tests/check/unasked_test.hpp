// Programs that an attack got a wrong "passed" for: what happens beside the host, behind its back
// or in recovery alone.
#pragma once

#include "holdfast/check.hpp"

namespace holdfast::test {

// The host asks once for a flag that a kernel of one thread sets before its store is durable, and
// acknowledges where it is set. `atomically`: asks by a std::atomic_ref.
check::Program host_asks_once(bool atomically);
// The same by a function of the stream.
check::Program host_is_told_by_its_stream();
// The host tells a kernel that runs how to store; one way is wrong.
check::Program host_tells_once();
// Recovery does something else where its kernel is over early.
check::Program recovery_asks_once();
// Both blocks of recovery's kernel may find that they came first, on a GPU.
check::Program recovery_buffers_stores();
// run() allocates what recovery expects.
check::Program allocates_in_run();
// Nobody waits for run()'s stream, which outlives it.
check::Program leaves_work_behind();
// A kernel of recovery faults after some crashes, on a stream that nobody asks.
check::Program recovery_faults_unasked();
// Recovery reads in a library, behind a copy out of the region.
check::Program recovery_reads_behind_a_copy();

}  // namespace holdfast::test
