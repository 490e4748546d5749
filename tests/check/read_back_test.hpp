// Programs whose recovery reads what it has just stored, or copies a struct onto itself; and lanes
// that hear of each other by votes.
#pragma once

#include "holdfast/check.hpp"

namespace holdfast::test {

enum class By { kernel, host };

// Recovery clears a total and adds up its parts in place: `sized` says with which accesses.
enum class Sized { words, halves_read_whole };
check::Program recomputes_a_total(By by, Sized sized);
// Recovery moves records of 16 bytes to the front; the first is where it belongs. `torn`: the
// record's own stores are in no order with the flag that says it is there.
check::Program moves_a_record_onto_itself(By by, bool torn);

enum class Exchange { ballot, shuffle, reduction };
// A lane stores the flag once the vote told it that the other's persist() is over; `late`: the
// other makes it behind the vote.
check::Program hears_by_vote(Exchange exchange, bool late);

}  // namespace holdfast::test
