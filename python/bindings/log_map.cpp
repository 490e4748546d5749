#include "holdfast/log_map.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "held.hpp"
#include "index_form.hpp"

namespace holdfast::python {
namespace {

using namespace nb::literals;

using LogMapHandle = Held<LogMap>;
using Handle = std::shared_ptr<LogMapHandle>;
// Streams of other libraries, which wrote what a call is given.
using Natives = std::vector<std::uintptr_t>;

template <class T>
T* at(std::uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

// Here, on the host: a batch reads its values in another stream than stream().
void wait_for(const Natives& natives) {
  for (const std::uintptr_t native : natives) {
    Stream::borrow(reinterpret_cast<void*>(native)).synchronize();
  }
}

LogMap::Options options_of(std::uint64_t capacity, std::uint32_t value_bytes,
                           std::uint32_t max_batch, std::uint64_t log_records) {
  LogMap::Options options;
  options.capacity = capacity;
  options.value_bytes = value_bytes;
  options.max_batch = max_batch;
  options.log_records = log_records;
  return options;
}

Handle adopt(const std::shared_ptr<RegionHandle>& region, LogMap map, const std::string& name) {
  return hold(region, std::move(map), "log map '" + name + "'");
}

Handle create(const std::shared_ptr<RegionHandle>& region, const std::string& name,
              std::uint64_t capacity, std::uint32_t value_bytes, std::uint32_t max_batch,
              std::uint64_t log_records, const std::string& index) {
  LogMap::Options options = options_of(capacity, value_bytes, max_batch, log_records);
  options.index = index_named(index);
  return adopt(region,
               region->with([&](Region& open) { return LogMap::create(open, name, options); }),
               name);
}

Handle open(const std::shared_ptr<RegionHandle>& region, const std::string& name,
            const std::string& index) {
  const KvStore::Index form = index_named(index);
  return adopt(region, region->with([&](Region& open) { return LogMap::open(open, name, form); }),
               name);
}

// Addresses are of `count` keys, values, or bytes; 0 where there is none.
using Storing = LogMap::Result (LogMap::*)(const std::uint64_t*, const void*, std::size_t,
                                           MapStatus*);

template <Storing Call>
LogMap::Result store(const Handle& handle, std::uintptr_t keys, std::uintptr_t values,
                     std::size_t count, std::uintptr_t status, const Natives& natives) {
  return handle->with([&](LogMap& map) {
    wait_for(natives);
    return (map.*Call)(at<const std::uint64_t>(keys), at<const void>(values), count,
                       at<MapStatus>(status));
  });
}

LogMap::Result erase(const Handle& handle, std::uintptr_t keys, std::size_t count,
                     std::uintptr_t status, const Natives& natives) {
  return handle->with([&](LogMap& map) {
    wait_for(natives);
    return map.erase(at<const std::uint64_t>(keys), count, at<MapStatus>(status));
  });
}

LogMap::Result apply(const Handle& handle, std::uintptr_t operations, std::uintptr_t keys,
                     std::uintptr_t values, std::size_t count, std::uintptr_t status,
                     const Natives& natives) {
  return handle->with([&](LogMap& map) {
    wait_for(natives);
    return map.apply(at<const LogMap::Op>(operations), at<const std::uint64_t>(keys),
                     at<const void>(values), count, at<MapStatus>(status));
  });
}

void find(const Handle& handle, std::uintptr_t keys, std::uintptr_t values, std::uintptr_t found,
          std::size_t count, const Natives& natives) {
  handle->with([&](LogMap& map) {
    wait_for(natives);
    map.find(at<const std::uint64_t>(keys), at<void>(values), at<std::uint8_t>(found), count);
  });
}

std::uint64_t scan(const Handle& handle, std::uintptr_t keys, std::uintptr_t values,
                   std::uint64_t limit) {
  return handle->with(
      [&](LogMap& map) { return map.scan(at<std::uint64_t>(keys), at<void>(values), limit); });
}

void bind_records(nb::module_& module) {
  nb::class_<LogMap::Result>(module, "LogMapResult",
                             "What a batch did; a key that it has twice counts once.")
      .def_ro("inserted", &LogMap::Result::inserted, "keys that were not there")
      .def_ro("assigned", &LogMap::Result::assigned, "keys that were")
      .def_ro("erased", &LogMap::Result::erased)
      .def("__repr__", [](const LogMap::Result& result) {
        return detail::concat("LogMapResult(inserted=", result.inserted,
                              ", assigned=", result.assigned, ", erased=", result.erased, ")");
      });

  nb::class_<LogMap::Stats>(module, "LogMapStats", "What a log map holds.")
      .def_ro("size", &LogMap::Stats::size, "pairs")
      .def_ro("capacity", &LogMap::Stats::capacity, "pairs")
      .def_ro("places", &LogMap::Stats::places, "for values: the capacity and a batch")
      .def_ro("free_places", &LogMap::Stats::free_places, "of these")
      .def_ro("value_bytes", &LogMap::Stats::value_bytes)
      .def_ro("max_batch", &LogMap::Stats::max_batch)
      .def_ro("index", &LogMap::Stats::index, "of its log: segments, amplification")
      .def("__repr__", [](const LogMap::Stats& stats) {
        return detail::concat("LogMapStats(size=", stats.size, ", capacity=", stats.capacity,
                              ", value_bytes=", stats.value_bytes, ")");
      });
}

}  // namespace

void bind_log_map(nb::module_& module) {
  bind_records(module);
  const auto ask = [](auto&& function) {
    return [function](const Handle& handle) { return handle->with(function); };
  };
  nb::class_<LogMapHandle>(module, "LogMap", "A log map's handle; holdfast.LogMap wraps it.")
      .def("insert_or_assign", &store<&LogMap::insert_or_assign>, "keys"_a, "values"_a, "count"_a,
           "status"_a, "streams"_a)
      .def("insert", &store<&LogMap::insert>, "keys"_a, "values"_a, "count"_a, "status"_a,
           "streams"_a)
      .def("assign", &store<&LogMap::assign>, "keys"_a, "values"_a, "count"_a, "status"_a,
           "streams"_a)
      .def("erase", &erase, "keys"_a, "count"_a, "status"_a, "streams"_a)
      .def("apply", &apply, "operations"_a, "keys"_a, "values"_a, "count"_a, "status"_a,
           "streams"_a)
      .def("find", &find, "keys"_a, "values"_a, "found"_a, "count"_a, "streams"_a)
      .def("scan", &scan, "keys"_a, "values"_a, "limit"_a)
      .def("close", [](const Handle& handle) { handle->close(); })
      .def(
          "reserve",
          [](const Handle& handle, std::uint64_t capacity, std::uint64_t log_records) {
            handle->with([&](LogMap& map) { map.reserve(capacity, log_records); });
          },
          "capacity"_a, "log_records"_a)
      .def("verify", ask([](LogMap& map) -> std::string { return map.verify(); }))
      .def("stats", ask([](LogMap& map) -> LogMap::Stats { return map.stats(); }))
      .def("recovery", ask([](LogMap& map) -> Recovery { return map.recovery(); }));
  module.def("create_log_map", &create, "region"_a, "name"_a, "capacity"_a, "value_bytes"_a,
             "max_batch"_a, "log_records"_a, "index"_a);
  module.def(
      "remove_log_map",
      [](const std::shared_ptr<RegionHandle>& region, const std::string& name) {
        region->with([&](Region& open) { LogMap::remove(open, name); });
      },
      "region"_a, "name"_a);
  module.def("open_log_map", &open, "region"_a, "name"_a, "index"_a);
  module.def(
      "log_map_region_bytes",
      [](std::uint64_t capacity, std::uint32_t value_bytes, std::uint32_t max_batch,
         std::uint64_t log_records) {
        return LogMap::region_bytes(options_of(capacity, value_bytes, max_batch, log_records));
      },
      "capacity"_a, "value_bytes"_a, "max_batch"_a, "log_records"_a,
      "Bytes that a region must have for such a map.");
}

}  // namespace holdfast::python
