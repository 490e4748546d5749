// The kernels of the benchmark of histories: what stands for the program's computing, and what
// writes and checks snapshots. All are queued on the stream and return at once.
#pragma once

#include <cstdint>

#include "holdfast/stream.hpp"

namespace score {

// Word i of a snapshot is a function of i and of its key, so that no snapshot passes for another.
void fill(holdfast::Stream& stream, std::uint64_t* words, std::uint64_t count, std::uint64_t key);
// Adds to `*wrong` (device memory) the words that are not those.
void check(holdfast::Stream& stream, const std::uint64_t* words, std::uint64_t count,
           std::uint64_t key, unsigned long long* wrong);

// All of the device is busy for that long, and touches no memory.
void busy(holdfast::Stream& stream, std::uint64_t nanoseconds);

// Bound by arithmetic: `rounds` fused multiply-adds in each thread of a full device.
void compute(holdfast::Stream& stream, float* out, std::uint64_t rounds);
// Floats that compute() may write.
std::uint64_t compute_outputs();
// Bound by device memory: reads `count` words and writes as many.
void sweep(holdfast::Stream& stream, const std::uint64_t* from, std::uint64_t* to,
           std::uint64_t count);

}  // namespace score
