#include "holdfast/region.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "holdfast/backup.hpp"
#include "holdfast/testing/medium_model.hpp"

namespace holdfast::python {
namespace {

using namespace nb::literals;

template <class T>
using Bytes = nb::ndarray<nb::numpy, T, nb::ndim<1>, nb::c_contig>;

Domain parse_domain(const std::string& name) {
  for (const Domain domain : {Domain::file, Domain::device, Domain::emulated, Domain::dax}) {
    if (name == to_string(domain)) return domain;
  }
  throw Error(Errc::invalid_argument,
              "no domain is called '" + name + "': use file, device, emulated or dax");
}

Tracking parse_tracking(const std::string& name) {
  for (const Tracking tracking : {Tracking::hashed, Tracking::marked, Tracking::none}) {
    if (name == to_string(tracking)) return tracking;
  }
  throw Error(Errc::invalid_argument, "tracking is '" + name + "': use hashed, marked or none");
}

// A commit on its way to the disk, and the region that it belongs to.
struct PendingCommit {
  std::shared_ptr<RegionHandle> handle;
  std::shared_ptr<StartedCommit> started;
};

CommitStats wait(PendingCommit& pending) {
  nb::gil_scoped_release no_gil;
  try {
    return pending.started->commit.wait();
  } catch (const Error&) {
    pending.started->told = true;
    throw;
  }
}

std::shared_ptr<RegionHandle> create_region(const std::string& path, std::uint64_t size,
                                            const std::string& domain, std::uint64_t max_size,
                                            const std::string& arena_folder,
                                            const std::string& medium) {
  RegionOptions options;
  options.domain = parse_domain(domain);
  options.size = size;
  options.max_size = max_size;
  options.arena_folder = arena_folder;
  options.medium = testing::standing_for(medium);
  nb::gil_scoped_release no_gil;
  return std::make_shared<RegionHandle>(path, Region::create(path, options));
}

std::shared_ptr<RegionHandle> open_region(const std::string& path, const std::string& arena_folder,
                                          std::uint64_t max_size, bool read_only,
                                          bool last_commit) {
  OpenOptions options;
  options.arena_folder = arena_folder;
  options.max_size = max_size;
  options.last_commit = last_commit;
  if (read_only) options.mode = OpenMode::read_only;
  nb::gil_scoped_release no_gil;
  return std::make_shared<RegionHandle>(path, Region::open(path, options));
}

std::shared_ptr<RegionHandle> open_or_create_region(const std::string& path, std::uint64_t size,
                                                    const std::string& domain,
                                                    std::uint64_t max_size,
                                                    const std::string& arena_folder) {
  RegionOptions options;
  options.domain = parse_domain(domain);
  options.size = size;
  options.max_size = max_size;
  options.arena_folder = arena_folder;
  nb::gil_scoped_release no_gil;
  return std::make_shared<RegionHandle>(path, Region::open_or_create(path, options));
}

BackupReport backup_region(const std::string& from, const std::string& to,
                           const std::string& arena_folder, bool last_commit) {
  OpenOptions options;
  options.arena_folder = arena_folder;
  options.last_commit = last_commit;
  nb::gil_scoped_release no_gil;
  return backup(from, to, options);
}

void destroy_region(const std::string& path, const std::string& arena_folder) {
  nb::gil_scoped_release no_gil;
  Region::destroy(path, {arena_folder, 0});
}

// What an array over object `name` must own.
nb::capsule export_owner(const std::shared_ptr<RegionHandle>& handle, const std::string& name) {
  return nb::capsule(new Export(handle, name),
                     [](void* pointer) noexcept { delete static_cast<Export*>(pointer); });
}

// Of a region that is open for reading the array is read-only: what is stored there would be gone
// with it, and no one would be told.
nb::object export_bytes(const std::shared_ptr<RegionHandle>& handle, const std::string& name) {
  const auto [address, bytes] = handle->locate(name);
  const nb::capsule owner = export_owner(handle, name);
  if (handle->read_only()) return nb::cast(Bytes<const std::uint8_t>(address, {bytes}, owner));
  return nb::cast(Bytes<std::uint8_t>(address, {bytes}, owner));
}

void remove_object(const std::shared_ptr<RegionHandle>& handle, const std::string& name) {
  handle->with([](Region& region) { region.check_writable("remove()"); });
  if (handle->exported().contains(name)) {
    throw nb::buffer_error(("object '" + name + "' of region " + handle->path() +
                            " has arrays that are still in use: delete them (del array) first")
                               .c_str());
  }
  handle->with([&](Region& region) { region.remove(name); });
}

// The address of a host array as kernels see it; the array must lie in the region.
void check_inside(const std::shared_ptr<RegionHandle>& handle, std::uintptr_t address,
                  std::size_t bytes) {
  handle->with([&](Region& region) {
    const auto base = reinterpret_cast<std::uintptr_t>(region.base());
    const auto end = base + region.size();
    if (address < base || address > end || bytes > end - address) {
      throw Error(Errc::invalid_argument, "the array does not lie in region " + handle->path() +
                                              ": it is a copy, or another region's");
    }
  });
}

void mark(const std::shared_ptr<RegionHandle>& handle, std::uintptr_t address, std::size_t bytes) {
  check_inside(handle, address, bytes);
  handle->with([&](Region& region) { region.mark(reinterpret_cast<const void*>(address), bytes); });
}

void bind_records(nb::module_& module) {
  nb::class_<ObjectInfo>(module, "ObjectInfo", "A named object of a region.")
      .def_ro("name", &ObjectInfo::name)
      .def_ro("type", &ObjectInfo::type, "the element type's name on the medium, such as 'f32'")
      .def_ro("offset", &ObjectInfo::offset, "bytes from the region's start")
      .def_ro("count", &ObjectInfo::count, "elements")
      .def_ro("element_bytes", &ObjectInfo::element_bytes)
      .def_prop_ro("nbytes", &ObjectInfo::bytes)
      .def_prop_ro("tracking",
                   [](const ObjectInfo& info) { return std::string(to_string(info.tracking)); })
      .def("__repr__", [](const ObjectInfo& info) {
        return detail::concat("ObjectInfo(", info.name, ": ", info.count, " x ", info.type, ")");
      });

  nb::class_<Guarantee>(module, "Guarantee", "What a crash may take away, and why.")
      .def_prop_ro(
          "persist",
          [](const Guarantee& guarantee) { return std::string(to_string(guarantee.persist)); },
          "what is survived once persist() returned in a kernel: none, process or power")
      .def_prop_ro(
          "commit",
          [](const Guarantee& guarantee) { return std::string(to_string(guarantee.commit)); },
          "what is survived once commit() returned: none, process or power")
      .def_ro("reason", &Guarantee::reason)
      .def("__repr__", [](const Guarantee& guarantee) {
        return detail::concat("Guarantee(persist=", to_string(guarantee.persist),
                              ", commit=", to_string(guarantee.commit), ")");
      });

  nb::class_<OpenReport>(module, "OpenReport", "What opening a region cost.")
      .def_ro("arena_found", &OpenReport::arena_found, "a crashed process's memory was adopted")
      .def_ro("arena_set_aside", &OpenReport::arena_set_aside,
              "where last_commit put an arena; remove it when it is not needed")
      .def_ro("check_ms", &OpenReport::check_ms)
      .def_ro("load_ms", &OpenReport::load_ms)
      .def_ro("pin_ms", &OpenReport::pin_ms);

  nb::class_<CommitStats>(module, "CommitStats", "What a commit did.")
      .def_ro("generation", &CommitStats::generation)
      .def_ro("pages_examined", &CommitStats::pages_examined)
      .def_ro("pages_written", &CommitStats::pages_written)
      .def_ro("pages_moved", &CommitStats::pages_moved)
      .def_ro("bytes_written", &CommitStats::bytes_written)
      .def_ro("snapshot_ms", &CommitStats::snapshot_ms)
      .def_ro("write_ms", &CommitStats::write_ms)
      .def("__repr__", [](const CommitStats& stats) {
        return detail::concat("CommitStats(generation=", stats.generation,
                              ", pages_written=", stats.pages_written,
                              ", bytes_written=", stats.bytes_written, ")");
      });

  nb::class_<BackupReport>(module, "BackupReport", "What a backup holds.")
      .def_ro("uuid", &BackupReport::uuid, "the copy's own")
      .def_ro("arena_found", &BackupReport::arena_found,
              "it holds what a crashed process had persisted")
      .def_ro("generation", &BackupReport::generation,
              "of the commit that was copied; 0 for an arena without its file")
      .def_ro("region_bytes", &BackupReport::region_bytes)
      .def_ro("pages_written", &BackupReport::pages_written)
      .def("__repr__", [](const BackupReport& report) {
        return detail::concat("BackupReport(uuid=", report.uuid, ", generation=", report.generation,
                              ", arena_found=", report.arena_found ? "True" : "False", ")");
      });

  nb::class_<PendingCommit>(module, "Commit", "A commit on its way to the disk.")
      .def_prop_ro("done",
                   [](const PendingCommit& pending) { return pending.started->commit.done(); })
      .def("wait", &wait, "Waits until the commit is durable. Raises what stopped it.");
}

// A property that asks the region, and so raises once it is closed.
template <class Function>
auto ask(Function function) {
  return [function](const std::shared_ptr<RegionHandle>& handle) { return handle->with(function); };
}

}  // namespace

void bind_region(nb::module_& module) {
  bind_records(module);
  using Handle = std::shared_ptr<RegionHandle>;

  nb::class_<RegionHandle> region(module, "Region", nb::is_weak_referenceable(),
                                  "A region's handle; holdfast.Region wraps it.");
  region.def("close", &RegionHandle::close)
      .def("detach", &RegionHandle::detach, "abandon"_a)
      .def("close_at_exit", &RegionHandle::close_at_exit, "abandon"_a)
      .def("leave_to_parent", &RegionHandle::leave_to_parent)
      .def("exported", &RegionHandle::exported)
      .def_prop_ro("is_open", &RegionHandle::is_open)
      .def_prop_ro("path", [](const RegionHandle& handle) { return handle.path(); })
      .def_prop_ro("read_only", &RegionHandle::read_only)
      .def_prop_ro("uuid", ask([](Region& region) { return region.uuid(); }))
      .def_prop_ro("domain",
                   ask([](Region& region) { return std::string(to_string(region.domain())); }))
      .def_prop_ro("size", ask([](Region& region) { return region.size(); }))
      .def_prop_ro("max_size", ask([](Region& region) { return region.max_size(); }))
      .def_prop_ro("used", ask([](Region& region) { return region.used(); }))
      .def_prop_ro("generation", ask([](Region& region) { return region.generation(); }))
      .def_prop_ro("open_report", ask([](Region& region) { return region.open_report(); }))
      .def("guarantee", ask([](Region& region) { return region.guarantee(); }))
      .def("objects", ask([](Region& region) { return region.objects(); }))
      .def(
          "contains",
          [](const Handle& handle, const std::string& name) {
            return handle->with([&](Region& region) { return region.contains(name); });
          },
          "name"_a)
      .def(
          "info",
          [](const Handle& handle, const std::string& name) {
            return handle->with([&](Region& region) { return region.object(name); });
          },
          "name"_a)
      .def(
          "allocate",
          [](const Handle& handle, const std::string& name, const std::string& type,
             std::uint32_t element_bytes, std::uint64_t count, const std::string& tracking) {
            handle->with([&](Region& region) {
              region.allocate_raw(name, type, element_bytes, count, parse_tracking(tracking));
            });
          },
          "name"_a, "type"_a, "element_bytes"_a, "count"_a, "tracking"_a)
      .def("bytes", &export_bytes, "name"_a,
           nb::sig("def bytes(self, name: str) -> numpy.typing.NDArray[numpy.uint8]"))
      .def("remove", &remove_object, "name"_a)
      .def(
          "grow",
          [](const Handle& handle, std::uint64_t new_size) {
            handle->with([&](Region& region) { region.grow(new_size); });
          },
          "new_size"_a)
      .def("mark", &mark, "address"_a, "nbytes"_a)
      .def("settle", &RegionHandle::settle)
      .def("commit", &RegionHandle::commit)
      .def("commit_async", [](const Handle& handle) {
        return PendingCommit{handle, handle->commit_async()};
      });

  bind_device_view(module, region);

  module.def("create", &create_region, "path"_a, "size"_a, "domain"_a, "max_size"_a,
             "arena_folder"_a, "medium"_a);
  module.def("open", &open_region, "path"_a, "arena_folder"_a, "max_size"_a, "read_only"_a,
             "last_commit"_a);
  module.def("open_or_create", &open_or_create_region, "path"_a, "size"_a, "domain"_a, "max_size"_a,
             "arena_folder"_a);
  module.def("backup", &backup_region, "source"_a, "target"_a, "arena_folder"_a, "last_commit"_a);
  module.def("destroy", &destroy_region, "path"_a, "arena_folder"_a);
}

}  // namespace holdfast::python
