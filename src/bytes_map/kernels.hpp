// What kernels do for a bytes map. All pointers are to device memory, or into the region.
#pragma once

#include <cstddef>
#include <cstdint>

#include "holdfast/bytes_map_record.hpp"
#include "holdfast/page_marks.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::bytes_map {

// Byte strings in device memory. `bytes` is aligned to 8, and may be read for kReadBehind more.
struct DeviceStrings {
  const std::byte* bytes = nullptr;
  const std::uint64_t* offsets = nullptr;
};
inline constexpr std::size_t kReadBehind = 32;

// What a group of threads copies at once: a large record is many pieces, so that many groups have
// parts of it.
struct Piece {
  std::uint32_t op;
  std::uint32_t number;
};
inline constexpr std::uint64_t kPieceGrains = 128;

struct Lookup {
  Chunks records;
  const std::uint64_t* words;  // of the index, one for each operation
  const std::uint8_t* found;   // whether it had one
  DeviceStrings keys;          // no bytes: there is nothing to compare
  const Bytes<16>* digests;    // of keys
  unsigned digest_bits;
  RecordHead* heads;
  Seen* seen;
  std::uint32_t count;
};

struct Reading {
  Chunks records;
  const std::uint64_t* words;
  const RecordHead* heads;
  Seen* seen;
  const std::uint64_t* key_at;  // where in keys_out each begins
  const std::uint64_t* value_at;
  std::byte* keys_out;  // null: no keys; only of those that are `same`, as values
  std::byte* values_out;
  unsigned long long* sums;  // zeroed
  std::uint32_t count;
};

struct Writing {
  Chunks records;
  const std::uint64_t* words;  // 0: nothing is written
  DeviceStrings keys;
  DeviceStrings values;
  unsigned long long* sums;  // zeroed
  PageMarks marks;
  std::uint32_t count;
};

void digest_keys(Stream& stream, const DeviceStrings& keys, std::uint32_t count,
                 unsigned digest_bits, Bytes<16>* digests);
// Compares keys with those of records, and gives their heads.
void look(Stream& stream, const Lookup& lookup);
// Reads records whole, and tells those whose sum is wrong.
void read_records(Stream& stream, const Reading& reading, const Piece* pieces, std::uint64_t count);
// Writes records: they are durable once the host has waited for the stream.
void write_records(Stream& stream, const Writing& writing, const Piece* pieces,
                   std::uint64_t count);

}  // namespace holdfast::bytes_map
