#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "bindings.hpp"
#include "holdfast/memory_server.hpp"

namespace holdfast::python {

using namespace nb::literals;

namespace {

class ServerHandle {
 public:
  explicit ServerHandle(const MemoryServerOptions& options)
      : server_(options), address_(server_->address()) {}

  const std::string& address() const { return address_; }
  // Throws closed.
  template <class Function>
  auto with(Function&& function) {
    const std::lock_guard lock(mutex_);
    if (!server_) throw Error(Errc::closed, "this memory server was closed: make another");
    return function(*server_);
  }
  void close() {
    const std::lock_guard lock(mutex_);
    server_.reset();
  }

 private:
  std::mutex mutex_;
  std::optional<MemoryServer> server_;
  const std::string address_;
};

}  // namespace

void bind_memory_server(nb::module_& module) {
  using Handle = std::shared_ptr<ServerHandle>;
  const auto no_gil = nb::call_guard<nb::gil_scoped_release>();
  nb::class_<ServerHandle>(module, "MemoryServer",
                           "A memory server's handle; holdfast.MemoryServer wraps it.")
      .def_prop_ro("address", &ServerHandle::address)
      .def_prop_ro(
          "used_bytes",
          [](const Handle& handle) {
            return handle->with([](const MemoryServer& own) { return own.used_bytes(); });
          },
          no_gil)
      .def_prop_ro(
          "names",
          [](const Handle& handle) {
            return handle->with([](const MemoryServer& own) { return own.names(); });
          },
          no_gil)
      .def("close", &ServerHandle::close, no_gil);
  module.def(
      "serve_memory",
      [](std::uint64_t bytes, const std::string& listen, std::uint32_t connections,
         double silence) {
        const MemoryServerOptions options{bytes, listen, connections, parse_timeout(silence)};
        nb::gil_scoped_release without;
        return std::make_shared<ServerHandle>(options);
      },
      "bytes"_a, "listen"_a, "connections"_a, "silence"_a);
}

}  // namespace holdfast::python
