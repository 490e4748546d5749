#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <new>

#include "bindings.hpp"

namespace holdfast::python {

RegionHandle::RegionHandle(std::string path, Region region)
    : path_(std::move(path)), creator_(getpid()), region_(std::move(region)) {}

RegionHandle::~RegionHandle() {
  if (!region_) return;
  if (is_forked()) {
    // The parent owns the files and the lock. The copy of its bookkeeping is left alone.
    new (std::nothrow) std::optional<Region>(std::move(region_));
    return;
  }
  try {
    finish(abandon_later_);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "holdfast: closing %s: %s\n", path_.c_str(), error.what());
  }
}

bool RegionHandle::is_forked() const { return creator_ != getpid(); }

Region& RegionHandle::open_region() {
  if (!is_open()) {
    throw Error(Errc::closed, "region " + path_ + " is closed: open it again");
  }
  if (is_forked()) {
    throw Error(Errc::in_use,
                "region " + path_ + " belongs to the process that forked this one: open it there");
  }
  return *region_;
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
  try {
    nb::gil_scoped_release no_gil;
    const std::lock_guard lock(mutex_);
    finish(abandon_later_);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "holdfast: closing %s: %s\n", path_.c_str(), error.what());
  }
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

// Closes or abandons now. The caller holds mutex_, or is the last owner.
void RegionHandle::finish(bool abandon) {
  release_dependents();
  if (!region_) return;
  if (abandon) {
    region_->abandon();
  } else {
    if (stream_) stream_->synchronize();
    region_->close();
  }
  stream_.reset();
  region_.reset();
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
  if (!abandon && region.domain() == Domain::file) region.commit();
}

void RegionHandle::close_at_exit(bool abandon) {
  if (!region_ || is_forked()) return;
  void* const base = region_->base();
  const std::uint64_t bytes = region_->max_size();
  const bool arrays_left = !exported().empty();
  nb::gil_scoped_release no_gil;
  const std::lock_guard lock(mutex_);
  finish(abandon || abandon_later_);
  if (arrays_left) {
    mmap(base, bytes, PROT_READ | PROT_WRITE,
         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
  }
}

Stream& RegionHandle::stream() {
  if (!stream_) stream_.emplace();
  return *stream_;
}

}  // namespace holdfast::python
