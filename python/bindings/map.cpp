#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <variant>

#include "bindings.hpp"
#include "held.hpp"
#include "holdfast/hash_map.hpp"

namespace holdfast::python {
namespace {

using namespace nb::literals;

using Map32 = HashMap<std::uint32_t>;
using Map64 = HashMap<std::uint64_t>;

// A map whose keys have 4 or 8 bytes.
struct AnyMap {
  std::variant<Map32, Map64> of;

  // Calls function(map), whatever its keys are.
  template <class Function>
  decltype(auto) with(Function&& function) {
    return std::visit(std::forward<Function>(function), of);
  }
  Stream& stream() {
    return with([](auto& map) -> Stream& { return map.stream(); });
  }
};

template <class K, class C>
const K* keys_at(const HashMap<K, C>&, std::uintptr_t address) {
  return reinterpret_cast<const K*>(address);
}
template <class T>
T* at(std::uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

using MapHandle = Held<AnyMap>;
using Handle = std::shared_ptr<MapHandle>;
// Streams of other libraries, which wrote what a call is given.
using Natives = std::vector<std::uintptr_t>;

// What the map's stream does from here on is behind what is queued there now.
void wait_for(Stream& stream, const Natives& natives) {
  for (const std::uintptr_t native : natives) {
    Stream other = Stream::borrow(reinterpret_cast<void*>(native));
    Event event;
    event.record(other);
    event.wait(stream);
  }
}

MapOptions::Directory directory_named(const std::string& name) {
  if (name == "automatic") return MapOptions::Directory::automatic;
  if (name == "on") return MapOptions::Directory::on;
  if (name == "off") return MapOptions::Directory::off;
  throw Error(Errc::invalid_argument, "directory is '" + name + "': use automatic, on or off");
}

MapOptions options_of(std::uint64_t capacity, std::uint32_t value_bytes, std::uint32_t max_batch,
                      std::uint64_t value_places, const std::string& directory = "automatic") {
  MapOptions options;
  options.capacity = capacity;
  options.value_bytes = value_bytes;
  options.max_batch = max_batch;
  options.value_places = value_places;
  options.directory = directory_named(directory);
  return options;
}

std::string named(const std::string& name) { return "hash map '" + name + "'"; }

Handle create_map(const std::shared_ptr<RegionHandle>& region, const std::string& name,
                  std::uint32_t key_bytes, std::uint64_t capacity, std::uint32_t value_bytes,
                  std::uint32_t max_batch, std::uint64_t value_places,
                  const std::string& directory) {
  const MapOptions options = options_of(capacity, value_bytes, max_batch, value_places, directory);
  AnyMap map = region->with([&](Region& open) {
    return key_bytes == 4 ? AnyMap{Map32::create(open, name, options)}
                          : AnyMap{Map64::create(open, name, options)};
  });
  return hold(region, std::move(map), named(name));
}

Handle open_map(const std::shared_ptr<RegionHandle>& region, const std::string& name,
                std::uint32_t key_bytes, std::uint32_t value_bytes, std::uint32_t max_batch,
                const std::string& directory) {
  const MapOpenOptions options{value_bytes, max_batch, directory_named(directory)};
  AnyMap map = region->with([&](Region& open) {
    return key_bytes == 4 ? AnyMap{Map32::open(open, name, options)}
                          : AnyMap{Map64::open(open, name, options)};
  });
  return hold(region, std::move(map), named(name));
}

std::uint64_t region_bytes(std::uint32_t key_bytes, std::uint64_t capacity,
                           std::uint32_t value_bytes, std::uint32_t max_batch,
                           std::uint64_t value_places) {
  const MapOptions options = options_of(capacity, value_bytes, max_batch, value_places);
  return key_bytes == 4 ? Map32::region_bytes(options) : Map64::region_bytes(options);
}

// Addresses are of `count` keys, values, or bytes; 0 where there is none.
MapResult update(const Handle& handle, const std::string& operation, std::uintptr_t keys,
                 std::uintptr_t values, std::uintptr_t out, std::size_t count,
                 std::uintptr_t status, const Natives& natives) {
  return handle->with([&](AnyMap& any) {
    return any.with([&](auto& map) {
      wait_for(map.stream(), natives);
      const auto* const from = keys_at(map, keys);
      const void* const given = at<void>(values);
      auto* const became = at<MapStatus>(status);
      if (operation == "insert") return map.insert(from, given, count, became);
      if (operation == "assign") return map.assign(from, given, count, became);
      if (operation == "erase") return map.erase(from, count, became);
      if (operation == "find_or_insert") {
        return map.find_or_insert(from, given, at<void>(out), count, became);
      }
      return map.insert_or_assign(from, given, count, became);
    });
  });
}

// values: 0 where only `found` is asked for.
void find(const Handle& handle, std::uintptr_t keys, std::uintptr_t values, std::uintptr_t found,
          std::size_t count, const Natives& natives) {
  handle->with([&](AnyMap& any) {
    any.with([&](auto& map) {
      wait_for(map.stream(), natives);
      map.find(keys_at(map, keys), at<void>(values), at<std::uint8_t>(found), count);
    });
  });
}

std::uint64_t export_batch(const Handle& handle, std::uint64_t first, std::uint64_t slots,
                           std::uintptr_t keys, std::uintptr_t values, const Natives& natives) {
  return handle->with([&](AnyMap& any) {
    return any.with([&](auto& map) {
      wait_for(map.stream(), natives);
      using Key = std::remove_const_t<std::remove_pointer_t<decltype(keys_at(map, 0))>>;
      return map.export_batch(first, slots, at<Key>(keys), at<void>(values));
    });
  });
}

void set_order(const Handle& handle, const std::string& name) {
  MapOptions::Order order = MapOptions::Order::automatic;
  if (name == "ordered") {
    order = MapOptions::Order::ordered;
  } else if (name == "unordered") {
    order = MapOptions::Order::unordered;
  } else if (name != "automatic") {
    throw Error(Errc::invalid_argument,
                "order is '" + name + "': use automatic, ordered or unordered");
  }
  handle->with([&](AnyMap& any) { any.with([&](auto& map) { map.set_order(order); }); });
}

void bind_records(nb::module_& module) {
  nb::enum_<MapStatus>(module, "MapStatus", nb::is_arithmetic(), "What became of an operation.")
      .value("inserted", MapStatus::inserted, "its key was not there, and is")
      .value("assigned", MapStatus::assigned, "its key was there, and has its value now")
      .value("kept", MapStatus::kept, "its key was there, and was left as it was")
      .value("erased", MapStatus::erased, "its key was there")
      .value("absent", MapStatus::absent, "its key was not there")
      .value("superseded", MapStatus::superseded, "a later operation of the batch has its key")
      .value("full", MapStatus::full, "not done: all slots that its key can have are taken")
      .value("no_value", MapStatus::no_value, "not done: no place for one more value is left");

  nb::class_<MapResult>(module, "MapResult", "How many operations of a batch had which MapStatus.")
      .def_ro("inserted", &MapResult::inserted)
      .def_ro("assigned", &MapResult::assigned)
      .def_ro("kept", &MapResult::kept)
      .def_ro("erased", &MapResult::erased)
      .def_ro("absent", &MapResult::absent)
      .def_ro("superseded", &MapResult::superseded)
      .def_ro("full", &MapResult::full)
      .def_ro("no_value", &MapResult::no_value)
      .def_prop_ro("not_done", &MapResult::not_done, "full and no_value together")
      .def("__repr__", [](const MapResult& result) {
        return detail::concat("MapResult(inserted=", result.inserted,
                              ", assigned=", result.assigned, ", kept=", result.kept,
                              ", erased=", result.erased, ", absent=", result.absent,
                              ", superseded=", result.superseded, ", full=", result.full,
                              ", no_value=", result.no_value, ")");
      });

  nb::class_<MapStats>(module, "MapStats", "What a map holds.")
      .def_ro("size", &MapStats::size, "pairs")
      .def_ro("capacity", &MapStats::capacity, "slots")
      .def_ro("table_bytes", &MapStats::table_bytes)
      .def_ro("value_bytes", &MapStats::value_bytes)
      .def_ro("value_places", &MapStats::value_places, "0: values are in slots")
      .def_ro("free_places", &MapStats::free_places, "of these")
      .def_ro("max_batch", &MapStats::max_batch)
      .def_ro("directory", &MapStats::directory, "there is one")
      .def("__repr__", [](const MapStats& stats) {
        return detail::concat("MapStats(size=", stats.size, ", capacity=", stats.capacity,
                              ", value_bytes=", stats.value_bytes, ")");
      });

  nb::class_<MapRecovery>(module, "MapRecovery", "What opening a map found, and put in order.")
      .def_ro("pairs", &MapRecovery::pairs)
      .def_ro("cleared", &MapRecovery::cleared, "slots whose insertion was cut off")
      .def_ro("erased", &MapRecovery::erased, "slots of keys that were erased")
      .def_ro("duplicates", &MapRecovery::duplicates)
      .def_prop_ro("needed", &MapRecovery::needed)
      .def("__repr__", [](const MapRecovery& recovery) {
        return detail::concat("MapRecovery(pairs=", recovery.pairs, ", cleared=", recovery.cleared,
                              ", erased=", recovery.erased, ", duplicates=", recovery.duplicates,
                              ")");
      });

  nb::class_<MapTiming>(module, "MapTiming", "Milliseconds of the last batch's parts.")
      .def_ro("prepare", &MapTiming::prepare)
      .def_ro("apply", &MapTiming::apply)
      .def_ro("report", &MapTiming::report);
}

}  // namespace

void bind_map(nb::module_& module) {
  bind_records(module);
  const auto ask = [](auto&& function) {
    return [function](const Handle& handle) {
      return handle->with([&](AnyMap& any) { return any.with(function); });
    };
  };
  nb::class_<MapHandle>(module, "Map", "A map's handle; holdfast.Map wraps it.")
      .def("update", &update, "operation"_a, "keys"_a, "values"_a, "out"_a, "count"_a, "status"_a,
           "streams"_a)
      .def("find", &find, "keys"_a, "values"_a, "found"_a, "count"_a, "streams"_a)
      .def("export_batch", &export_batch, "first"_a, "slots"_a, "keys"_a, "values"_a, "streams"_a)
      .def("set_order", &set_order, "order"_a)
      .def("close", [](const Handle& handle) { handle->close(); })
      .def("verify", ask([](auto& map) -> std::string { return map.verify(); }))
      .def("stats", ask([](auto& map) -> MapStats { return map.stats(); }))
      .def("recovery", ask([](auto& map) -> MapRecovery { return map.recovery(); }))
      .def("timing", ask([](auto& map) -> MapTiming { return map.timing(); }));
  module.def("create_map", &create_map, "region"_a, "name"_a, "key_bytes"_a, "capacity"_a,
             "value_bytes"_a, "max_batch"_a, "value_places"_a, "directory"_a);
  module.def("open_map", &open_map, "region"_a, "name"_a, "key_bytes"_a, "value_bytes"_a,
             "max_batch"_a, "directory"_a);
  module.def("map_region_bytes", &region_bytes, "key_bytes"_a, "capacity"_a, "value_bytes"_a,
             "max_batch"_a, "value_places"_a, "Bytes that a region must have for such a map.");
}

}  // namespace holdfast::python
