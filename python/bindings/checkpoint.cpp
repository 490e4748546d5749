#include "holdfast/checkpoint.hpp"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <new>

#include "bindings.hpp"

namespace holdfast::python {
namespace {

using namespace nb::literals;

// A checkpoint as Python sees it: shares its region, and lets go of it when that closes. The
// arrays are kept alive by holdfast.Checkpoint.
class CheckpointHandle : public Dependent {
 public:
  CheckpointHandle(std::shared_ptr<RegionHandle> region, const std::string& name)
      : region_(std::move(region)), name_(name) {
    region_->with([&](Region& open) { parts_.emplace(open, name_); });
  }
  ~CheckpointHandle() override {
    if (!parts_) return;
    try {
      region_->with([&](Region&) { parts_.reset(); });
    } catch (const Error&) {
      // In a forked child the streams have no threads that could be waited for.
      new (std::nothrow) std::optional<Parts>(std::move(parts_));
    }
  }
  CheckpointHandle(const CheckpointHandle&) = delete;
  CheckpointHandle& operator=(const CheckpointHandle&) = delete;

  void release() noexcept override { parts_.reset(); }

  // Calls function(Checkpoint&, Stream&).
  template <class Function>
  auto with(Function&& function) {
    return region_->with([&](Region&) {
      if (!parts_) {
        throw Error(Errc::closed, "checkpoint '" + name_ +
                                      "' is closed: its region was, or another Checkpoint of this "
                                      "name was made");
      }
      return function(parts_->checkpoint, parts_->stream);
    });
  }

  PendingSave save_async(const std::string& group, std::uint64_t tag) {
    return with([&](Checkpoint& checkpoint, Stream& stream) {
      PendingSave pending = checkpoint.save_async(stream, group, tag);
      // What the caller queues on streams of its own is not ordered behind this one.
      stream.synchronize();
      return pending;
    });
  }

  void wait(PendingSave& pending) {
    if (pending.done()) return;
    with([&](Checkpoint&, Stream&) { pending.wait(); });
  }

