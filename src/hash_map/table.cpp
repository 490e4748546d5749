#include "hash_map/table.hpp"

#include <algorithm>
#include <utility>

#include "core/format.hpp"
#include "core/growth.hpp"
#include "core/region_access.hpp"
#include "durable/creation.hpp"
#include "durable/removal.hpp"
#include "undo_log/medium_store.hpp"

namespace holdfast::map {

using detail::concat;

namespace {

// The object that growth number `growth` has added, from 1 on.
std::string level_name(const Table& table, std::uint32_t growth) {
  return concat(table.name, ".level", growth);
}
std::string values_name(const Table& table, std::uint32_t growth) {
  return concat(table.name, ".values", growth);
}
std::uint64_t level_size(const MapParameters& made, std::uint32_t growth) {
  return (std::uint64_t{made.buckets} << growth) * made.bucket_bytes;
}
std::uint64_t values_size(const MapParameters& made, std::uint32_t growth) {
  return (made.places << (growth - 1)) * made.stride();
}

// The word of the part `growth`; 0 until the first object of a growth is made.
std::uint64_t encode(std::uint32_t growths, bool growing) {
  const std::uint64_t state = growths * 2 + (growing ? 1 : 0);
  return state | std::uint64_t{MapHash::hash(~state, 0)} << 32;
}

void store_growth(Region& region, Stream& stream, const Table& table) {
  const std::uint64_t word = encode(table.growths, table.growing);
  store_durably(region, stream, table.growth, &word, sizeof(word));
}

MapParameters grown(const MapParameters& made, std::uint32_t growths) {
  MapParameters now = made;
  now.buckets <<= growths;
  now.places <<= growths;
  return now;
}

constexpr std::uint32_t kMostGrowths = 31;

// By their type they are known from a program's own objects, whatever those are called.
constexpr const char* kLevelType = "map_level";
constexpr const char* kValuesType = "map_values";

bool is_own(const ObjectInfo& info) {
  return info.element_bytes == 1 && (info.type == kLevelType || info.type == kValuesType);
}

std::byte* find_object(Region& region, const Table& table, const std::string& object,
                       std::uint64_t bytes) {
  if (region.contains(object)) {
    const ObjectInfo info = region.object(object);
    // Of an earlier build they were bytes.
    const bool may_be = is_own(info) || info.type == type_name<std::uint8_t>();
    if (may_be && info.bytes() == bytes && info.tracking == Tracking::marked) {
      return static_cast<std::byte*>(region.address(info));
    }
  }
  throw Error(Errc::damaged, concat(table.where, " has grown, and its object '", object,
                                    "' is gone or of another size; reopen the region from its "
                                    "last commit"));
}

// Where everything is, of a table whose other fields are set. `first`: the part "table".
void find_parts(Region& region, Table& table, std::byte* first, std::byte* first_values) {
  const MapParameters& made = table.made;
  const unsigned levels = made.levels + (table.growing ? 1 : 0);
  table.levels.clear();
  for (unsigned level = 0; level < levels; ++level) {
    if (level < table.growths) {
      const std::uint32_t growth = table.growths - level;
      table.levels.push_back(
          find_object(region, table, level_name(table, growth), level_size(made, growth)));
      continue;
    }
    std::uint64_t above = 0;
    for (unsigned i = 0; i < level - table.growths; ++i) above += made.buckets >> i;
    table.levels.push_back(first + above * made.bucket_bytes);
  }
  table.values.clear();
  if (made.places == 0) return;
  table.values.push_back(first_values);
  for (std::uint32_t growth = 1; growth <= table.growths; ++growth) {
    table.values.push_back(
        find_object(region, table, values_name(table, growth), values_size(made, growth)));
  }
}

// Whether there is anything of a first growth.
bool has_grown(const Region& region, const Table& table) {
  const auto own = [&](const std::string& object) {
    return region.contains(object) && is_own(region.object(object));
  };
  return own(level_name(table, 1)) || own(values_name(table, 1));
}

template <class Parameters>
Table table_of(Region& region, std::string_view name, const std::string& where,
               const Durable<Parameters>& object) {
  Table table;
  table.name = name;
  table.where = where;
  if constexpr (Parameters::kVersion == 1) {
    table.made = object.parameters().all;
  } else {
    table.made = object.parameters();
    table.growth = object.template part<std::uint64_t>(kGrowth).data();
    Stream stream;
    std::uint64_t word = 0;
    read_back(stream, &word, table.growth, sizeof(word));
    table.growths = static_cast<std::uint32_t>(word) / 2;
    table.growing = (word & 1) != 0;
    const bool known =
        word == 0 ? !has_grown(region, table) : word == encode(table.growths, table.growing);
    if (!known || table.growths > kMostGrowths ||
        std::uint64_t{table.made.buckets} << table.growths > kMostBucketsOfTop ||
        (table.growing && table.growths == 0)) {
      throw Error(Errc::damaged,
                  concat(where,
                         ": what it says of its growth cannot be; reopen the region from "
                         "its last commit"));
    }
  }
  table.now = grown(table.made, table.growths);
  const auto part = [&](const char* of) {
    return reinterpret_cast<std::byte*>(object.template part<std::uint8_t>(of).data());
  };
  find_parts(region, table, part(kTable), table.made.places != 0 ? part(kValues) : nullptr);
  return table;
}

std::byte* make_object(Region& region, const Table& table, const std::string& object,
                       const char* type, std::uint64_t bytes) {
  return core::allocate_enlarging(region, table.where, object, type, 1, bytes);
}

void refuse_foreign(const Region& region, const Table& table, const std::string& object) {
  core::refuse_foreign(region, table.where, table.name, object);
}

void remove_remains(Region& region, const std::string& object) {
  if (region.contains(object) && is_own(region.object(object))) region.remove(object);
}

// Of a map of this name, which is gone.
void remove_growths(Region& region, std::string_view name) {
  Table removed;
  removed.name = name;
  for (std::uint32_t growth = 1; growth <= kMostGrowths; ++growth) {
    remove_remains(region, level_name(removed, growth));
    remove_remains(region, values_name(removed, growth));
  }
}

}  // namespace

void check_name(std::string_view name) {
  if (name.size() <= kMostNameBytes) return;
  throw Error(
      Errc::invalid_argument,
      concat("hash map '", name, "': its name has ", name.size(), " bytes, and ", kMostNameBytes,
             " are the most with which it can grow, since a growth's objects are called "
             "'<name>.values<n>': give it a shorter one"));
}

std::vector<std::uint64_t> level_bytes(const MapParameters& now, bool growing) {
  std::vector<std::uint64_t> bytes(now.levels + (growing ? 1 : 0));
  for (std::size_t level = 0; level < bytes.size(); ++level) {
    bytes[level] = std::uint64_t{now.buckets >> level} * now.bucket_bytes;
  }
  return bytes;
}

bool is_there(Region& region, std::string_view name) {
  try {
    (void)MapObject::open(region, name);
  } catch (const Error& error) {
    return error.code() != Errc::not_found;
  }
  return true;
}

void check_no_refs(const Region& region, std::string_view name, const std::string& where) {
  if (!core::RegionAccess::is_lent(region, concat(name, ".", kTable))) return;
  throw Error(
      Errc::invalid_argument,
      concat(where,
             " is open in this process, and refs of it are out, which kernels may "
             "still use: wait for them, and quiesce() it, or end it, before it is opened again"));
}

Table create_table(Region& region, std::string_view name, const std::string& where,
                   const MapParameters& shape) {
  if (!is_there(region, name)) remove_growths(region, name);
  const MapObject object = MapObject::create(region, name, shape);
  return finish_creation([&] { return table_of(region, name, where, object); },
                         [&] { MapObject::remove(region, name); });
}

void remove_table(Region& region, std::string_view name, const std::string& where) {
  if (region.contains(concat(name, ".", kTable))) check_no_refs(region, name, where);
  remove_in_use<MapObject>(region, name, kTable);
  remove_growths(region, name);
}

Table open_table(Region& region, std::string_view name, const std::string& where) {
  try {
    return table_of(region, name, where, MapObject::open(region, name));
  } catch (const Error& error) {
    if (error.code() != Errc::unsupported) throw;
  }
  return table_of(region, name, where, Durable<MapParametersOfVersion1>::open(region, name));
}

namespace {

bool can_double(const MapParameters& now) {
  return now.buckets <= kMostBucketsOfTop / 2 && now.places < ~0u / 2;
}

}  // namespace

MapParameters next_of(const Table& table) {
  if (table.growth == nullptr) {
    throw Error(Errc::unsupported,
                concat(table.where,
                       " was made by an earlier version, and cannot grow: insert what "
                       "it has (export_batch()) into a new one"));
  }
  const std::uint32_t growth = table.growths + 1;
  const std::string longest =
      table.made.places != 0 ? values_name(table, growth) : level_name(table, growth);
  if (longest.size() >= core::kNameBytes) {
    throw Error(
        Errc::invalid_argument,
        concat(table.where, " cannot grow: its object '", longest, "' would have a name of ",
               longest.size(), " bytes, and a region's have ", core::kNameBytes - 1,
               " at most; insert what it has (export_batch()) into a map of a shorter "
               "name"));
  }
  if (!can_double(table.now)) {
    throw Error(Errc::invalid_argument,
                concat(table.where, " has ", table.now.slots(), " slots and ", table.now.places,
                       " places of values, and cannot have twice as many"));
  }
  return grown(table.made, growth);
}

std::uint64_t check_reserve(const Region& region, const Table& table, std::uint64_t capacity) {
  Table last = table;
  while (last.now.slots() < capacity) {
    if (last.growths > table.growths && !can_double(last.now)) {
      throw Error(Errc::invalid_argument, concat(table.where, ": ", capacity,
                                                 " slots are more than it can have, which are ",
                                                 last.now.slots(), ": ask for fewer"));
    }
    last.now = next_of(last);
    ++last.growths;
  }
  if (last.growths == table.growths) return 0;
  // What is there while the last growth goes on: so many levels, and all places.
  const auto level = [&](std::uint32_t growth) { return level_size(table.made, growth); };
  std::uint64_t needed = region.used();
  for (std::uint32_t i = 0; i <= table.made.levels; ++i) {
    if (i < last.growths) needed += level(last.growths - i);
    if (i < table.levels.size() && i < table.growths) needed -= level(table.growths - i);
  }
  for (std::uint32_t g = table.growths + 1; table.made.places != 0 && g <= last.growths; ++g) {
    needed += values_size(table.made, g);
  }
  if (needed <= region.max_size()) return needed;
  throw Error(Errc::no_space,
              concat(table.where, ": for ", capacity, " slots the region would have ", needed,
                     " bytes at least, and can have ", region.max_size(),
                     " (max_size): open it with more, or ask for fewer"));
}

Added make_room(Region& region, Stream& stream, const Table& table, const MapParameters& next) {
  tidy(region, table);
  const std::uint32_t growth = table.growths + 1;
  const std::string level = level_name(table, growth), values = values_name(table, growth);
  refuse_foreign(region, table, level);
  if (next.places != 0) refuse_foreign(region, table, values);
  if (table.growths == 0) store_growth(region, stream, table);  // from here on it is not 0
  Added added{};
  try {
    if (next.places != 0) {
      added.values =
          make_object(region, table, values, kValuesType, values_size(table.made, growth));
    }
    added.level = make_object(region, table, level, kLevelType, level_size(table.made, growth));
  } catch (...) {
    tidy(region, table);
    throw;
  }
  return added;
}

void begin_growth(Region& region, Stream& stream, Table& table, const MapParameters& next,
                  const Added& added) {
  ++table.growths;
  table.growing = true;
  store_growth(region, stream, table);
  table.now = next;
  table.levels.insert(table.levels.begin(), added.level);
  if (added.values != nullptr) table.values.push_back(added.values);
}

void end_growth(Region& region, Stream& stream, Table& table) {
  table.growing = false;
  store_growth(region, stream, table);
  table.levels.pop_back();
  if (table.growths > table.made.levels) {
    // It was in use until now, so it is the map's, of an earlier build, too.
    region.remove(level_name(table, table.growths - table.made.levels));
  }
  tidy(region, table);
}

void tidy(Region& region, const Table& table) {
  const std::uint32_t next = table.growths + 1;
  const std::uint32_t levels = table.made.levels;
  remove_remains(region, level_name(table, next));
  if (table.made.places != 0) remove_remains(region, values_name(table, next));
  if (table.growing || table.growths <= levels) return;
  remove_remains(region, level_name(table, table.growths - levels));
}

}  // namespace holdfast::map
