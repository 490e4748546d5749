// A kernel whose trace shows in which order its threads ran.
#pragma once

#include "holdfast/kernel.hpp"

namespace holdfast::test {

// Each thread appends its number to the trace `rounds` times.
__global__ void leave_trace(unsigned rounds, unsigned* cursor, unsigned* trace);

// Two threads without order between a store and a load: both outcomes are legal.
__global__ void race(unsigned* flag, unsigned* outcome);

}  // namespace holdfast::test
