// Where a map's parts are in its region, as far as it has grown. docs/format.md, "A hash map".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hash_map/format.hpp"
#include "holdfast/region.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::map {

// Bytes of each level, the top one first; behind them those of the level that is emptied.
std::vector<std::uint64_t> level_bytes(const MapParameters& now, bool growing);

// Invariant: between calls, as the medium has it.
struct Table {
  std::string name;
  std::string where;  // for messages
  MapParameters made;
  MapParameters now;  // with the buckets and places of now
  std::uint32_t growths = 0;
  bool growing = false;                      // the level below all others is not empty yet
  std::uint64_t* growth = nullptr;           // the word that says so; null: of version 1
  std::vector<std::byte*> levels, values{};  // as above; the first places, and what was added

  // Of the level that is emptied; 0: none is.
  std::uint64_t leaving_buckets() const { return growing ? now.buckets >> now.levels : 0; }
  std::uint64_t bucket_count() const { return now.bucket_count() + leaving_buckets(); }
};

// Of a map's name: with objects of any growth behind it, it is a name of the region.
inline constexpr std::size_t kMostNameBytes = 46;
void check_name(std::string_view name);  // throws invalid_argument

// Whether there is a map of this name, damaged or not.
bool is_there(Region& region, std::string_view name);

// Throws invalid_argument where refs of an earlier opening are out. REQUIRES: there is such a map.
void check_no_refs(const Region& region, std::string_view name, const std::string& where);

// Throw as Durable::create() and open(); and damaged. What growths of a map of this name have left
// that was removed is removed by the first.
Table create_table(Region& region, std::string_view name, const std::string& where,
                   const MapParameters& shape);
Table open_table(Region& region, std::string_view name, const std::string& where);
// With what growths have added. Throws invalid_argument (it is none; refs of it are out), and as
// Durable::remove().
void remove_table(Region& region, std::string_view name, const std::string& where);

// What the table is once it has grown. Throws invalid_argument (too large, or its name too long),
// unsupported (version 1).
MapParameters next_of(const Table& table);
// Returns the bytes that the region has as it grows to so many slots, as far as that is known
// before it begins; 0: it has them. Throws as next_of(), and no_space: the region cannot have the
// bytes.
std::uint64_t check_reserve(const Region& region, const Table& table, std::uint64_t capacity);

// The objects of a growth.
struct Added {
  std::byte* level;
  std::byte* values;  // null: values are in slots
};
// Makes them; enlarges the region where it has no room. REQUIRES: the table is not growing; next is
// next_of(table). Throws already_exists (an object of the program's has the name), no_space,
// no_shared_memory, and as Region::allocate(), with nothing changed.
Added make_room(Region& region, Stream& stream, const Table& table, const MapParameters& next);
// Puts the level on top: by one store. From then on the table is growing.
void begin_growth(Region& region, Stream& stream, Table& table, const MapParameters& next,
                  const Added& added);

// Gives up the level that was emptied. REQUIRES: it is empty, and that is durable.
void end_growth(Region& region, Stream& stream, Table& table);

// Removes what calls of the two above that were cut off have left.
void tidy(Region& region, const Table& table);

}  // namespace holdfast::map
