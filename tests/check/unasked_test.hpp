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
// The host looks at a flag by a plain load, beside the kernel that stores it.
check::Program host_asks_plainly();
// The host stores what is ordered behind what a kernel has told it, by a fence and without.
check::Program host_stores_behind_a_message(bool fenced);
// The host gives up after four looks at a flag; it counts them in memory of the heap.
check::Program host_gives_up_waiting();
// A store that nobody hears, made behind the acknowledgement: by the C library, another thread, a
// function of the stream.
enum class Unheard { library, thread, function };
check::Program stores_unheard_in_run(Unheard how);
// The same in recovery, where the record is valid; `reads`: it is read instead.
check::Program unheard_in_recovery(Unheard how, bool reads);
// The acknowledgement is a function of the stream.
check::Program acknowledges_from_its_stream();
// A kernel of run(), or of recovery, stores behind its object, or before the region's first one.
check::Program stores_astray(bool before_all, bool in_recovery);
// A kernel stores a word whole, or by memcpy(), of which nvcc makes stores of bytes.
check::Program stores_a_word(bool by_memcpy);
// Recovery allocates an object.
check::Program recovery_allocates();
// Verification hands persistent memory to write().
check::Program verification_writes_to_a_pipe();
// Two kernels of two streams of recovery read.
check::Program recovery_reads_on_two_streams();
// The C library reads the name under one schedule of recovery alone.
check::Program recovery_reads_in_a_library_under_one_schedule();
// Recovery reads in a library, behind a copy out of the region.
check::Program recovery_reads_behind_a_copy();

}  // namespace holdfast::test
