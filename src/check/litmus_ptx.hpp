// What threads may read of each other: litmus tests without persistency, by axioms alone.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "check/litmus.hpp"

namespace holdfast::check {

enum class Memory { sc, ptx };
const char* to_string(Memory memory) noexcept;

// Whether the test's final condition is reached in a consistent execution: one whose program order
// and communication have no cycle (sc), or one that PTX's axioms allow (PTX ISA 8.5, "Memory
// consistency model"; Lustig, Sahasrabuddhe, Giroux, ASPLOS '19). All choices of what reads return
// and of the order of writes to a variable are tried. Where writes race, PTX leaves them unordered;
// here they have an order. `ofence` is nothing, other fences are fence.sc; prel and pacq are
// release and acquire and no fences. Throws unsupported for what is no straight line of a kernel's
// accesses and fences.
bool run_memory(const LitmusTest& test, Memory memory);

// All consistent executions' outcomes: what each read returned, in the order of the threads, and
// the last value of each variable that is written, by where it stands.
std::set<std::vector<std::uint64_t>> memory_outcomes(const LitmusTest& test, Memory memory);

}  // namespace holdfast::check
