// The Python module of one backend: holdfast._cpu or holdfast._cuda.
#include "bindings.hpp"
#include "holdfast/error.hpp"

namespace holdfast::python {
namespace {

// Error becomes holdfast.Error(message), with the code's name in `.code`. Both modules raise the
// same Python class.
void translate(const std::exception_ptr& pointer, void* /*payload*/) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    const nb::object type = nb::module_::import_("holdfast._errors").attr("Error");
    const nb::object instance = type(error.what(), to_string(error.code()));
    PyErr_SetObject(type.ptr(), instance.ptr());
  }
}

}  // namespace
}  // namespace holdfast::python

NB_MODULE(HOLDFAST_PYTHON_MODULE, module) {
  namespace python = holdfast::python;
  nanobind::register_exception_translator(python::translate);
  python::watch_exit();
  module.def("version", [] { return HOLDFAST_VERSION; });
  python::bind_platform(module);
  python::bind_region(module);
  python::bind_store(module);
  python::bind_map(module);
  python::bind_log_map(module);
  python::bind_bytes_map(module);
  python::bind_checkpoint(module);
  python::bind_ranks(module);
  python::bind_history(module);
  python::bind_memory_server(module);
  python::bind_partner_memory(module);
  python::bind_inspect(module);
}
