// The prefix sum as a workload: partial and final sums are persistent, a step is a range of rows.
// Source: GPM (ASPLOS '22) Table 1, section 5.4.
#pragma once

#include "workload/workload.hpp"

namespace prefix_sum {

// Size paper: rows of 1,024, and as many of them as make 4 GiB of 64-bit sums, partial and final,
// which is what the paper persists (2^28 numbers; rows=1048576 takes its 2^30, and 16 GiB).
workload::Info info();

}  // namespace prefix_sum