 private:
  struct Parts {
    Parts(Region& region, const std::string& name) : checkpoint(region, name) {}
    Stream stream;
    Checkpoint checkpoint;
  };
  std::shared_ptr<RegionHandle> region_;
  const std::string name_;
  std::optional<Parts> parts_;
};

using Handle = std::shared_ptr<CheckpointHandle>;

struct Pending {
  Handle handle;
  PendingSave save;
};

// What an object tells of its memory through DLPack, and a hold on it.
struct ArrayView {
  nb::ndarray<> array;
};

void add(const Handle& handle, const std::string& group, const std::string& buffer,
         const std::string& type, std::uint64_t count, std::uint32_t element_bytes,
         std::uintptr_t address, bool on_device) {
  // On the CPU backend kernels read all memory.
  const bool readable = on_device || std::string(backend::name()) != "cuda";
  handle->with([&](Checkpoint& checkpoint, Stream&) {
    checkpoint.add_raw(group, {buffer, type, count, element_bytes},
                       reinterpret_cast<void*>(address),
                       readable ? BufferMemory::device : BufferMemory::host);
  });
}

void save(const Handle& handle, const std::string& group, std::uint64_t tag) {
  handle->with([&](Checkpoint& checkpoint, Stream& stream) {
    checkpoint.save(stream, group, tag);
    stream.synchronize();
  });
}

std::optional<std::uint64_t> restore(const Handle& handle, const std::string& group) {
  return handle->with([&](Checkpoint& checkpoint, Stream& stream) {
    const auto tag = checkpoint.restore(stream, group);
    stream.synchronize();
    return tag;
  });
}

void bind_records(nb::module_& module) {
  nb::class_<CheckpointBuffer>(module, "CheckpointBuffer", "A buffer of a group in a region.")
      .def_ro("name", &CheckpointBuffer::name)
      .def_ro("type", &CheckpointBuffer::type, "the element type's name, such as 'f32'")
      .def_ro("count", &CheckpointBuffer::count, "elements")
      .def_ro("element_bytes", &CheckpointBuffer::element_bytes)
      .def_prop_ro("nbytes", &CheckpointBuffer::bytes);

  nb::class_<Pending>(module, "PendingSave", "A save on its way.")
      .def("done", [](const Pending& pending) { return pending.save.done(); })
      .def("wait", [](Pending& pending) { pending.handle->wait(pending.save); });

  nb::class_<ArrayView>(module, "ArrayView", "The memory of an object that has __dlpack__.")
      .def_prop_ro(
          "address",
          [](const ArrayView& view) { return reinterpret_cast<std::uintptr_t>(view.array.data()); })
      .def_prop_ro("shape",
                   [](const ArrayView& view) {
                     std::vector<std::int64_t> shape;
                     for (std::size_t i = 0; i < view.array.ndim(); ++i)
                       shape.push_back(static_cast<std::int64_t>(view.array.shape(i)));
                     return shape;
                   })
      .def_prop_ro(
          "strides",
          [](const ArrayView& view) {
            std::vector<std::int64_t> strides;
            for (std::size_t i = 0; i < view.array.ndim(); ++i)
              strides.push_back(view.array.stride(i));
            return strides;
          },
          "in elements")
      .def_prop_ro(
          "code", [](const ArrayView& view) { return int{view.array.dtype().code}; },
          "DLPack's number of the kind of type")
      .def_prop_ro(
          "bits",
          [](const ArrayView& view) {
            return unsigned{view.array.dtype().bits} * view.array.dtype().lanes;
          },
          "of an element")
      .def_prop_ro(
          "device", [](const ArrayView& view) { return view.array.device_type(); },
          "DLPack's number of the kind of device");
}

}  // namespace

void bind_checkpoint(nb::module_& module) {
  bind_records(module);
  nb::class_<CheckpointHandle>(module, "Checkpoint", nb::is_weak_referenceable(),
                               "A checkpoint's handle; holdfast.Checkpoint wraps it.")
      .def("add", &add, "group"_a, "buffer"_a, "type"_a, "count"_a, "element_bytes"_a, "address"_a,
           "on_device"_a)
      .def("save", &save, "group"_a, "tag"_a)
      .def(
          "save_async",
          [](const Handle& handle, const std::string& group, std::uint64_t tag) {
            return Pending{handle, handle->save_async(group, tag)};
          },
          "group"_a, "tag"_a)
      .def("restore", &restore, "group"_a)
      .def(
          "forget",
          [](const Handle& handle, const std::string& group) {
            handle->with([&](Checkpoint& checkpoint, Stream&) { checkpoint.forget(group); });
          },
          "group"_a)
      .def(
          "stored",
          [](const Handle& handle, const std::string& group) {
            return handle->with(
                [&](Checkpoint& checkpoint, Stream&) { return checkpoint.stored(group); });
          },
          "group"_a)
      .def("stored_groups",
           [](const Handle& handle) {
             return handle->with(
                 [](Checkpoint& checkpoint, Stream&) { return checkpoint.stored_groups(); });
           })
      .def("close", [](const Handle& handle) {
        handle->with([&](Checkpoint&, Stream&) { handle->release(); });
      });

  module.def(
      "make_checkpoint",
      [](const std::shared_ptr<RegionHandle>& region, const std::string& name) {
        auto handle = std::make_shared<CheckpointHandle>(region, name);
        region->add_dependent(handle);
        return handle;
      },
      "region"_a, "name"_a);
  module.def("checkpoint_region_bytes", &Checkpoint::region_bytes, "buffer_bytes"_a, "buffers"_a,
             "Bytes that one group takes in its region.");
  module.def(
      "view_array", [](nb::ndarray<> array) { return ArrayView{std::move(array)}; }, "array"_a,
      nb::sig("def view_array(array: object) -> ArrayView"));
  module.def(
      "synchronize",
      [](std::uintptr_t stream) {
        nb::gil_scoped_release no_gil;
        backend::synchronize(reinterpret_cast<void*>(stream));
      },
      "stream"_a, "Waits for a stream of the device; 0: for all that this process gave it.");
}

}  // namespace holdfast::python
