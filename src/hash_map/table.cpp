#include "hash_map/table.hpp"

#include <algorithm>
#include <utility>

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

// The word of the part `growth`. One that was never grown has 0.
std::uint64_t encode(std::uint32_t growths, bool growing) {
  const std::uint64_t state = growths * 2 + (growing ? 1 : 0);
  return state == 0 ? 0 : state | std::uint64_t{MapHash::hash(~state, 0)} << 32;
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

bool is_one(const ObjectInfo& info, std::uint64_t bytes) {
  return info.type == type_name<std::uint8_t>() && info.bytes() == bytes &&
         info.tracking == Tracking::marked;
}

std::byte* find_object(Region& region, const Table& table, const std::string& object,
                       std::uint64_t bytes) {
  if (region.contains(object)) {
    const ObjectInfo info = region.object(object);
    if (is_one(info, bytes)) return static_cast<std::byte*>(region.address(info));
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
    if (word != encode(table.growths, table.growing) || table.growths > 31 ||
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

// The region's bytes grow where no gap takes the object.
std::byte* make_object(Region& region, const Table& table, const std::string& object,
                       std::uint64_t bytes) {
  const auto allocate = [&] {
    return static_cast<std::byte*>(
        region.allocate_raw(object, type_name<std::uint8_t>(), 1, bytes, Tracking::marked));
  };
  try {
    return allocate();
  } catch (const Error& error) {
    if (error.code() != Errc::no_space) throw;
    const ObjectInfo last = region.objects().back();  // the map's own are there
    const std::uint64_t end =
        last.offset + (last.bytes() + kPageBytes - 1) / kPageBytes * kPageBytes;
    const std::uint64_t wanted = end + (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    if (wanted <= region.size()) throw;  // not for want of bytes
    if (wanted > region.max_size()) {
      throw Error(Errc::no_space,
                  concat(table.where, ": to grow it takes ", bytes, " bytes for '", object,
                         "'; the region would have ", wanted, ", and can have ", region.max_size(),
                         " (max_size): open it with more, or remove something"));
    }
    region.grow(wanted);
  }
  return allocate();
}

void remove_remains(Region& region, const std::string& object, std::uint64_t bytes) {
  if (region.contains(object) && is_one(region.object(object), bytes)) region.remove(object);
}

}  // namespace

std::vector<std::uint64_t> level_bytes(const MapParameters& now, bool growing) {
  std::vector<std::uint64_t> bytes(now.levels + (growing ? 1 : 0));
  for (std::size_t level = 0; level < bytes.size(); ++level) {
    bytes[level] = std::uint64_t{now.buckets >> level} * now.bucket_bytes;
  }
  return bytes;
}

Table create_table(Region& region, std::string_view name, const std::string& where,
                   const MapParameters& shape) {
  return table_of(region, name, where, MapObject::create(region, name, shape));
}

Table open_table(Region& region, std::string_view name, const std::string& where) {
  try {
    return table_of(region, name, where, MapObject::open(region, name));
  } catch (const Error& error) {
    if (error.code() != Errc::unsupported) throw;
  }
  return table_of(region, name, where, Durable<MapParametersOfVersion1>::open(region, name));
}

MapParameters next_of(const Table& table) {
  if (table.growth == nullptr) {
    throw Error(Errc::unsupported,
                concat(table.where,
                       " was made by an earlier version, and cannot grow: insert what "
                       "it has (export_batch()) into a new one"));
  }
  if (table.now.buckets > kMostBucketsOfTop / 2 || table.now.places >= ~0u / 2) {
    throw Error(Errc::invalid_argument,
                concat(table.where, " has ", table.now.slots(), " slots and ", table.now.places,
                       " places of values, and cannot have twice as many"));
  }
  return grown(table.made, table.growths + 1);
}

Added make_room(Region& region, const Table& table, const MapParameters& next) {
  tidy(region, table);
  const std::uint32_t growth = table.growths + 1;
  Added added{};
  try {
    if (next.places != 0) {
      added.values =
          make_object(region, table, values_name(table, growth), values_size(table.made, growth));
    }
    added.level =
        make_object(region, table, level_name(table, growth), level_size(table.made, growth));
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
  tidy(region, table);
}

void tidy(Region& region, const Table& table) {
  const std::uint32_t next = table.growths + 1;
  const std::uint32_t levels = table.made.levels;
  remove_remains(region, level_name(table, next), level_size(table.made, next));
  if (table.made.places != 0) {
    remove_remains(region, values_name(table, next), values_size(table.made, next));
  }
  if (table.growing || table.growths <= levels) return;
  const std::uint32_t emptied = table.growths - levels;
  remove_remains(region, level_name(table, emptied), level_size(table.made, emptied));
}

}  // namespace holdfast::map
