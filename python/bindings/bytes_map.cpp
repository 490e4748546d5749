#include "holdfast/bytes_map.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <memory>
#include <tuple>
#include <utility>

#include "bindings.hpp"
#include "held.hpp"

namespace holdfast::python {
namespace {

using namespace nb::literals;

template <class T>
using Input = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Output = nb::ndarray<nb::numpy, T, nb::ndim<1>, nb::c_contig>;
using Bytes = Input<std::uint8_t>;
using Offsets = Input<std::uint64_t>;
// Byte strings: bytes and offsets.
using Strings = std::tuple<Output<std::uint8_t>, Output<std::uint64_t>>;

using BytesMapHandle = Held<BytesMap>;
using Handle = std::shared_ptr<BytesMapHandle>;

std::string named(const std::string& name) { return "bytes map '" + name + "'"; }

Handle create(const std::shared_ptr<RegionHandle>& region, const std::string& name,
              std::uint64_t capacity, std::uint64_t record_bytes, std::uint32_t max_batch) {
  BytesMap map = region->with([&](Region& open) {
    return BytesMap::create(open, name, {capacity, record_bytes, max_batch});
  });
  return hold(region, std::move(map), named(name));
}

Handle open(const std::shared_ptr<RegionHandle>& region, const std::string& name,
            std::uint32_t max_batch) {
  BytesMap map = region->with([&](Region& open) { return BytesMap::open(open, name, max_batch); });
  return hold(region, std::move(map), named(name));
}

// The map checks that offsets rise.
ByteStrings strings(const Bytes& bytes, const Offsets& offsets) {
  if (offsets.size() == 0) {
    throw Error(Errc::invalid_argument, "there are no offsets: give one more than strings");
  }
  const std::size_t count = offsets.size() - 1;
  if (offsets.data()[count] > bytes.size()) {
    throw Error(Errc::invalid_argument,
                detail::concat("the last offset is ", offsets.data()[count], ", behind the ",
                               bytes.size(), " bytes that there are"));
  }
  return {reinterpret_cast<const std::byte*>(bytes.data()), offsets.data(), count};
}

// A NumPy array that owns what a vector had.
template <class T, class From>
Output<T> array_of(std::vector<From> from) {
  static_assert(sizeof(T) == sizeof(From));
  auto* const kept = new std::vector<From>(std::move(from));
  nb::capsule owner(kept,
                    [](void* vector) noexcept { delete static_cast<std::vector<From>*>(vector); });
  return Output<T>(reinterpret_cast<T*>(kept->data()), {kept->size()}, owner);
}

Strings strings_of(ByteStringVector made) {
  return {array_of<std::uint8_t>(std::move(made.bytes)),
          array_of<std::uint64_t>(std::move(made.offsets))};
}

std::tuple<BytesMapResult, Output<std::uint8_t>> update(
    const Handle& handle, const std::string& operation, const Bytes& key_bytes,
    const Offsets& key_offsets, const Bytes& value_bytes, const Offsets& value_offsets) {
  const ByteStrings keys = strings(key_bytes, key_offsets);
  const ByteStrings values = strings(value_bytes, value_offsets);
  std::vector<MapStatus> status(keys.count);
  const BytesMapResult result = handle->with([&](BytesMap& map) {
    if (operation == "insert") return map.insert(keys, values, status.data());
    if (operation == "erase") return map.erase(keys, status.data());
    return map.insert_or_assign(keys, values, status.data());
  });
  return {result, array_of<std::uint8_t>(std::move(status))};
}

std::tuple<Strings, Output<std::uint8_t>> find(const Handle& handle, const Bytes& bytes,
                                               const Offsets& offsets) {
  const ByteStrings keys = strings(bytes, offsets);
  std::vector<BytesFound> found;
  ByteStringVector values = handle->with([&](BytesMap& map) { return map.find(keys, found); });
  return {strings_of(std::move(values)), array_of<std::uint8_t>(std::move(found))};
}

Output<std::uint8_t> contains(const Handle& handle, const Bytes& bytes, const Offsets& offsets) {
  const ByteStrings keys = strings(bytes, offsets);
  std::vector<BytesFound> found(keys.count);
  handle->with([&](BytesMap& map) { map.contains(keys, found.data()); });
  return array_of<std::uint8_t>(std::move(found));
}

std::tuple<Strings, Strings, std::uint64_t> export_batch(const Handle& handle, std::uint64_t first,
                                                         std::uint64_t slots) {
  ByteStringVector keys, values;
  const std::uint64_t damaged =
      handle->with([&](BytesMap& map) { return map.export_batch(first, slots, keys, values); });
  return {strings_of(std::move(keys)), strings_of(std::move(values)), damaged};
}

void bind_records(nb::module_& module) {
  nb::class_<BytesMapResult>(module, "BytesMapResult",
                             "How many operations of a batch had which MapStatus.")
      .def_ro("inserted", &BytesMapResult::inserted)
      .def_ro("assigned", &BytesMapResult::assigned)
      .def_ro("kept", &BytesMapResult::kept)
      .def_ro("erased", &BytesMapResult::erased)
      .def_ro("absent", &BytesMapResult::absent)
      .def_ro("superseded", &BytesMapResult::superseded)
      .def_ro("full", &BytesMapResult::full)
      .def_ro("no_value", &BytesMapResult::no_value)
      .def_ro("refused", &BytesMapResult::refused)
      .def_prop_ro("not_done", &BytesMapResult::not_done, "full, no_value and refused together")
      .def("__repr__", [](const BytesMapResult& result) {
        return detail::concat("BytesMapResult(inserted=", result.inserted,
                              ", assigned=", result.assigned, ", kept=", result.kept,
                              ", erased=", result.erased, ", absent=", result.absent,
                              ", superseded=", result.superseded, ", full=", result.full,
                              ", no_value=", result.no_value, ", refused=", result.refused, ")");
      });
  nb::class_<BytesMapStats>(module, "BytesMapStats", "What a bytes map holds.")
      .def_ro("size", &BytesMapStats::size, "pairs")
      .def_ro("capacity", &BytesMapStats::capacity, "slots of the index")
      .def_ro("record_bytes", &BytesMapStats::record_bytes,
              "that there are for records, in all of its objects")
      .def_ro("free_bytes", &BytesMapStats::free_bytes, "of these")
      .def_ro("largest_free", &BytesMapStats::largest_free,
              "bytes that are free side by side: no larger record fits")
      .def_ro("free_extents", &BytesMapStats::free_extents, "pieces that the free bytes are in")
      .def_ro("max_batch", &BytesMapStats::max_batch)
      .def("__repr__", [](const BytesMapStats& stats) {
        return detail::concat("BytesMapStats(size=", stats.size, ", capacity=", stats.capacity,
                              ", record_bytes=", stats.record_bytes,
                              ", free_bytes=", stats.free_bytes, ")");
      });
}

}  // namespace

void bind_bytes_map(nb::module_& module) {
  bind_records(module);
  nb::class_<BytesMapHandle>(module, "BytesMap", "A handle; holdfast.BytesMap wraps it.")
      .def("update", &update, "operation"_a, "key_bytes"_a, "key_offsets"_a, "value_bytes"_a,
           "value_offsets"_a)
      .def("find", &find, "bytes"_a, "offsets"_a)
      .def("contains", &contains, "bytes"_a, "offsets"_a)
      .def("export_batch", &export_batch, "first"_a, "slots"_a)
      .def(
          "reserve",
          [](const Handle& handle, std::uint64_t capacity, std::uint64_t record_bytes) {
            handle->with([&](BytesMap& map) { map.reserve({capacity, record_bytes}); });
          },
          "capacity"_a, "record_bytes"_a)
      .def("close", [](const Handle& handle) { handle->close(); })
      .def("verify",
           [](const Handle& handle) {
             return handle->with([](BytesMap& map) { return map.verify(); });
           })
      .def("stats",
           [](const Handle& handle) {
             return handle->with([](BytesMap& map) { return map.stats(); });
           })
      .def("recovery", [](const Handle& handle) {
        return handle->with([](BytesMap& map) -> MapRecovery { return map.recovery(); });
      });
  module.def("create_bytes_map", &create, "region"_a, "name"_a, "capacity"_a, "record_bytes"_a,
             "max_batch"_a);
  module.def(
      "remove_bytes_map",
      [](const std::shared_ptr<RegionHandle>& region, const std::string& name) {
        region->with([&](Region& open) { BytesMap::remove(open, name); });
      },
      "region"_a, "name"_a);
  module.def("open_bytes_map", &open, "region"_a, "name"_a, "max_batch"_a);
  module.def(
      "bytes_map_region_bytes",
      [](std::uint64_t capacity, std::uint64_t record_bytes, std::uint32_t max_batch) {
        return BytesMap::region_bytes({capacity, record_bytes, max_batch});
      },
      "capacity"_a, "record_bytes"_a, "max_batch"_a,
      "Bytes that a region must have for such a map.");
  module.def("record_bytes_of", &BytesMap::record_bytes_of, "key_bytes"_a, "value_bytes"_a);
}

}  // namespace holdfast::python
