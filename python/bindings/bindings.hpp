// What the files of the Python module share.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "holdfast/region.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::python {

namespace nb = nanobind;

// Something that uses a region and must be gone before it closes.
class Dependent {
 public:
  virtual ~Dependent() = default;
  // Lets go of the region. Later use throws Errc::closed.
  virtual void release() noexcept = 0;
  // Returns once nothing that it queued still writes the region: a commit comes after that.
  virtual void settle() {}
};

// A region as Python sees it: it knows which arrays look into its memory, and stays mapped until
// the last of them is gone.
//
// States: open; detached (closed to callers, mapped for the arrays that are left); closed.
// Thread safety: any number of threads; calls into the region are made one at a time, without
// the interpreter's lock.
class RegionHandle : public std::enable_shared_from_this<RegionHandle> {
 public:
  RegionHandle(std::string path, Region region);
  ~RegionHandle();
  RegionHandle(const RegionHandle&) = delete;
  RegionHandle& operator=(const RegionHandle&) = delete;

  // Calls `function(Region&)`. Throws Errc::closed.
  template <class Function>
  auto with(Function&& function) {
    nb::gil_scoped_release no_gil;
    const std::lock_guard lock(mutex_);
    return function(open_region());
  }

  const std::string& path() const { return path_; }
  bool is_open() const { return region_.has_value() && !detached_; }

  // Names of the objects that arrays look into, with the number of arrays handed out.
  std::map<std::string, std::size_t> exported() const;
  // Counts an array over object `name`; the array's owner calls release_export() when it dies.
  void add_export(const std::string& name);
  void release_export(const std::string& name) noexcept;

  void add_dependent(const std::shared_ptr<Dependent>& dependent);
  // Calls `function(Region&)` once no dependent writes the region any more.
  template <class Function>
  auto with_settled(Function&& function) {
    // Let go of under the interpreter's lock: it may be for the last time.
    const auto dependents = this->dependents();
    return with([&](Region& region) {
      for (const auto& dependent : dependents) dependent->settle();
      return function(region);
    });
  }

  // Closes at once. Throws BufferError while arrays are left.
  void close();
  // Closes (or abandons) for callers at once, after a commit unless abandoned, and for good once
  // no array is left.
  void detach(bool abandon);
  // For the interpreter's exit: closes though arrays are left, and puts empty memory where the
  // region was, so that a finalizer that still reads one does not fault.
  void close_at_exit(bool abandon);

  // A stream for asynchronous commits.
  Stream& stream();

 private:
  Region& open_region();
  std::vector<std::shared_ptr<Dependent>> dependents();
  void release_dependents() noexcept;
  void finish(bool abandon);
  bool is_forked() const;

  const std::string path_;
  const int creator_;  // process id: a forked child must not close its parent's region
  std::mutex mutex_;   // calls into the region
  std::optional<Region> region_;
  std::optional<Stream> stream_;
  bool detached_ = false;
  bool abandon_later_ = false;
  mutable std::mutex exports_mutex_;  // of what follows; nothing is called under it
  std::vector<std::weak_ptr<Dependent>> dependents_;
  std::map<std::string, std::size_t> exports_;
};

void bind_checkpoint(nb::module_& module);
void bind_inspect(nb::module_& module);
void bind_platform(nb::module_& module);
void bind_region(nb::module_& module);
void bind_store(nb::module_& module);

}  // namespace holdfast::python
