// A map's parameters on the medium. docs/format.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "holdfast/durable.hpp"
#include "holdfast/hash_map.hpp"

namespace holdfast::map {

// The durable object. With other buckets and places: the table as it has grown.
struct MapParameters {
  static constexpr const char* kTypeName = "hash map";
  static constexpr std::uint32_t kVersion = 2;
  std::uint64_t hash_id;
  std::uint64_t empty_key;
  std::uint64_t empty_value;
  std::uint64_t places;   // of values; 0: they are in slots
  std::uint32_t buckets;  // of the top level
  std::uint32_t bucket_bytes;
  std::uint32_t value_bytes;
  std::uint32_t max_batch;
  std::uint32_t key_bytes;
  std::uint32_t levels;
  std::uint32_t hashes;
  std::uint32_t ways;

  std::uint32_t stride() const;
  // Of 8 bytes, of a key that stands behind its label; 0: the label is the key.
  std::uint32_t key_words() const { return key_bytes > 8 ? key_bytes / 8 : 0; }
  std::uint32_t words_at() const;      // in a bucket
  std::uint64_t bucket_count() const;  // of all levels
  std::uint64_t slots() const { return bucket_count() * ways; }
  std::uint64_t table_bytes() const { return bucket_count() * bucket_bytes; }
  std::vector<Part> parts() const;  // throws invalid_argument
};
using MapObject = Durable<MapParameters>;

// Of an earlier build, which knew of no growth: the same but for the part `growth`.
struct MapParametersOfVersion1 {
  static constexpr const char* kTypeName = MapParameters::kTypeName;
  static constexpr std::uint32_t kVersion = 1;
  MapParameters all;
  std::vector<Part> parts() const;
};

inline constexpr const char* kTable = "table";
inline constexpr const char* kValues = "values";
inline constexpr const char* kGrowth = "growth";
inline constexpr std::uint32_t kMostBatch = 1u << 24;
inline constexpr std::uint32_t kMostValueBytes = 4096;
inline constexpr std::uint32_t kMostBucketsOfTop = 1u << 31;

// For a map that is made. Throws invalid_argument.
MapParameters parameters_of(const detail::MapTypes& types, const MapOptions& options,
                            std::uint64_t empty_key, std::uint64_t empty_value);

// Throws invalid_argument if a map of these parameters is none of these types.
void check_types(const MapParameters& parameters, const detail::MapTypes& types,
                 const std::string& where);

}  // namespace holdfast::map
