// What a shot saves and in which order it reads it back. A shot is a forward pass that saves a
// snapshot at each iteration, and a backward pass that restores one at each.
//
// The sizes of the paper's traces (Figure 4) are not in its text. What the text says of them is
// kept: a shot takes 38 to 50 GB where uniform ones take 48, the first snapshots are small, and
// ranks differ in the same iteration. Snapshot i of n has the weight
//   (0.08 + 0.92 (1 - exp(-6 i / n))) (0.7 + 0.6 u),   u uniform in [0, 1) by seed, rank and i,
// and the weights are scaled so that their sum is the shot's. So one that a wave field fills is 2.3
// times the mean at most, and the first a tenth of the mean.
//
// Everything follows from the seed, on every machine. Thread safety: all functions are pure.
// Source: Score (HPDC '23), sections 5.3.2, 5.3.3 and 5.4.2.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace score {

enum class Sizes : std::uint8_t { uniform, variable };
enum class Order : std::uint8_t { sequential, reverse, irregular };
enum class Hints : std::uint8_t { none, single, all };

// In words, as options and results have them.
const char* to_string(Sizes sizes);
const char* to_string(Order order);
const char* to_string(Hints hints);

// A number that is different for each of these, and looks random.
std::uint64_t mix(std::uint64_t seed, std::uint64_t rank, std::uint64_t i);

// Bytes of each snapshot, multiples of 512. `mean` is that of a uniform shot.
std::vector<std::uint64_t> snapshot_bytes(Sizes sizes, std::uint64_t snapshots, std::uint64_t mean,
                                          std::uint64_t seed, std::uint64_t rank);

// The steps of the backward pass. An irregular order is the same for all ranks.
std::vector<std::uint64_t> restore_order(Order order, std::uint64_t snapshots, std::uint64_t seed);

}  // namespace score
