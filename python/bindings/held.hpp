// A structure of a region as Python holds it.
#pragma once

#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "bindings.hpp"

namespace holdfast::python {

// Shares its region, and lets go of the structure when that closes. T has stream(), in which all of
// its work is done. Thread safety: any number of threads; calls are made one at a time.
template <class T>
class Held : public Dependent {
 public:
  // `what` names it in errors: "the store".
  Held(std::shared_ptr<RegionHandle> region, T held, std::string what)
      : region_(std::move(region)), held_(std::move(held)), what_(std::move(what)) {}
  ~Held() override {
    if (!held_) return;
    try {
      region_->with([&](Region&) { held_.reset(); });
    } catch (const Error&) {
      // The region is closed, and this with it; or it is a parent's, whose threads are not here.
      if (region_->is_forked()) new (std::nothrow) std::optional<T>(std::move(held_));
    }
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  void release() noexcept override { held_.reset(); }
  // A batch is over when its call returns; one that failed may have left kernels behind it.
  void settle() override {
    if (!held_) return;
    try {
      held_->stream().synchronize();
    } catch (const Error&) {
      // Whoever made the batch was told; nothing of it runs any more.
    }
  }

  // Calls function(T&). Throws closed.
  template <class Function>
  auto with(Function&& function) {
    return region_->with([&](Region&) {
      if (!held_) throw Error(Errc::closed, what_ + " is closed: open it again");
      return function(*held_);
    });
  }

  // Before its region. It may be closed already, and so may the region.
  void close() {
    if (!region_->is_open()) return;
    region_->with([&](Region&) { held_.reset(); });
  }

 private:
  std::shared_ptr<RegionHandle> region_;
  std::optional<T> held_;
  const std::string what_;
};

// What the region lets go of when it closes.
template <class T>
std::shared_ptr<Held<T>> hold(const std::shared_ptr<RegionHandle>& region, T structure,
                              std::string what) {
  auto held = std::make_shared<Held<T>>(region, std::move(structure), std::move(what));
  region->add_dependent(held);
  return held;
}

}  // namespace holdfast::python
