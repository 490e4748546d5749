// An object of a region as memory of the device, for frameworks that run there (DLPack).
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "dlpack.hpp"

namespace holdfast::python {
namespace {

using namespace nb::literals;

// What every capsule of an object describes.
struct DeviceView {
  dlpack::Tensor tensor{};  // without shape and strides
  std::vector<std::int64_t> shape;
  std::shared_ptr<Export> hold;
  bool read_only = false;
};

// What a capsule, and then whoever took it, owns.
template <class Managed>
struct Holder {
  Managed managed{};
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  std::shared_ptr<Export> hold;
};

// Called on any thread, with or without the interpreter's lock.
template <class Managed>
void release(Managed* managed) {
  if (!nb::is_alive()) return;  // its region was closed at exit
  const nb::gil_scoped_acquire gil;
  delete static_cast<Holder<Managed>*>(managed->context);
}

// A capsule that no one took.
template <class Managed>
void destroy(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, Managed::kName) == 0) return;
  release(static_cast<Managed*>(PyCapsule_GetPointer(capsule, Managed::kName)));
}

std::vector<std::int64_t> strides_of(const std::vector<std::int64_t>& shape) {
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t i = shape.size(); i > 1; --i) strides[i - 2] = strides[i - 1] * shape[i - 1];
  return strides;
}

template <class Managed>
nb::object make_capsule(const DeviceView& view) {
  auto holder = std::make_unique<Holder<Managed>>();
  holder->shape = view.shape;
  holder->strides = strides_of(view.shape);
  holder->hold = view.hold;
  Managed& managed = holder->managed;
  managed.tensor = view.tensor;
  managed.tensor.shape = holder->shape.data();
  managed.tensor.strides = holder->strides.data();
  managed.context = holder.get();
  managed.deleter = &release<Managed>;
  if constexpr (std::is_same_v<Managed, dlpack::ManagedVersioned>) {
    managed.version = {1, 0};
    managed.flags = view.read_only ? dlpack::kReadOnly : 0;
  }
  PyObject* const capsule = PyCapsule_New(&managed, Managed::kName, &destroy<Managed>);
  if (capsule == nullptr) throw nb::python_error();
  holder.release();  // NOLINT(bugprone-unused-return-value): the capsule's now
  return nb::steal(capsule);
}

// `kind` is NumPy's: i, u or f.
DeviceView on_device(const std::shared_ptr<RegionHandle>& handle, const std::string& name,
                     const std::vector<std::int64_t>& shape, const std::string& kind,
                     unsigned bits) {
  const auto [address, bytes] = handle->locate(name);
  std::uint64_t described = bits / 8;
  for (const std::int64_t extent : shape) described *= static_cast<std::uint64_t>(extent);
  if (described != bytes) {
    throw Error(Errc::invalid_argument,
                detail::concat("object '", name, "' has ", bytes, " bytes, not ", described));
  }
  const bool cuda = std::string(backend::name()) == "cuda";
  DeviceView view;
  view.tensor.data = address;
  view.tensor.device = {cuda ? dlpack::kCuda : dlpack::kCpu, handle->device_number()};
  view.tensor.dimensions = static_cast<std::int32_t>(shape.size());
  const std::uint8_t code = kind == "i" ? 0 : kind == "u" ? 1 : 2;
  view.tensor.type = {code, static_cast<std::uint8_t>(bits), 1};
  view.shape = shape;
  view.hold = std::make_shared<Export>(handle, name);
  view.read_only = handle->read_only();
  handle->expect_device_stores();
  return view;
}

}  // namespace

void bind_device_view(nb::module_& module, nb::class_<RegionHandle>& region) {
  nb::class_<DeviceView>(module, "DeviceView",
                         "An object's memory for DLPack; holdfast.DeviceArray wraps it.")
      .def_prop_ro(
          "address",
          [](const DeviceView& view) { return reinterpret_cast<std::uintptr_t>(view.tensor.data); })
      .def_prop_ro(
          "device",
          [](const DeviceView& view) {
            return std::pair(view.tensor.device.type, view.tensor.device.number);
          },
          "DLPack's number of the kind of device, and which of that kind")
      .def(
          "capsule",
          [](const DeviceView& view, bool versioned) {
            return versioned ? make_capsule<dlpack::ManagedVersioned>(view)
                             : make_capsule<dlpack::Managed>(view);
          },
          "versioned"_a, "A new capsule, which one consumer may take.");
  region.def("on_device", &on_device, "name"_a, "shape"_a, "kind"_a, "bits"_a);
}

}  // namespace holdfast::python
