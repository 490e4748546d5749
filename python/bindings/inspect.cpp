#include "holdfast/inspect.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"

namespace holdfast::python {

using namespace nb::literals;

void bind_inspect(nb::module_& module) {
  nb::class_<ArenaInfo>(module, "ArenaInfo", "The shared memory that belongs to a region's file.")
      .def_ro("path", &ArenaInfo::path, "where it is, or would be")
      .def_ro("exists", &ArenaInfo::exists)
      .def_ro("valid", &ArenaInfo::valid)
      .def_ro("this_boot", &ArenaInfo::this_boot, "left by a crash since the last boot")
      .def_ro("bytes", &ArenaInfo::bytes)
      .def_ro("problem", &ArenaInfo::problem, "why it is not valid");

  nb::class_<ImageInfo>(module, "ImageInfo", "What a region's file holds.")
      .def_ro("path", &ImageInfo::path)
      .def_ro("version", &ImageInfo::version)
      .def_ro("in_use", &ImageInfo::in_use, "a process has the region open")
      .def_ro("uuid", &ImageInfo::uuid)
      .def_ro("created_unix_ns", &ImageInfo::created_unix_ns)
      .def_ro("generation", &ImageInfo::generation)
      .def_ro("committed_unix_ns", &ImageInfo::committed_unix_ns)
      .def_ro("region_bytes", &ImageInfo::region_bytes)
      .def_ro("file_bytes", &ImageInfo::file_bytes)
      .def_ro("allocated_bytes", &ImageInfo::allocated_bytes)
      .def_ro("pages_stored", &ImageInfo::pages_stored, "pages that are not all zero")
      .def_ro("objects", &ImageInfo::objects, "of the last commit")
      .def_ro("arena", &ImageInfo::arena);

  module.def(
      "inspect_image",
      [](const std::string& path, bool everything, const std::string& arena_folder) {
        nb::gil_scoped_release no_gil;
        return inspect_image(path, everything ? Verify::everything : Verify::tables, arena_folder);
      },
      "path"_a, "everything"_a, "arena_folder"_a);
}

}  // namespace holdfast::python
