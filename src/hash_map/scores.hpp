// What a map's scores are in device memory. docs/map.md, "Scores and eviction".
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "holdfast/hash_map.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::map {

// Invariant, between calls: a slot without a pair has the score 0, but for what kernels with refs
// have erased since the last quiesce().
struct Scores {
  Scores(MapScores of, std::uint64_t slots);

  // The table has grown by a level: slots [0, added) are new, and those that were there follow.
  // `larger` has room for all.
  void extend(Stream& stream, DeviceBuffer<unsigned long long> larger, std::uint64_t added);
  void make_room_for_batch(std::uint32_t max_batch, std::uint32_t key_bytes);

  MapScores policy;
  unsigned long long now = 0;                // batches with accesses so far
  DeviceBuffer<unsigned long long> of_slot;  // of the top level first
  DeviceBuffer<unsigned> taken;              // a bit for each; made when they are needed, as below
  DeviceBuffer<unsigned long long> given;    // by operation
  DeviceBuffer<std::uint32_t> rank, row;     // likewise
  DeviceBuffer<std::byte> went_keys;
  DeviceBuffer<unsigned long long> went_scores;
  DeviceBuffer<unsigned> went;  // how many
  PinnedBuffer<unsigned> went_host;
};

// Null: there are none. Throws invalid_argument, no_memory.
std::unique_ptr<Scores> make_scores(MapScores policy, std::uint64_t slots);

}  // namespace holdfast::map
