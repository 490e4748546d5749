// Kernels that make operations of a map by its ref, and write down what they were answered.
#pragma once

#include <cstdint>
#include <string>

#include "holdfast/hash_map.hpp"

namespace holdfast::test {

enum class MapCall : std::uint32_t {
  insert,
  insert_or_assign,
  assign,
  find_or_insert,
  erase,
  find,
  contains,
  accumulate,  // by arrays of 4 bytes
  kinds
};

// What a group does, and what it met. The moments are of one clock.
struct MapStep {
  MapCall call;
  MapStatus status;     // of those that have one
  std::uint32_t found;  // find, contains
  std::uint64_t key;    // its number
  unsigned long long begun;
  unsigned long long ended;
};

struct MapSteps {
  MapStep* steps;    // of group after group
  const void* keys;  // by step
  std::uint32_t each;
  const std::uint32_t* values;  // by step: what it sets ...
  std::uint32_t* out;           // ... and what it got
  unsigned long long* clock;
  std::uint32_t groups;
};

// All in memory of the device. A group makes its steps one after the other, beside the others.
// REQUIRES: groups of `Width` threads; 4, 8 or 32, and for keys of Bytes<16> and <40> 4 or 8.
template <class Key, unsigned Width>
void make_steps(Stream& stream, HashMap<Key, MapConfig<Width>>& map, const MapSteps& steps,
                unsigned groups_of_block);

// Each thread has a key of its own, and the group takes them in turn.
void insert_by_thread(Stream& stream, HashMap<std::uint64_t, MapConfig<32>>& map,
                      const std::uint64_t* keys, std::uint32_t count);

// Makes the map "other", of a shape and hash functions that the library has not compiled, fills it
// until a key does not fit, and returns what its verify() says; *load: how full it was.
std::string fill_other_map(Region& region, double* load);

// Keys of a class of the program's own, by kernels and batches; returns what is wrong.
std::string use_named_keys(Region& region);

// Lets maps of four levels and of one grow; returns what is wrong then.
std::string grow_other_maps(Region& region);

}  // namespace holdfast::test
