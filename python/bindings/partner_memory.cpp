#include "holdfast/partner_memory.hpp"

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bindings.hpp"

namespace holdfast::python {

using namespace nb::literals;

namespace {

class PartnerHandle {
 public:
  PartnerHandle(const std::string& path, std::uint64_t bytes) {
    const std::set<ino_t> before = locked_inodes();
    memory_.emplace(path, bytes);
    for (const ino_t inode : locked_inodes()) {
      if (!before.contains(inode)) inodes_.push_back(inode);
    }
  }
  ~PartnerHandle() { close(); }
  PartnerHandle(const PartnerHandle&) = delete;
  PartnerHandle& operator=(const PartnerHandle&) = delete;

  void close() {
    // A forked child's descriptors are closed already, and all else is its parent's.
    if (is_forked()) {
      new (std::nothrow) std::optional<PartnerMemory>(std::move(memory_));
      return;
    }
    const std::lock_guard lock(mutex_);
    memory_.reset();
  }
  // In a forked child: the parent's death is to free the path.
  void leave_to_parent() noexcept {
    if (!is_forked() || inodes_.empty()) return;
    leave_inherited_locks(inodes_, nullptr, reinterpret_cast<const std::byte*>(UINTPTR_MAX));
  }

 private:
  bool is_forked() const { return creator_ != ::getpid(); }

  const pid_t creator_ = ::getpid();
  std::mutex mutex_;
  std::optional<PartnerMemory> memory_;
  std::vector<ino_t> inodes_;
};

}  // namespace

void bind_partner_memory(nb::module_& module) {
  nb::class_<PartnerHandle>(module, "PartnerMemory", nb::is_weak_referenceable(),
                            "Lent memory's handle; holdfast.PartnerMemory wraps it.")
      .def("close", &PartnerHandle::close, nb::call_guard<nb::gil_scoped_release>())
      .def("leave_to_parent", &PartnerHandle::leave_to_parent);
  module.def(
      "lend_memory",
      [](const std::string& path, std::uint64_t bytes) {
        nb::gil_scoped_release without;
        return std::make_shared<PartnerHandle>(path, bytes);
      },
      "path"_a, "bytes"_a);
}

}  // namespace holdfast::python
