// The table of gpDB as it is on the medium: flights, 64 bytes a row.
#pragma once

#include <cstdint>

namespace gpdb {

// A delay or a time in the air that the data does not have.
inline constexpr std::int32_t kMissing = INT32_MIN;
// Of a table: row numbers are of 32 bits.
inline constexpr std::uint64_t kMaxRows = std::uint64_t{1} << 30;

// Rows are stored one after another, so that INSERT is one stream of bytes. The first 32 bytes say
// which flight it is; the last 32 are one sector of a GPU's access to host memory, and hold all
// that UPDATE reads and, in their second half, all that it writes.
struct alignas(16) Row {
  static constexpr const char* kTypeName = "gpdb_row";
  std::uint64_t id;              // the row's number, given by INSERT
  std::uint32_t day;             // year * 10000 + month * 100 + day
  std::uint16_t carrier;         // two letters or digits, base 36
  std::uint16_t flight;          // number
  std::uint32_t origin;          // up to four letters, base 36
  std::uint32_t destination;     // the same
  std::uint32_t tail;            // up to six letters, base 36
  std::uint16_t departure;       // scheduled, hour * 100 + minute
  std::uint16_t arrival;         // scheduled
  std::int32_t departure_delay;  // minutes, or kMissing
  std::int32_t arrival_delay;    // minutes, or kMissing
  std::int32_t air_time;         // minutes, or kMissing
  std::int32_t distance;         // miles
  // What UPDATE changes.
  std::uint32_t revision;       // 0, or one more than the batch that changed the row last
  std::int32_t expected_delay;  // minutes
  std::uint32_t fare;           // cents
  std::uint32_t compensation;   // cents
};
static_assert(sizeof(Row) == 64);

// UPDATE flights SET revision, expected_delay, fare, compensation WHERE carrier = ...
// What is set depends on the query and on columns that never change, so that doing it again changes
// nothing:
//   revision        this->revision
//   expected_delay  (3 * departure_delay + arrival_delay) / 4, towards zero; 0 where one is missing
//   fare            4000 + distance * rate
//   compensation    25 * distance where arrival_delay is 180 or more; else 0
struct Query {
  std::uint16_t carrier = 0;
  std::uint32_t revision = 0;
  std::uint32_t rate = 0;  // cents a mile
};

}  // namespace gpdb
