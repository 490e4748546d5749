// Programs whose bug shows under some schedules only, and their fixed twins.
#pragma once

#include <cstdint>

#include "holdfast/check.hpp"

namespace holdfast::test {

// A flag is told before persist() to a reader, which builds on it once it has met it four times.
check::Program told_before_persist(bool fixed);
// The thread that arrives last publishes, without a fence if it is the first of the block.
check::Program last_arriver(bool fixed);
// So does the winner of a compare-and-swap if it is the last one of the block.
check::Program winner(bool fixed);
// The host polls a flag that the kernel sets before persist(), and acknowledges.
check::Program polling_host(bool fixed);
// Two streams work; the host waits for one of them.
check::Program two_streams(bool fixed);
// The host asks in a loop that no hook of a strong access sees.
enum class Asks { by_read, by_plain_loads, by_event };
check::Program asking_host(Asks how);
// `threads` make `each` atomic additions to one word, and store what they found last.
check::Program counters(unsigned threads, unsigned each);

// And such whose recovery is wrong, under some of its own schedules only.
// The winner of a compare-and-swap in recovery copies a word, if it is not the last of the block.
check::Program recovered_by_the_winner(bool fixed);
// The winner reads a word, which nothing else does, if it is the second of the block, whose turn
// comes neither first nor last.
check::Program read_by_the_second(bool fixed);
// The winner publishes, without a fence if it is the last one: a crash inside recovery shows that.
check::Program published_in_recovery(bool fixed);
// The same, where the winner of the recovery behind that crash is to mend it.
check::Program mended_by_the_winner(bool fixed);
// Two streams of recovery have a winner, each of whom does the same.
check::Program recovered_by_two_streams();
// Recovery's threads make atomic additions to one word, as counters() does.
check::Program counting_recovery(unsigned threads, unsigned each);

}  // namespace holdfast::test
