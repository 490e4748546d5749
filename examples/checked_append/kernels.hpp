// A log of records in persistent memory that kernels append to, right and wrong.
#pragma once

#include <cstdint>

#include "holdfast/kernel.hpp"

namespace checked_append {

// The log's head. Records 0 to count - 1 are in the log; what lies behind them is not.
struct Head {
  static constexpr const char* kTypeName = "append_head";
  std::uint64_t count = 0;
  std::uint64_t summed = 0;  // records that `total` holds
  std::uint64_t total = 0;
};

// What record number `i` holds in this example.
__host__ __device__ constexpr std::uint64_t record(std::uint64_t i) { return 1000 + i; }

// Each thread of the one block appends a record.
__global__ void append_naive(Head* head, std::uint64_t* records);
__global__ void append(Head* head, std::uint64_t* records);

// Each thread of the grid does. `done`: a flag for each, in memory that need not survive.
__global__ void append_blocks_naive(Head* head, std::uint64_t* records, std::uint32_t* done,
                                    std::uint32_t round);
__global__ void append_blocks(Head* head, std::uint64_t* records, std::uint32_t* done,
                              std::uint32_t round);

// Adds records to the total that it does not hold yet: once after every append, and in recovery.
__global__ void sum_naive(Head* head, const std::uint64_t* records);
__global__ void sum(Head* head, const std::uint64_t* records);

}  // namespace checked_append
