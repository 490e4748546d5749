#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <new>

#include "bindings.hpp"

namespace holdfast::python {

using detail::concat;

RegionHandle::RegionHandle(std::string path, Region region)
    : path_(std::move(path)),
      creator_(getpid()),
      region_(std::move(region)),
      read_only_(region_->read_only()),
      base_(static_cast<const std::byte*>(region_->base())),
      max_bytes_(region_->max_size()),
      inodes_(inodes_of(path_, base_)),
      device_number_(backend::device_number()) {}

RegionHandle::~RegionHandle() {
  if (!region_) return;
  if (is_forked()) {
    // The parent owns the files and the lock. The copy of its bookkeeping is left alone, and so is
    // the stream, whose thread is not here.
    new (std::nothrow) std::optional<Region>(std::move(region_));
    new (std::nothrow) std::optional<Stream>(std::move(stream_));
    return;
  }
  finish_quietly();
}

// Where no caller could be told.
void RegionHandle::finish_quietly() noexcept {
  try {
    finish(abandon_later_);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "holdfast: closing %s: %s\n", path_.c_str(), error.what());
    fail_at_exit();
  }
}

bool RegionHandle::is_forked() const { return creator_ != getpid(); }

std::string RegionHandle::forked_message() const {
  const bool cuda = std::string(backend::name()) == "cuda";
  const std::string opener = concat("region ", path_, " was opened by process ", creator_,
                                    ", from which this one was forked");
  if (!is_running(creator_)) {
    return opener + " and which has ended: " +
           (cuda ? "open it in a new process, since CUDA works in no forked one" : "open it here");
  }
  return opener + ": use it there" +
         (cuda ? ", or close it there and open it in a process that was not forked (spawn), since "
                 "CUDA works in no other"
               : "; once it is closed there, it can be opened here");
}

Region& RegionHandle::open_region() {
  if (!is_open()) {
    throw Error(Errc::closed, "region " + path_ + " is closed: open it again");
  }
  if (is_forked()) {
    throw Error(Errc::in_use, forked_message());
  }
  return *region_;
}

std::pair<void*, std::size_t> RegionHandle::locate(const std::string& name) {
  return with([&](Region& region) {
    const ObjectInfo info = region.object(name);
    return std::pair<void*, std::size_t>(region.address(info), info.bytes());
  });
}

void RegionHandle::settle_device() noexcept {
  if (!device_stores_) return;
  try {
    backend::synchronize();
  } catch (const Error&) {
    // The device is lost, or was by another library's doing: nothing runs there any more.
  }
}

std::map<std::string, std::size_t> RegionHandle::exported() const {
  const std::lock_guard lock(exports_mutex_);
  return exports_;
}

void RegionHandle::add_export(const std::string& name) {
  const std::lock_guard lock(exports_mutex_);
  ++exports_[name];
}

void RegionHandle::release_export(const std::string& name) noexcept {
  bool last = false;
  {
    const std::lock_guard lock(exports_mutex_);
    const auto entry = exports_.find(name);
    if (entry != exports_.end() && --entry->second == 0) exports_.erase(entry);
    last = exports_.empty();
  }
  if (!last || !detached_ || !region_ || is_forked()) return;
  nb::gil_scoped_release no_gil;
  const std::lock_guard lock(mutex_);
  finish_quietly();
}

void RegionHandle::add_dependent(const std::shared_ptr<Dependent>& dependent) {
  const std::lock_guard lock(exports_mutex_);
  std::erase_if(dependents_, [](const auto& entry) { return entry.expired(); });
  dependents_.push_back(dependent);
}

std::vector<std::shared_ptr<Dependent>> RegionHandle::dependents() {
  std::vector<std::shared_ptr<Dependent>> found;
  const std::lock_guard lock(exports_mutex_);
  for (const auto& entry : dependents_) {
    if (auto dependent = entry.lock()) found.push_back(std::move(dependent));
  }
  return found;
}

