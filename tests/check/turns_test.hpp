// Programs for which an attack got a wrong verdict, or none: who takes turns with whom.
#pragma once

#include "holdfast/check.hpp"

namespace holdfast::test {

// Where the last of `blocks` blocks stores before the others read, the payload is lost. A wait for
// all blocks goes wrong nowhere.
check::Program last_block_stores(unsigned blocks);
check::Program blocks_wait_for_all(unsigned blocks);
// A block polls by an addition of nothing; by an exchange of what is there.
check::Program polls_by_adding_nothing();
check::Program locks_by_exchange();
// A block reads one word `reads` times while another one polls.
check::Program reads_beside_a_poll(unsigned reads);
// A block counts its looks by additions, for ever if nobody answers.
check::Program counts_its_looks();
// The threads of a block leave a poll together: where its flag is set, or `turns` were counted by
// one that does not poll. They tell each other by a barrier's vote, a warp's, or a shuffle.
enum class Vote { block, warp, shuffle };
check::Program gives_up_by_vote(Vote vote, unsigned turns, bool in_recovery);
// The host polls a flag; each turn begins an operation, acknowledges one, or queues a function that
// counts. It goes wrong where it took `turns` of them.
enum class Count { started, acknowledged, function };
check::Program host_polls_and_counts(Count count, std::uint64_t turns, bool in_recovery);
// The host acknowledges again and again while a kernel runs.
check::Program acknowledges_beside_a_kernel();
// The host asks an event for its time once, and acknowledges without a wait where it has none yet.
check::Program asks_an_event_once();
// A thread of run()'s or of recovery's own launches a kernel, or looks at a flag.
check::Program thread_launches(bool in_recovery);
check::Program thread_looks(bool in_recovery);
// A function of one stream looks at a flag that a kernel of another one sets.
check::Program function_looks();
// A function of one stream stores to a word that a kernel, a copy or a function of another one, or
// the host, reads; the host reads it once it has waited for the function.
enum class Reader { kernel, copy, function, host, host_later };
check::Program function_stores(Reader reader, bool in_recovery);
// verify() asks a kernel of two threads which of them was first: by a race, or by atomics.
check::Program verifies_by_turns(bool races);
// recover() returns before its kernel has run.
check::Program leaves_recovery_early();
// The host reads what a copy may not have written yet.
check::Program reads_beside_a_copy();
// The host takes a relaxed fence for one that orders.
check::Program orders_by_a_relaxed_fence();
// run() goes on though a kernel trapped.
check::Program goes_on_behind_a_trap();
// Recovery reads a word, and works on two streams if it has to.
check::Program recovers_on_streams_behind_a_read();
// Two lanes that a shuffle, or __syncwarp, keeps apart store one behind the other.
check::Program lanes_apart(bool by_shuffle);
// A wait of the host alone keeps two streams apart.
check::Program streams_apart_by_a_wait();

}  // namespace holdfast::test
