// What the files of the Python module share.
#pragma once

#include <nanobind/nanobind.h>

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
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
  // Returns once nothing that it queued, and did not register with the region as a pending writer,
  // still writes the region: a commit comes after that.
  virtual void settle() {}
};

// Throws invalid_argument.
std::chrono::milliseconds parse_timeout(double seconds);

// From here on this process ends with status 1 where it would have ended with 0: what it was to
// commit is not committed, and no call is left that could say so.
void fail_at_exit() noexcept;
// REQUIRES: once, when the module is loaded, so that it runs behind the handlers that come later.
void watch_exit();

// The inodes of a region's file and of the file that is mapped at `base`, as far as they are known.
std::vector<ino_t> inodes_of(const std::string& path, const void* base);
// Of the files on which this process has a descriptor with a lock.
std::set<ino_t> locked_inodes();
// In a forked child: lets go of the locks of these files, which only the parent may keep. Closes
// its descriptors that have one; and since a mapping keeps a lock, too, puts a private view of the
// same bytes in the place of those from `first` to `last`, into which the child's stores go from
// now on.
void leave_inherited_locks(const std::vector<ino_t>& inodes, const std::byte* first,
                           const std::byte* last) noexcept;
bool is_running(pid_t process);

// A commit that commit_async() started.
struct StartedCommit {
  explicit StartedCommit(Commit started) : commit(std::move(started)) {}
  Commit commit;
  std::atomic<bool> told = false;  // someone has seen it fail
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

  // Returns once nothing that was queued by calls on the region still writes it.
  void settle();

  // Address and bytes of an object.
  std::pair<void*, std::size_t> locate(const std::string& name);
  // Of the device that was current when the region was opened.
  int device_number() const { return device_number_; }
  // From now on commits wait for all work of the device: that of other libraries may write here.
  void expect_device_stores() { device_stores_ = true; }

  const std::string& path() const { return path_; }
  bool is_open() const { return region_.has_value() && !detached_; }
  // It was opened so, whether it is still open or not.
  bool read_only() const { return read_only_; }

  // Names of the objects that arrays look into, with the number of arrays handed out.
  std::map<std::string, std::size_t> exported() const;
  // Counts an array over object `name`; the array's owner calls release_export() when it dies.
  void add_export(const std::string& name);
  void release_export(const std::string& name) noexcept;

  void add_dependent(const std::shared_ptr<Dependent>& dependent);
  // Calls `function(Region&)` once no dependent writes the region any more, but for pending
  // writers, for whom commits wait by themselves.
  template <class Function>
  auto with_settled(Function&& function) {
    // Let go of under the interpreter's lock: it may be for the last time.
    const auto dependents = this->dependents();
    return with([&](Region& region) {
      for (const auto& dependent : dependents) dependent->settle();
      settle_device();
      return function(region);
    });
  }

  // What a commit_async() that failed left to say is thrown by the next of commit(),
  // commit_async(), close() and detach(false), unless its wait() has thrown it. The first two then
  // make no commit; the others throw it once they have closed.
  CommitStats commit();
  // Returns once the snapshot is taken.
  std::shared_ptr<StartedCommit> commit_async();

  // Closes at once. Throws BufferError while arrays are left.
  void close();
  // Closes (or abandons) for callers at once, after a commit unless abandoned, and for good once
  // no array is left.
  void detach(bool abandon);
  // For the interpreter's exit: closes though arrays are left, and puts empty memory where the
  // region was, so that a finalizer that still reads one does not fault. Where closing fails, the
  // region is left as a crash would leave it, and the process's exit status will say so.
  void close_at_exit(bool abandon);

  // In a forked child: leaves the region's locks to the parent.
  void leave_to_parent() noexcept;
  bool is_forked() const;

 private:
  Region& open_region();
  std::string forked_message() const;
  std::vector<std::shared_ptr<Dependent>> dependents();
  void release_dependents() noexcept;
  void finish(bool abandon);
  void finish_quietly() noexcept;
  void settle_device() noexcept;
  void tell_failures(const char* what_now);

  const std::string path_;
  const int creator_;  // process id: a forked child must not close its parent's region
  std::mutex mutex_;   // calls into the region
  std::optional<Region> region_;
  const bool read_only_;
  const std::byte* const base_;
  const std::uint64_t max_bytes_;
  std::optional<Stream> stream_;  // of asynchronous commits
  std::vector<std::shared_ptr<StartedCommit>> started_;
  const std::vector<ino_t> inodes_;
  const int device_number_;
  std::atomic<bool> device_stores_ = false;
  bool detached_ = false;
  bool abandon_later_ = false;
  mutable std::mutex exports_mutex_;  // of what follows; nothing is called under it
  std::vector<std::weak_ptr<Dependent>> dependents_;
  std::map<std::string, std::size_t> exports_;
};

// Keeps a region mapped for as long as an array looks into it.
struct Export {
  Export(std::shared_ptr<RegionHandle> of, std::string object)
      : handle(std::move(of)), name(std::move(object)) {
    handle->add_export(name);
  }
  ~Export() { handle->release_export(name); }
  Export(const Export&) = delete;
  Export& operator=(const Export&) = delete;
  const std::shared_ptr<RegionHandle> handle;
  const std::string name;
};

void bind_checkpoint(nb::module_& module);
void bind_device_view(nb::module_& module, nb::class_<RegionHandle>& region);
void bind_history(nb::module_& module);
void bind_ranks(nb::module_& module);
void bind_inspect(nb::module_& module);
void bind_bytes_map(nb::module_& module);
void bind_log_map(nb::module_& module);
void bind_map(nb::module_& module);
void bind_memory_server(nb::module_& module);
void bind_partner_memory(nb::module_& module);
void bind_platform(nb::module_& module);
void bind_region(nb::module_& module);
void bind_store(nb::module_& module);

}  // namespace holdfast::python
