// The kernels of the store. One thread carries one operation.
#pragma once

#include "gpkvs/table.hpp"

namespace gpkvs {

inline constexpr unsigned kBlock = 256;

// Updates: launched with a whole number of warps; each position's log slot is its own.
__global__ void insert_into_kvs(Table kvs, holdfast::CoalescedLogRef log, Batch batch,
                                Outcome* outcome);
__global__ void erase_from_kvs(Table kvs, holdfast::CoalescedLogRef log, Batch batch,
                               Outcome* outcome);
// The same SETs without log and persists.
__global__ void store_into_kvs(Table kvs, Batch batch, Outcome* outcome);
__global__ void get_from_kvs(Table kvs, Batch batch, std::uint64_t* values, std::uint8_t* found);

// One thread: the store's counters, as part of the same transaction.
__global__ void count_batch(Counters* counters, holdfast::ConventionalLogRef log,
                            holdfast::PageMarks marks, Outcome* outcome);

// Recovery: a thread per log slot, and one thread for the counters.
__global__ void recover(Table kvs, holdfast::CoalescedLogRef log, Outcome* outcome);
__global__ void recover_counters(Counters* counters, holdfast::ConventionalLogRef log,
                                 holdfast::PageMarks marks);

}  // namespace gpkvs
