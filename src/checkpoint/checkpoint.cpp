#include "holdfast/checkpoint.hpp"

#include <algorithm>
#include <map>

#include "checkpoint/group.hpp"
#include "core/format.hpp"
#include "core/guard.hpp"
#include "core/host_asks.hpp"
#include "core/process.hpp"
#include "holdfast/testing/checkpoint.hpp"

namespace holdfast {

using checkpoint::Group;
using detail::concat;

PendingSave::State& PendingSave::state() const {
  if (!state_) detail::throw_moved_from("save on its way");
  return *state_;
}

void PendingSave::wait() try {
  if (!*state().is_done) state().drain->synchronize();
} catch (const std::exception&) {
  core::fail("waiting for a save");
}

bool PendingSave::done() const {
  const State& save = state();
  core::host_asks();
  return *save.is_done;
}

struct Checkpoint::Impl {
  core::Maker maker;
  Region* region;
  std::string name;
  // Smaller buffers are copied by a kernel, which needs no call for each of them.
  std::uint64_t engine_threshold = 4u << 20;
  std::map<std::string, Group, std::less<>> groups;

  Group& find(std::string_view group) {
    const auto found = groups.find(group);
    if (found != groups.end()) return found->second;
    std::string known;
    for (const auto& [other, unused] : groups) known += (known.empty() ? "" : ", ") + other;
    throw Error(Errc::not_found,
                concat("checkpoint '", name, "' has no group '", std::string(group),
                       "' (there are: ", known, "): add() a buffer to it first"));
  }
};

namespace {

// The checkpoint's own, or the error for one that was moved from, or is of the process that forked
// this one.
template <class Pointer>
auto& alive(const Pointer& impl) {
  if (!impl) throw Error(Errc::closed, "the checkpoint was moved from: use what it was moved to");
  if (!impl->maker.is_this_process()) {
    impl->maker.refuse(concat("checkpoint '", impl->name, "'"),
                       "use it there, and make one of a region of its own here");
  }
  return *impl;
}

}  // namespace

Checkpoint::Checkpoint(Region& region, std::string_view name) try
    : impl_(std::make_unique<Impl>()) {
  if (name.empty() || name.find('/') != std::string_view::npos ||
      name.find('\0') != std::string_view::npos) {
    throw Error(Errc::invalid_argument, concat("checkpoint '", std::string(name),
                                               "': give a name without '/' and zero bytes"));
  }
  impl_->region = &region;
  impl_->name = name;
} catch (const std::exception&) {
  core::fail("a checkpoint");
}

Checkpoint::~Checkpoint() {
  if (!impl_) return;
  if (!impl_->maker.is_this_process()) {
    (void)impl_.release();  // its saves are not under way here
    return;
  }
  for (auto& [name, group] : impl_->groups) group.wait();
}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;

Checkpoint& Checkpoint::operator=(Checkpoint&& other) noexcept {
  if (this != &other) {
    const Checkpoint old(std::move(*this));  // waits as the destructor does
    impl_ = std::move(other.impl_);
  }
  return *this;
}

void Checkpoint::add_raw(std::string_view group, const CheckpointBuffer& buffer, void* data,
                         BufferMemory memory) try {
  Impl& impl = alive(impl_);
  auto found = impl.groups.find(group);
  if (found == impl.groups.end()) {
    const std::string object = concat(impl.name, "/", std::string(group));
    if (group.empty() || object.size() > 55 || group.find('\0') != std::string_view::npos) {
      throw Error(Errc::invalid_argument,
                  concat("group '", std::string(group), "' of checkpoint '", impl.name,
                         "': give names of at most 54 bytes together, none of them zero"));
    }
    Group fresh(std::string(group), object);
    fresh.add(buffer, data, memory);  // a group of nothing is not kept
    impl.groups.emplace(std::string(group), std::move(fresh));
    return;
  }
  found->second.add(buffer, data, memory);
} catch (const std::exception&) {
  core::fail("add()");
}

void Checkpoint::save(Stream& stream, std::string_view group, std::uint64_t tag) try {
  Impl& impl = alive(impl_);
  impl.region->check_writable("save()");
  impl.find(group).save(*impl.region, stream, tag, impl.engine_threshold);
} catch (const std::exception&) {
  core::fail("save()");
}

PendingSave Checkpoint::save_async(Stream& stream, std::string_view group, std::uint64_t tag) try {
  Impl& impl = alive(impl_);
  impl.region->check_writable("save_async()");
  return PendingSave(impl.find(group).save_async(*impl.region, stream, tag, impl.engine_threshold));
} catch (const std::exception&) {
  core::fail("save_async()");
}

std::optional<std::uint64_t> Checkpoint::restore(Stream& stream, std::string_view group) try {
  Impl& impl = alive(impl_);
  return impl.find(group).restore(*impl.region, stream, impl.engine_threshold);
} catch (const std::exception&) {
  core::fail("restore()");
}

void Checkpoint::forget(std::string_view group) {
  Impl& impl = alive(impl_);
  const auto found = impl.groups.find(group);
  if (found == impl.groups.end()) return;
  found->second.wait();
  impl.groups.erase(found);
}

std::vector<CheckpointBuffer> Checkpoint::stored(std::string_view group) const try {
  const Region& region = *alive(impl_).region;
  const std::string object = concat(impl_->name, "/", std::string(group));
  const ObjectInfo info = region.object(object);
  const std::string what = concat("checkpoint '", object, "' of region '", region.path(), "'");
  if (info.type != checkpoint::kTypeName) {
    throw Error(Errc::invalid_argument, concat(what, ": the object is no checkpoint"));
  }
  Stream stream;
  return checkpoint::decode_header(
      checkpoint::read_header(stream, region.address(info), info.bytes()), info.bytes(), what);
} catch (const std::exception&) {
  core::fail("stored()");
}

std::vector<std::string> Checkpoint::stored_groups() const try {
  const std::string prefix = alive(impl_).name + "/";
  std::vector<std::string> names;
  for (const ObjectInfo& info : impl_->region->objects()) {
    if (info.type == checkpoint::kTypeName && info.name.starts_with(prefix)) {
      names.push_back(info.name.substr(prefix.size()));
    }
  }
  return names;
} catch (const std::exception&) {
  core::fail("stored_groups()");
}

struct checkpoint::Access {
  static Checkpoint::Impl& impl(Checkpoint& of) { return alive(of.impl_); }
};

void testing::set_engine_threshold(Checkpoint& checkpoint, std::uint64_t bytes) {
  checkpoint::Access::impl(checkpoint).engine_threshold = bytes;
}

std::uint64_t Checkpoint::region_bytes(std::uint64_t buffer_bytes, std::uint64_t buffers) {
  constexpr std::uint64_t kOfABuffer = sizeof(checkpoint::BufferEntry) + checkpoint::kAlignment;
  if (buffer_bytes > core::kMaxRegionBytes || buffers > core::kMaxRegionBytes / kOfABuffer) {
    throw Error(Errc::no_space,
                concat("a group of ", buffers, " buffers with ", buffer_bytes,
                       " bytes is larger than a region can be, ", core::kMaxRegionBytes, " bytes"));
  }
  return checkpoint::layout_of(buffer_bytes + buffers * checkpoint::kAlignment, buffers)
      .object_bytes;
}

}  // namespace holdfast
