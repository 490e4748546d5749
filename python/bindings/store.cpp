#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <cstring>
#include <tuple>

#include "bindings.hpp"
#include "held.hpp"
#include "holdfast/kv_store.hpp"
#include "index_form.hpp"

namespace holdfast::python {

KvStore::Index index_named(const std::string& name) {
  if (name == "automatic") return KvStore::Index::automatic;
  if (name == "whole") return KvStore::Index::whole;
  if (name == "fingerprints") return KvStore::Index::fingerprints;
  throw Error(Errc::invalid_argument,
              "index is '" + name + "': use automatic, whole or fingerprints");
}

namespace {

using namespace nb::literals;

using Input = nb::ndarray<const std::uint64_t, nb::ndim<1>, nb::c_contig>;
using Kinds = nb::ndarray<const std::uint8_t, nb::ndim<1>, nb::c_contig>;
template <class T>
using Output = nb::ndarray<nb::numpy, T, nb::ndim<1>, nb::c_contig>;

using StoreHandle = Held<KvStore>;
using Handle = std::shared_ptr<StoreHandle>;

Handle adopt(const std::shared_ptr<RegionHandle>& region, KvStore store) {
  return hold(region, std::move(store), "the store");
}

KvStore::Cache cache_named(const std::string& name) {
  if (name == "automatic") return KvStore::Cache::automatic;
  if (name == "on") return KvStore::Cache::on;
  if (name == "off") return KvStore::Cache::off;
  throw Error(Errc::invalid_argument, "cache is '" + name + "': use automatic, on or off");
}

KvStore::Layout layout_named(const std::string& name) {
  if (name == "in_place") return KvStore::Layout::in_place;
  if (name == "log") return KvStore::Layout::log;
  throw Error(Errc::invalid_argument, "layout is '" + name + "': use in_place or log");
}

const char* name_of(KvStore::Index index) {
  switch (index) {
    case KvStore::Index::automatic:
      break;
    case KvStore::Index::whole:
      return "whole";
    case KvStore::Index::fingerprints:
      return "fingerprints";
  }
  return "none";
}

KvStore::Options options_of(std::uint64_t capacity, std::uint32_t max_batch,
                            const std::string& cache, const std::string& layout,
                            std::uint64_t log_records, const std::string& index = "automatic") {
  KvStore::Options options{capacity, max_batch, cache_named(cache)};
  options.index = index_named(index);
  options.layout = layout_named(layout);
  options.log_records = log_records;
  return options;
}

Handle create_store(const std::shared_ptr<RegionHandle>& region, std::uint64_t capacity,
                    std::uint32_t max_batch, const std::string& cache, const std::string& layout,
                    std::uint64_t log_records, const std::string& index) {
  const KvStore::Options options =
      options_of(capacity, max_batch, cache, layout, log_records, index);
  return adopt(region, region->with([&](Region& open) { return KvStore::create(open, options); }));
}

Handle open_store(const std::shared_ptr<RegionHandle>& region, const std::string& cache,
                  const std::string& index) {
  return adopt(region, region->with([&](Region& open) {
    return KvStore::open(open, cache_named(cache), index_named(index));
  }));
}

template <class Array>
void check_place(const Array& array, const char* what) {
  const bool on_host = array.device_type() == nb::device::cpu::value;
  if (!on_host && std::string(backend::name()) != "cuda") {
    throw Error(Errc::unsupported, std::string(what) +
                                       " is in device memory and the backend is cpu: copy it to "
                                       "the host, or set HOLDFAST_BACKEND=cuda");
  }
}

// A NumPy array that owns `count` elements.
template <class T>
std::pair<T*, Output<T>> new_array(std::size_t count) {
  auto memory = std::make_unique<T[]>(count);
  T* const data = memory.get();
  nb::capsule owner(memory.release(),
                    [](void* pointer) noexcept { delete[] static_cast<T*>(pointer); });
  return {data, Output<T>(data, {count}, owner)};
}

KvStore::BatchResult set(const Handle& handle, const Input& keys, const Input& values) {
  check_place(keys, "keys");
  check_place(values, "values");
  if (keys.size() != values.size()) {
    throw Error(Errc::invalid_argument,
                detail::concat("there are ", keys.size(), " keys and ", values.size(), " values"));
  }
  return handle->with(
      [&](KvStore& store) { return store.set(keys.data(), values.data(), keys.size()); });
}

std::tuple<Output<std::uint64_t>, Output<bool>> get(const Handle& handle, const Input& keys) {
  check_place(keys, "keys");
  auto [values, values_array] = new_array<std::uint64_t>(keys.size());
  auto [found, found_array] = new_array<bool>(keys.size());
  static_assert(sizeof(bool) == 1);
  handle->with([&](KvStore& store) {
    store.get(keys.data(), values, reinterpret_cast<std::uint8_t*>(found), keys.size());
  });
  return {std::move(values_array), std::move(found_array)};
}

KvStore::BatchResult erase(const Handle& handle, const Input& keys) {
  check_place(keys, "keys");
  return handle->with([&](KvStore& store) { return store.erase(keys.data(), keys.size()); });
}

KvStore::BatchResult apply(const Handle& handle, const Kinds& operations, const Input& keys,
                           const Input& values) {
  check_place(operations, "operations");
  check_place(keys, "keys");
  check_place(values, "values");
  if (keys.size() != values.size() || keys.size() != operations.size()) {
    throw Error(Errc::invalid_argument,
                detail::concat("there are ", operations.size(), " operations, ", keys.size(),
                               " keys and ", values.size(), " values"));
  }
  return handle->with([&](KvStore& store) {
    return store.apply(reinterpret_cast<const KvStore::Op*>(operations.data()), keys.data(),
                       values.data(), keys.size());
  });
}

std::tuple<Output<std::uint64_t>, Output<std::uint64_t>> scan(const Handle& handle) {
  const std::uint64_t count =
      handle->with([](KvStore& store) { return store.scan(nullptr, nullptr, 0); });
  auto [keys, keys_array] = new_array<std::uint64_t>(count);
  auto [values, values_array] = new_array<std::uint64_t>(count);
  if (count > 0) {
    handle->with([&](KvStore& store) { store.scan(keys, values, count); });
  }
  return {std::move(keys_array), std::move(values_array)};
}

void set_order(const Handle& handle, const std::string& name) {
  KvStore::Order order = KvStore::Order::automatic;
  if (name == "ordered") {
    order = KvStore::Order::ordered;
  } else if (name == "unordered") {
    order = KvStore::Order::unordered;
  } else if (name != "automatic") {
    throw Error(Errc::invalid_argument,
                "order is '" + name + "': use automatic, ordered or unordered");
  }
  handle->with([&](KvStore& store) { store.set_order(order); });
}

void bind_records(nb::module_& module) {
  nb::class_<KvStore::BatchResult>(module, "BatchResult", "What a batch did.")
      .def_ro("inserted", &KvStore::BatchResult::inserted, "keys that were not in the store")
      .def_ro("updated", &KvStore::BatchResult::updated, "keys that were")
      .def_ro("evicted", &KvStore::BatchResult::evicted, "keys that lost their place")
      .def_ro("removed", &KvStore::BatchResult::removed, "keys that were erased")
      .def("__repr__", [](const KvStore::BatchResult& result) {
        return detail::concat("BatchResult(inserted=", result.inserted,
                              ", updated=", result.updated, ", evicted=", result.evicted,
                              ", removed=", result.removed, ")");
      });

  nb::class_<KvStore::Stats>(module, "StoreStats", "What a store holds and has done.")
      .def_ro("records", &KvStore::Stats::records)
      .def_ro("capacity", &KvStore::Stats::capacity)
      .def_ro("max_batch", &KvStore::Stats::max_batch)
      .def_ro("batches", &KvStore::Stats::batches)
      .def_ro("cached", &KvStore::Stats::cached,
              "lookups read device memory alone: a copy of the table, or an index")
      .def_ro("total", &KvStore::Stats::total)
      .def_prop_ro(
          "layout",
          [](const KvStore::Stats& stats) {
            return stats.layout == KvStore::Layout::log ? "log" : "in_place";
          },
          "in_place or log; what follows is of the layout log, and else 0")
      .def_prop_ro(
          "index", [](const KvStore::Stats& stats) { return name_of(stats.index); },
          "whole or fingerprints; none: of the layout in_place")
      .def_ro("log_records", &KvStore::Stats::log_records, "that the log takes")
      .def_ro("live_records", &KvStore::Stats::live_records,
              "pairs, and tombstones that are still needed")
      .def_ro("tombstones", &KvStore::Stats::tombstones, "of them")
      .def_ro("segment_records", &KvStore::Stats::segment_records)
      .def_ro("segments", &KvStore::Stats::segments)
      .def_ro("free_segments", &KvStore::Stats::free_segments)
      .def_ro("snapshots", &KvStore::Stats::snapshots,
              "segments that have a snapshot, by which the store is opened")
      .def_ro("snapshot_age", &KvStore::Stats::snapshot_age,
              "runs that were committed since the oldest of them was taken")
      .def_ro("snapshots_used", &KvStore::Stats::snapshots_used, "when it was opened")
      .def_ro("snapshots_refused", &KvStore::Stats::snapshots_refused,
              "they were not as the log, which was read without any")
      .def_ro("batch_records", &KvStore::Stats::batch_records,
              "operations of the batches since it was opened")
      .def_ro("copied_records", &KvStore::Stats::copied_records, "by cleaning, since then")
      .def_ro("bytes_stored", &KvStore::Stats::bytes_stored, "to the medium, since then")
      .def_ro("snapshot_bytes", &KvStore::Stats::snapshot_bytes, "of them, for snapshots")
      .def_prop_ro("write_amplification", &KvStore::Stats::write_amplification,
                   "bytes stored for a byte of batches since it was opened")
      .def_prop_ro("space_amplification", &KvStore::Stats::space_amplification,
                   "records in segments that are not free for one that is live")
      .def("__repr__", [](const KvStore::Stats& stats) {
        return detail::concat("StoreStats(records=", stats.records, ", capacity=", stats.capacity,
                              ", batches=", stats.batches, ")");
      });

  nb::class_<Recovery>(module, "RecoveryReport", "What opening a store undid.")
      .def_ro("needed", &Recovery::needed, "a batch was cut off")
      .def_ro("undone", &Recovery::undone, "log entries that were undone")
      .def_ro("milliseconds", &Recovery::milliseconds);

  nb::class_<KvStore::Timing>(module, "BatchTiming", "Milliseconds of the last batch's parts.")
      .def_ro("copy", &KvStore::Timing::copy)
      .def_ro("order", &KvStore::Timing::order)
      .def_ro("update", &KvStore::Timing::update)
      .def_ro("commit", &KvStore::Timing::commit);
}

}  // namespace

void bind_store(nb::module_& module) {
  bind_records(module);
  nb::class_<StoreHandle>(module, "Store", "A store's handle; holdfast.KeyValueStore wraps it.")
      .def("set", &set, "keys"_a, "values"_a)
      .def("get", &get, "keys"_a)
      .def("erase", &erase, "keys"_a)
      .def("apply", &apply, "operations"_a, "keys"_a, "values"_a)
      .def("scan", &scan)
      .def("set_order", &set_order, "order"_a)
      .def(
          "reserve",
          [](const Handle& handle, std::uint64_t capacity, std::uint64_t log_records) {
            handle->with([&](KvStore& store) { store.reserve(capacity, log_records); });
          },
          "capacity"_a, "log_records"_a)
      .def("verify",
           [](const Handle& handle) {
             return handle->with([](KvStore& store) { return store.verify(); });
           })
      .def("stats",
           [](const Handle& handle) {
             return handle->with([](KvStore& store) { return store.stats(); });
           })
      .def("recovery",
           [](const Handle& handle) {
             return handle->with([](KvStore& store) { return store.recovery(); });
           })
      .def("timing", [](const Handle& handle) {
        return handle->with([](KvStore& store) { return store.timing(); });
      });
  module.def("create_store", &create_store, "region"_a, "capacity"_a, "max_batch"_a, "cache"_a,
             "layout"_a, "log_records"_a, "index"_a);
  module.def(
      "remove_store",
      [](const std::shared_ptr<RegionHandle>& region) {
        region->with([](Region& open) { KvStore::remove(open); });
      },
      "region"_a);
  module.def("open_store", &open_store, "region"_a, "cache"_a, "index"_a);
  module.def(
      "store_region_bytes",
      [](std::uint64_t capacity, std::uint32_t max_batch, const std::string& layout,
         std::uint64_t log_records) {
        return KvStore::region_bytes(
            options_of(capacity, max_batch, "automatic", layout, log_records));
      },
      "capacity"_a, "max_batch"_a, "layout"_a, "log_records"_a,
      "Bytes that a region must have for such a store.");
}

}  // namespace holdfast::python
