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

// Keys of 16 bytes and more, of a size that is known when it is made.
class LongMap : public detail::MapBase {
 public:
  static LongMap create(std::uint32_t key_bytes, Region& region, const std::string& name,
                        const MapOptions& options) {
    return LongMap(MapBase::create(region, name, types(key_bytes), options, 0, EmptyValue{}.bits));
  }
  static LongMap open(std::uint32_t key_bytes, Region& region, const std::string& name,
                      const MapOpenOptions& options) {
    return LongMap(MapBase::open(region, name, types(key_bytes), options));
  }
  static std::uint64_t region_bytes(std::uint32_t key_bytes, const MapOptions& options) {
    return MapBase::region_bytes(types(key_bytes), options);
  }
  using MapBase::accumulate;
  MapResult insert(const void* keys, const void* values, std::size_t count, MapStatus* status) {
    return update(Operation::insert, keys, values, nullptr, count, status);
  }
  MapResult insert_or_assign(const void* keys, const void* values, std::size_t count,
                             MapStatus* status) {
    return update(Operation::insert_or_assign, keys, values, nullptr, count, status);
  }
  MapResult assign(const void* keys, const void* values, std::size_t count, MapStatus* status) {
    return update(Operation::assign, keys, values, nullptr, count, status);
  }
  MapResult find_or_insert(const void* keys, const void* values, void* out, std::size_t count,
                           MapStatus* status) {
    return update(Operation::find_or_insert, keys, values, out, count, status);
  }
  MapResult erase(const void* keys, std::size_t count, MapStatus* status) {
    return update(Operation::erase, keys, nullptr, nullptr, count, status);
  }
  MapEviction insert_and_evict(const void* keys, const void* values, const std::uint64_t* scores,
                               std::size_t count, void* evicted_keys, void* evicted_values,
                               std::uint64_t* evicted_scores, MapStatus* status) {
    return MapBase::insert_and_evict(keys, values, scores, count,
                                     {evicted_keys, evicted_values, evicted_scores}, status);
  }
  using MapBase::apply;
  using MapBase::apply_changes;
  using MapBase::export_batch;
  using MapBase::export_changes;
  using MapBase::find;
  using MapBase::is_there;
  using MapBase::recorded;
  using MapBase::remove;
  using MapBase::scores;

 private:
  explicit LongMap(std::shared_ptr<detail::MapHost> host) : MapBase(std::move(host)) {}
  static detail::MapTypes types(std::uint32_t key_bytes) {
    using Config = MapConfig<>;
    return {key_bytes,
            Config::kLevels,
            Config::kHashes,
            Config::kWays,
            Config::HashFunctions::kId,
            &detail::map_kernels<detail::MapLongKey, Config>()};
  }
};