void RegionHandle::release_dependents() noexcept {
  std::vector<std::weak_ptr<Dependent>> all;
  {
    const std::lock_guard lock(exports_mutex_);
    all.swap(dependents_);
  }
  for (const auto& entry : all) {
    if (const auto dependent = entry.lock()) dependent->release();
  }
}

// Throws what became of commits that no one waited for; waits for them.
void RegionHandle::tell_failures(const char* what_now) {
  std::optional<Error> first;
  for (const auto& started : started_) {
    try {
      started->commit.wait();
    } catch (const Error& error) {
      if (!started->told.exchange(true) && !first) first = error;
    }
  }
  started_.clear();
  if (!first) return;
  throw Error(first->code(),
              concat("a commit_async() of region ", path_,
                     " failed, and no one waited for it: ", first->what(), " (", what_now, ")"));
}

void RegionHandle::settle() {
  with_settled([](Region& region) { region.settle(); });
}

CommitStats RegionHandle::commit() {
  return with_settled([&](Region& region) {
    tell_failures("this commit was not made: call it again");
    return region.commit();
  });
}

std::shared_ptr<StartedCommit> RegionHandle::commit_async() {
  return with_settled([&](Region& region) {
    tell_failures("this commit was not started: call it again");
    if (!stream_) stream_.emplace();
    const auto started = std::make_shared<StartedCommit>(region.commit(*stream_));
    // Python orders its stores by calls alone: those behind this one are a later commit's.
    started->commit.wait_snapshot();
    started_.push_back(started);
    return started;
  });
}

// Closes or abandons now. The caller holds mutex_, or is the last owner.
void RegionHandle::finish(bool abandon) {
  release_dependents();
  if (!region_) return;
  if (abandon) {
    region_->abandon();
    started_.clear();
  } else {
    settle_device();
    region_->close();
  }
  stream_.reset();
  region_.reset();
  tell_failures("the region was closed, which committed what it holds");
}

void RegionHandle::close() {
  if (!is_open()) return;
  const auto left = exported();
  if (!left.empty()) {
    std::string names;
    for (const auto& [name, count] : left) names += (names.empty() ? "'" : ", '") + name + "'";
    throw nb::buffer_error(("region " + path_ + " has arrays that are still in use: " + names +
                            ". Delete them (del array), or use `with`, which closes once the "
                            "last one is gone")
                               .c_str());
  }
  nb::gil_scoped_release no_gil;
  const std::lock_guard lock(mutex_);
  open_region();
  finish(false);
}

void RegionHandle::detach(bool abandon) {
  if (!is_open()) return;
  const bool arrays_left = !exported().empty();
  nb::gil_scoped_release no_gil;
  const std::lock_guard lock(mutex_);
  Region& region = open_region();
  if (!arrays_left) {
    finish(abandon);
    return;
  }
  release_dependents();
  abandon_later_ = abandon;
  detached_ = true;
  if (abandon) return;
  settle_device();
  const bool keeps = region.domain() == Domain::file || region.domain() == Domain::dax;
  if (keeps && !read_only_) region.commit();
  tell_failures("the end of the block has committed what the region holds");
}

void RegionHandle::close_at_exit(bool abandon) {
  if (!region_ || is_forked()) return;
  void* const base = region_->base();
  const std::uint64_t bytes = region_->max_size();
  const bool arrays_left = !exported().empty();
  nb::gil_scoped_release no_gil;
  const std::lock_guard lock(mutex_);
  std::exception_ptr failure;
  try {
    finish(abandon || abandon_later_);
  } catch (const Error&) {
    failure = std::current_exception();
    fail_at_exit();
    finish(true);
  }
  if (arrays_left) {
    mmap(base, bytes, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  }
  if (failure) std::rethrow_exception(failure);
}

void RegionHandle::leave_to_parent() noexcept {
  if (!region_ || !is_forked()) return;
  leave_inherited_locks(inodes_, base_ - kPageBytes, base_ + max_bytes_);
}

}  // namespace holdfast::python
