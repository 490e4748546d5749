#include "holdfast/platform.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"

namespace holdfast::python {

using namespace nb::literals;

void bind_platform(nb::module_& module) {
  nb::class_<DaxDevice>(module, "DaxDevice", "A persistent-memory device or mount.")
      .def_ro("path", &DaxDevice::path)
      .def_ro("kind", &DaxDevice::kind)
      .def_ro("size", &DaxDevice::size)
      .def_ro("persistence_domain", &DaxDevice::persistence_domain);

  nb::class_<Ddio>(module, "Ddio", "Where the writes of a PCI device are placed.")
      .def_ro("root_port", &Ddio::root_port)
      .def_ro("enabled", &Ddio::enabled);

  nb::class_<Platform>(module, "Platform", "What this machine can promise.")
      .def(nb::init<std::string>(), "root"_a = "")
      .def("dax_devices", &Platform::dax_devices)
      .def("root_port", &Platform::root_port, "pci_address"_a)
      .def("ddio", &Platform::ddio, "pci_address"_a)
      .def("processor_vendor", &Platform::processor_vendor)
      .def("memory_lock_limit", &Platform::memory_lock_limit)
      .def("folder_bytes_free", &Platform::folder_bytes_free, "folder"_a)
      .def("folder_bytes_total", &Platform::folder_bytes_total, "folder"_a);

  module.def(
      "locks_hold",
      [](const std::string& folder) {
        nb::gil_scoped_release no_gil;
        return locks_hold(folder);
      },
      "folder"_a, "Whether a lock of a file there keeps a second descriptor out.");
  module.def("backend_name", [] { return std::string(backend::name()); });
  module.def("device_name", &backend::device_name);
  module.def("device_pci_address", &backend::device_pci_address);
  module.def("device_number", &backend::device_number, "CUDA's number of this thread's device.");
  module.def("set_device", &backend::set_device, "number"_a, "Makes it this thread's device.");
  module.def("free_device_memory", &backend::free_device_memory);
  module.def(
      "usable",
      [] {
        std::string why;
        const bool usable = backend::usable(&why);
        return std::pair<bool, std::string>(usable, why);
      },
      "Whether a kernel can be launched here, and what is missing if not.");
}

}  // namespace holdfast::python