// A map whose keys have any size.
struct AnyMap {
  std::variant<Map32, Map64, LongMap> of;

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
const void* keys_at(const LongMap&, std::uintptr_t address) {
  return reinterpret_cast<const void*>(address);
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

MapScores scores_named(const std::string& name) {
  if (name == "none") return MapScores::none;
  if (name == "lru") return MapScores::lru;
  if (name == "lfu") return MapScores::lfu;
  if (name == "custom") return MapScores::custom;
  throw Error(Errc::invalid_argument, "scores are '" + name + "': use none, lru, lfu or custom");
}

MapCache::Policy policy_named(const std::string& name) {
  if (name == "frozen") return MapCache::Policy::frozen;
  if (name == "lfu") return MapCache::Policy::lfu;
  if (name == "lru") return MapCache::Policy::lru;
  if (name == "random") return MapCache::Policy::random;
  throw Error(Errc::invalid_argument,
              "policy of a cache is '" + name + "': use lfu, lru, frozen or random");
}

MapOptions options_of(std::uint64_t capacity, std::uint32_t value_bytes, std::uint32_t max_batch,
                      std::uint64_t value_places, std::uint64_t changes,
                      const std::string& directory = "automatic") {
  MapOptions options;
  options.capacity = capacity;
  options.value_bytes = value_bytes;
  options.max_batch = max_batch;
  options.value_places = value_places;
  options.directory = directory_named(directory);
  options.changes = changes;
  return options;
}

std::string named(const std::string& name) { return "hash map '" + name + "'"; }

Handle create_map(const std::shared_ptr<RegionHandle>& region, const std::string& name,
                  std::uint32_t key_bytes, std::uint64_t capacity, std::uint32_t value_bytes,
                  std::uint32_t max_batch, std::uint64_t value_places, std::uint64_t changes,
                  const std::string& directory, const std::string& scores, const MapCache& cache) {
  MapOptions options =
      options_of(capacity, value_bytes, max_batch, value_places, changes, directory);
  options.scores = scores_named(scores);
  options.cache = cache;
  AnyMap map = region->with([&](Region& open) {
    return key_bytes == 4   ? AnyMap{Map32::create(open, name, options)}
           : key_bytes == 8 ? AnyMap{Map64::create(open, name, options)}
                            : AnyMap{LongMap::create(key_bytes, open, name, options)};
  });
  return hold(region, std::move(map), named(name));
}

bool has_map(const std::shared_ptr<RegionHandle>& region, const std::string& name) {
  return region->with([&](Region& open) { return LongMap::is_there(open, name); });
}

void remove_map(const std::shared_ptr<RegionHandle>& region, const std::string& name) {
  region->with([&](Region& open) { LongMap::remove(open, name); });
}

std::uint64_t recorded(const std::shared_ptr<RegionHandle>& region, const std::string& name) {
  return region->with([&](Region& open) { return LongMap::recorded(open, name); });
}

Handle open_map(const std::shared_ptr<RegionHandle>& region, const std::string& name,
                std::uint32_t key_bytes, std::uint32_t value_bytes, std::uint32_t max_batch,
                const std::string& directory, const std::string& scores, const MapCache& cache) {
  const MapOpenOptions options{value_bytes, max_batch, directory_named(directory), cache,
                               scores_named(scores)};
  AnyMap map = region->with([&](Region& open) {
    return key_bytes == 4   ? AnyMap{Map32::open(open, name, options)}
           : key_bytes == 8 ? AnyMap{Map64::open(open, name, options)}
                            : AnyMap{LongMap::open(key_bytes, open, name, options)};
  });
  return hold(region, std::move(map), named(name));
}

std::uint64_t region_bytes(std::uint32_t key_bytes, std::uint64_t capacity,
                           std::uint32_t value_bytes, std::uint32_t max_batch,
                           std::uint64_t value_places, std::uint64_t changes) {
  const MapOptions options = options_of(capacity, value_bytes, max_batch, value_places, changes);
  return key_bytes == 4   ? Map32::region_bytes(options)
         : key_bytes == 8 ? Map64::region_bytes(options)
                          : LongMap::region_bytes(key_bytes, options);
}

template <class Map>
MapResult accumulate_typed(Map& map, const std::string& element, std::uintptr_t keys,
                           std::uintptr_t deltas, std::size_t count, MapStatus* became) {
  const auto* const from = keys_at(map, keys);
  const auto of = [&]<class T>(const T*) {
    if constexpr (std::is_same_v<Map, LongMap>) {
      return map.accumulate(from, at<void>(deltas), detail::map_element_of<T>(), count, became);
    } else {
      return map.accumulate(from, at<const T>(deltas), count, became);
    }
  };
  if (element == "float32") return of(at<const float>(0));
  if (element == "float64") return of(at<const double>(0));
  if (element == "int32" || element == "uint32") return of(at<const std::uint32_t>(0));
  if (element == "int64" || element == "uint64") return of(at<const std::uint64_t>(0));
  throw Error(Errc::invalid_argument,
              "accumulate(): values are of " + element +
                  ", and there are sums of float32, float64, and integers of 4 and 8 bytes alone");
}

MapResult accumulate(const Handle& handle, const std::string& element, std::uintptr_t keys,
                     std::uintptr_t deltas, std::size_t count, std::uintptr_t status,
                     const Natives& natives) {
  return handle->with([&](AnyMap& any) {
    return any.with([&](auto& map) {
      wait_for(map.stream(), natives);
      return accumulate_typed(map, element, keys, deltas, count, at<MapStatus>(status));
    });
  });
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

MapResult apply(const Handle& handle, std::uintptr_t operations, std::uintptr_t keys,
                std::uintptr_t values, std::uintptr_t out, std::size_t count, std::uintptr_t status,
                const Natives& natives) {
  return handle->with([&](AnyMap& any) {
    return any.with([&](auto& map) {
      wait_for(map.stream(), natives);
      return map.apply(at<const MapOp>(operations), keys_at(map, keys), at<const void>(values),
                       at<void>(out), count, at<MapStatus>(status));
    });
  });
}

// Addresses are of `count` elements each; 0 where there is none.
MapEviction insert_and_evict(const Handle& handle, std::uintptr_t keys, std::uintptr_t values,
                             std::uintptr_t scores, std::size_t count, std::uintptr_t evicted_keys,
                             std::uintptr_t evicted_values, std::uintptr_t evicted_scores,
                             std::uintptr_t status, const Natives& natives) {
  return handle->with([&](AnyMap& any) {
    return any.with([&](auto& map) {
      wait_for(map.stream(), natives);
      using Key = std::remove_const_t<std::remove_pointer_t<decltype(keys_at(map, 0))>>;
      const auto* const by = at<const std::uint64_t>(scores);
      auto* const had = at<std::uint64_t>(evicted_scores);
      return map.insert_and_evict(keys_at(map, keys), at<const void>(values), by, count,
                                  at<Key>(evicted_keys), at<void>(evicted_values), had,
                                  at<MapStatus>(status));
    });
  });
}

void scores(const Handle& handle, std::uintptr_t keys, std::uintptr_t scores, std::uintptr_t found,
            std::size_t count, const Natives& natives) {
  handle->with([&](AnyMap& any) {
    any.with([&](auto& map) {
      wait_for(map.stream(), natives);
      map.scores(keys_at(map, keys), at<std::uint64_t>(scores), at<std::uint8_t>(found), count);
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

// Addresses are of `most` keys, values, and keys again.
MapChanges export_changes(const Handle& handle, const MapVersion& since, std::uint64_t most,
                          std::uintptr_t keys, std::uintptr_t values, std::uintptr_t erased,
                          const Natives& natives) {
  return handle->with([&](AnyMap& any) {
    return any.with([&](auto& map) {
      wait_for(map.stream(), natives);
      using Key = std::remove_const_t<std::remove_pointer_t<decltype(keys_at(map, 0))>>;
      return map.export_changes(since, most, at<Key>(keys), at<void>(values), at<Key>(erased));
    });
  });
}

MapResult apply_changes(const Handle& handle, const MapChanges& changes, std::uintptr_t keys,
                        std::uintptr_t values, std::uintptr_t erased, const Natives& natives) {
  return handle->with([&](AnyMap& any) {
    return any.with([&](auto& map) {
      wait_for(map.stream(), natives);
      return map.apply_changes(changes, keys_at(map, keys), at<void>(values), keys_at(map, erased));
    });
  });
}

void follow(const Handle& handle, const MapVersion& version) {
  handle->with([&](AnyMap& any) { any.with([&](auto& map) { map.follow(version); }); });
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
      .value("no_value", MapStatus::no_value, "not done: no place for one more value is left")
      .value("refused", MapStatus::refused,
             "not done, in a bytes map: another key has the digest of its key");

  nb::enum_<MapOp>(module, "MapOp", nb::is_arithmetic(), "What an operation of apply() is.")
      .value("insert", MapOp::insert)
      .value("insert_or_assign", MapOp::insert_or_assign)
      .value("assign", MapOp::assign)
      .value("find_or_insert", MapOp::find_or_insert)
      .value("erase", MapOp::erase)
      .value("find", MapOp::find);

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

  nb::class_<MapEviction>(module, "MapEviction", "What insert_and_evict() did.")
      .def_ro("result", &MapEviction::result)
      .def_ro("evicted", &MapEviction::evicted, "pairs that were in the map")
      .def_prop_ro("count", &MapEviction::count, "those, and of the batch those that are not done");

  nb::class_<MapCache>(module, "MapCache", "As holdfast.MapCache, which checks.")
      .def(
          "__init__",
          [](MapCache* self, std::uint64_t bytes, const std::string& policy,
             std::uint32_t load_every) {
            new (self) MapCache{bytes, policy_named(policy), load_every};
          },
          "bytes"_a, "policy"_a, "load_every"_a);
  nb::class_<MapCacheStats>(module, "MapCacheStats", "What a map's cache does.")
      .def_ro("rows", &MapCacheStats::rows, "values that there is room for; 0: there is no cache")
      .def_ro("hits", &MapCacheStats::hits, "lookups that found their value here")
      .def_ro("misses", &MapCacheStats::misses, "and on the medium, since the map was opened")
      .def_ro("loads", &MapCacheStats::loads, "that are done")
      .def("__repr__", [](const MapCacheStats& stats) {
        return detail::concat("MapCacheStats(rows=", stats.rows, ", hits=", stats.hits,
                              ", misses=", stats.misses, ", loads=", stats.loads, ")");
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
      .def_ro("left_to_move", &MapStats::left_to_move,
              "buckets that migrate() has to empty yet; 0: the table does not grow")
      .def_ro("cache", &MapStats::cache)
      .def("__repr__", [](const MapStats& stats) {
        return detail::concat("MapStats(size=", stats.size, ", capacity=", stats.capacity,
                              ", value_bytes=", stats.value_bytes, ")");
      });

  nb::class_<MapVersion>(module, "MapVersion", "A moment of a map; holdfast.MapVersion wraps it.")
      .def(nb::init<std::uint64_t, std::uint64_t, std::uint64_t>(), "opening"_a, "number"_a,
           "seen"_a = 0)
      .def_ro("opening", &MapVersion::opening)
      .def_ro("number", &MapVersion::number)
      .def_ro("seen", &MapVersion::seen);

  nb::class_<MapChanges>(module, "MapChanges", "Counts; holdfast.MapChanges has the arrays.")
      .def(nb::init<MapVersion, MapVersion, std::uint64_t, std::uint64_t>(), "since"_a, "to"_a,
           "upserts"_a, "tombstones"_a)
      .def_ro("to", &MapChanges::to)
      .def_ro("upserts", &MapChanges::upserts)
      .def_ro("tombstones", &MapChanges::tombstones);

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
  const auto tell = [](auto&& function) {
    return [function](const Handle& handle, std::uint64_t number) {
      return handle->with(
          [&](AnyMap& any) { return any.with([&](auto& map) { return function(map, number); }); });
    };
  };
  nb::class_<MapHandle>(module, "Map", "A map's handle; holdfast.Map wraps it.")
      .def("accumulate", &accumulate, "element"_a, "keys"_a, "deltas"_a, "count"_a, "status"_a,
           "streams"_a)
      .def("update", &update, "operation"_a, "keys"_a, "values"_a, "out"_a, "count"_a, "status"_a,
           "streams"_a)
      .def("apply", &apply, "operations"_a, "keys"_a, "values"_a, "out"_a, "count"_a, "status"_a,
           "streams"_a)
      .def("insert_and_evict", &insert_and_evict, "keys"_a, "values"_a, "scores"_a, "count"_a,
           "evicted_keys"_a, "evicted_values"_a, "evicted_scores"_a, "status"_a, "streams"_a)
      .def("scores", &scores, "keys"_a, "scores"_a, "found"_a, "count"_a, "streams"_a)
      .def("find", &find, "keys"_a, "values"_a, "found"_a, "count"_a, "streams"_a)
      .def("export_batch", &export_batch, "first"_a, "slots"_a, "keys"_a, "values"_a, "streams"_a)
      .def("export_changes", &export_changes, "since"_a, "most"_a, "keys"_a, "values"_a, "erased"_a,
           "streams"_a)
      .def("apply_changes", &apply_changes, "changes"_a, "keys"_a, "values"_a, "erased"_a,
           "streams"_a)
      .def("follow", &follow, "version"_a)
      .def("version", ask([](auto& map) -> MapVersion { return map.version(); }))
      .def("followed", ask([](auto& map) -> MapVersion { return map.followed(); }))
      .def("set_order", &set_order, "order"_a)
      .def("reserve", tell([](auto& map, std::uint64_t slots) { map.reserve(slots); }),
           "capacity"_a)
      .def("grow", ask([](auto& map) { map.grow(); }))
      .def("migrate", tell([](auto& map, std::uint64_t n) -> bool { return map.migrate(n); }),
           "buckets"_a)
      .def("load_cache", ask([](auto& map) { map.load_cache(); }))
      .def("await_cache", ask([](auto& map) { map.await_cache(); }))
      .def("close", [](const Handle& handle) { handle->close(); })
      .def("verify", ask([](auto& map) -> std::string { return map.verify(); }))
      .def("stats", ask([](auto& map) -> MapStats { return map.stats(); }))
      .def("recovery", ask([](auto& map) -> MapRecovery { return map.recovery(); }))
      .def("timing", ask([](auto& map) -> MapTiming { return map.timing(); }));
  module.def("create_map", &create_map, "region"_a, "name"_a, "key_bytes"_a, "capacity"_a,
             "value_bytes"_a, "max_batch"_a, "value_places"_a, "changes"_a, "directory"_a,
             "scores"_a, "cache"_a);
  module.def("open_map", &open_map, "region"_a, "name"_a, "key_bytes"_a, "value_bytes"_a,
             "max_batch"_a, "directory"_a, "scores"_a, "cache"_a);
  module.def("remove_map", &remove_map, "region"_a, "name"_a);
  module.def("has_map", &has_map, "region"_a, "name"_a,
             "Whether there is a map of this name, whole or damaged, or another durable object.");
  module.def("map_recorded", &recorded, "region"_a, "name"_a,
             "What a map that is there was made with as `changes`.");
  module.def("map_region_bytes", &region_bytes, "key_bytes"_a, "capacity"_a, "value_bytes"_a,
             "max_batch"_a, "value_places"_a, "changes"_a,
             "Bytes that a region must have for such a map.");
}

}  // namespace holdfast::python
