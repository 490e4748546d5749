#include "holdfast/region.hpp"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <mutex>
#include <optional>

#include "core/domain.hpp"
#include "core/guard.hpp"
#include "core/process.hpp"
#include "core/region_access.hpp"

namespace holdfast {

using core::kPage;
using detail::concat;

const char* to_string(Rung rung) noexcept {
  switch (rung) {
    case Rung::none:
      return "none";
    case Rung::process:
      return "process";
    case Rung::power:
      return "power";
  }
  return "unknown";
}

const char* to_string(Tracking tracking) noexcept {
  switch (tracking) {
    case Tracking::hashed:
      return "hashed";
    case Tracking::marked:
      return "marked";
    case Tracking::none:
      return "none";
  }
  return "unknown";
}

struct Region::Impl {
  std::string path;
  core::Maker maker;
  bool read_only = false;
  OpenReport report;
  int exceptions_at_birth = std::uncaught_exceptions();
  std::unique_ptr<core::RegionDomain> domain;

  core::Medium& medium() { return domain->medium(); }
  core::Directory& directory() { return domain->directory(); }
};

namespace {

// The region's own, or the error for one that is closed, moved from, or of the process that forked
// this one.
template <class Pointer>
auto& alive(const Pointer& impl) {
  if (!impl) throw Error(Errc::closed, "the region is closed; open() it again");
  if (!impl->maker.is_this_process()) {
    impl->maker.refuse(concat("the region '", impl->path, "'"),
                       "use it there, and open() one of its own here");
  }
  return *impl;
}

void check_path(const std::string& path) {
  if (path.empty() || path.back() == '/' || path.find('\0') != std::string::npos) {
    throw Error(Errc::invalid_argument,
                concat("'", path, "' cannot be the path of a region; name a file"));
  }
}

std::uint64_t checked_size(std::uint64_t size, const std::string& path) {
  if (size == 0 || size > core::kMaxRegionBytes) {
    throw Error(Errc::invalid_argument,
                concat("cannot create '", path, "' with ", size, " bytes: a region has 1 to ",
                       core::kMaxRegionBytes, " bytes; set RegionOptions::size"));
  }
  return std::max(core::pages_of(size), core::kMetadataPages) * kPage;
}

}  // namespace

Region::Region(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Region::Region(Region&&) noexcept = default;

Region& Region::operator=(Region&& other) noexcept {
  if (this != &other) {
    Region old(std::move(*this));  // closes it as the destructor does
    impl_ = std::move(other.impl_);
  }
  return *this;
}

Region::~Region() {
  if (!impl_) return;
  if (!impl_->maker.is_this_process()) {
    abandon();
    return;
  }
  if (std::uncaught_exceptions() > impl_->exceptions_at_birth) {
    abandon();
    return;
  }
  try {
    close();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "holdfast: closing '%s' failed: %s\n", impl_->path.c_str(), error.what());
    abandon();
  }
}

Region Region::create(const std::string& path, const RegionOptions& options) try {
  return core::RegionAccess::create(path, options, {});
} catch (const std::exception&) {
  core::fail("creating a region");
}

Region Region::open(const std::string& path, const OpenOptions& options) try {
  return core::RegionAccess::open(path, options, {});
} catch (const std::exception&) {
  core::fail("opening a region");
}

Region Region::open_or_create(const std::string& path, const RegionOptions& options,
                              const OpenOptions& opening) try {
  return core::RegionAccess::open_or_create(path, options, opening, {});
} catch (const std::exception&) {
  core::fail("opening or creating a region");
}

Region core::RegionAccess::create(const std::string& path, const RegionOptions& options,
                                  const Surroundings& around) {
  check_path(path);
  release_kept();
  const std::uint64_t size = checked_size(options.size, path);
  const std::uint64_t max_size = core::checked_max_size(size, options.max_size);
  model_of(options.medium).check();
  const core::DomainKind* const kind = core::kind_of(options.domain);
  if (kind == nullptr) {
    throw Error(Errc::invalid_argument,
                concat("cannot create '", path, "': unknown domain; give one of enum Domain"));
  }
  auto impl = std::make_unique<Region::Impl>();
  impl->path = path;
  impl->domain = kind->create({path, size, max_size, options, around});
  return Region(std::move(impl));
}

Region core::RegionAccess::open(const std::string& path, const OpenOptions& options,
                                const Surroundings& around) {
  check_path(path);
  if (options.mode != OpenMode::read_write && options.mode != OpenMode::read_only) {
    throw Error(Errc::invalid_argument,
                concat("cannot open '", path, "': unknown mode; give one of enum OpenMode"));
  }
  release_kept();
  model_of(options.medium).check();
  auto impl = std::make_unique<Region::Impl>();
  impl->path = path;
  impl->read_only = options.mode == OpenMode::read_only;
  impl->domain = core::kind_at(path).open({path, options, around, impl->report});
  return Region(std::move(impl));
}

Region core::RegionAccess::open_or_create(const std::string& path, const RegionOptions& options,
                                          const OpenOptions& opening, const Surroundings& around) {
  const core::DomainKind* const kind = core::kind_of(options.domain);
  if (kind == nullptr || kind->open == nullptr) return create(path, options, around);
  if (opening.mode == OpenMode::read_only) {
    throw Error(Errc::invalid_argument,
                concat("'", path, "' cannot be created for reading: open() it, or for writing"));
  }
  check_path(path);
  core::check_kind(path, *kind);
  OpenOptions how = opening;
  if (how.arena_folder.empty()) how.arena_folder = options.arena_folder;
  if (!core::model_of(how.medium).slows()) how.medium = options.medium;
  // Between the two another process may make a region there, or take it away.
  constexpr int kAttempts = 8;
  for (int attempt = 1;; ++attempt) {
    std::optional<Error> missing;
    try {
      return open(path, how, around);
    } catch (const Error& error) {
      if (error.code() != Errc::not_found) throw;
      missing = error;
    }
    try {
      return create(path, options, around);
    } catch (const Error& error) {
      if (error.code() != Errc::already_exists) throw;
      if (attempt == kAttempts) throw *missing;
    }
  }
}

void Region::destroy(const std::string& path, const OpenOptions& options) try {
  check_path(path);
  core::release_kept();
  core::kind_at(path).destroy(path, options);
} catch (const std::exception&) {
  core::fail("destroying a region");
}

void Region::close() try {
  Impl& impl = alive(impl_);
  impl.domain->settle();
  impl.domain->close();
  impl.domain->users()->clear();
  impl_.reset();
} catch (const std::exception&) {
  core::fail("close()");
}

void Region::abandon() noexcept {
  if (!impl_) return;
  if (!impl_->maker.is_this_process()) {
    // The files are the maker's, and so are the threads that its bookkeeping would wait for.
    impl_.release()->domain->leave_to_maker();
    return;
  }
  impl_->domain->users()->clear();  // the memory may be kept
  core::PendingWriters writers = std::move(impl_->domain->pending());
  core::WrittenMemory memory(impl_.release(), [](void* impl) { delete static_cast<Impl*>(impl); });
  if (!writers.all_ended()) core::keep_for(std::move(writers), std::move(memory));
}

// ---- Objects ----------------------------------------------------------------------------------

void* Region::allocate_raw(std::string_view name, std::string_view type,
                           std::uint32_t element_bytes, std::uint64_t count,
                           Tracking tracking) try {
  Impl& impl = alive(impl_);
  check_writable("allocate()");
  core::check_name(name, core::kNameBytes, "object name");
  core::check_name(type, core::kTypeBytes, "type name");
  if (type == detail::kUnnamedType) {
    throw Error(Errc::invalid_argument,
                concat("object '", name, "': no type may be called \"", type,
                       "\", as all structs once were; give it a name of its own"));
  }
  if (count == 0 || element_bytes == 0) {
    throw Error(Errc::invalid_argument, concat("object '", name, "' must have at least one byte"));
  }
  if (tracking > Tracking::none) {
    throw Error(Errc::invalid_argument,
                concat("object '", name, "': unknown tracking; give one of enum Tracking"));
  }
  const std::lock_guard lock(impl.domain->mutex());
  core::Directory& directory = impl.directory();
  if (directory.find(name) != nullptr) {
    throw Error(Errc::already_exists, concat("'", impl.path, "' has an object '", name,
                                             "' already; find() or remove() it"));
  }
  if (count > core::kMaxRegionBytes / element_bytes) {
    throw Error(Errc::no_space, concat("object '", name, "' of ", count, " elements of ",
                                       element_bytes, " bytes is larger than a region can be"));
  }
  ObjectInfo info{std::string(name), std::string(type), 0, count, element_bytes, tracking};
  info.offset = directory.first_fit(info.bytes(), name);
  directory.check_room(name);
  const std::uint64_t end = info.offset + core::pages_of(info.bytes()) * kPage;
  impl.domain->hand_out(info.offset, end);
  const std::uint64_t offset = info.offset;
  directory.insert(std::move(info));
  return impl.medium().base() + offset;
} catch (const std::exception&) {
  core::fail("allocate()");
}

void Region::check_type(const ObjectInfo& info, std::string_view type, std::uint32_t bytes) const {
  if (info.type == type && info.element_bytes == bytes) return;
  const std::string what = concat("object '", info.name, "' of '", alive(impl_).path, "' holds ",
                                  info.type, " of ", info.element_bytes, " bytes");
  if (info.type != detail::kUnnamedType) {
    throw Error(Errc::invalid_argument, concat(what, ", not ", type, " of ", bytes));
  }
  const std::string source = concat("address(object(\"", info.name, "\"))");
  throw Error(Errc::invalid_argument,
              concat(what, ", which was every struct's name before each had its own: nothing says ",
                     "whether it is ", type, " of ", bytes, ". If it is, copy it from ", source,
                     " into an object that allocate() makes under another name, and remove() it"));
}

bool Region::contains(std::string_view name) const {
  return alive(impl_).directory().find(name) != nullptr;
}

ObjectInfo Region::object(std::string_view name) const try {
  Impl& impl = alive(impl_);
  const ObjectInfo* found = impl.directory().find(name);
  if (found == nullptr) {
    throw Error(Errc::not_found, concat("'", impl.path, "' has no object '", name,
                                        "': make it first, or choose one that objects() lists"));
  }
  return *found;
} catch (const std::exception&) {
  core::fail("object()");
}

std::vector<ObjectInfo> Region::objects() const try {
  return alive(impl_).directory().objects();
} catch (const std::exception&) {
  core::fail("objects()");
}

void Region::remove(std::string_view name) try {
  check_writable("remove()");
  const ObjectInfo info = object(name);  // throws not_found
  // Whoever is known by it would go on in what comes there next.
  Impl& impl = alive(impl_);
  core::Users& users = *impl.domain->users();
  if (users.is_lent(info.offset)) {
    throw Error(Errc::in_use, concat("object '", name, "' of region '", path(),
                                     "' is of a map whose refs may be in use: close that first"));
  }
  users.end(info.offset);
  const std::lock_guard lock(impl.domain->mutex());
  impl.directory().remove(name);
} catch (const std::exception&) {
  core::fail("remove()");
}

void Region::grow(std::uint64_t new_size) try {
  Impl& impl = alive(impl_);
  check_writable("grow()");
  core::Medium& medium = impl.medium();
  if (new_size > medium.max_size()) {
    throw Error(Errc::invalid_argument,
                concat("'", impl.path, "' cannot grow to ", new_size, " bytes: space is kept for ",
                       medium.max_size(), "; reopen it with a larger max_size"));
  }
  const std::uint64_t size = core::pages_of(new_size) * kPage;
  if (size < medium.size()) {
    throw Error(
        Errc::invalid_argument,
        concat("'", impl.path, "' has ", medium.size(), " bytes and cannot shrink to ", new_size,
               ": give the size that it is to have in all, ", medium.size(), " or more"));
  }
  const std::lock_guard lock(impl.domain->mutex());
  if (size > medium.size()) medium.grow(size);
  if (size > impl.directory().region_bytes()) impl.directory().set_region_bytes(size);
} catch (const std::exception&) {
  core::fail("grow()");
}

void* Region::address(const ObjectInfo& info) const {
  Impl& impl = alive(impl_);
  if (info.offset > impl.medium().size() || info.bytes() > impl.medium().size() - info.offset) {
    throw Error(Errc::invalid_argument,
                concat("object '", info.name, "' is not of the region '", impl.path,
                       "': give what its object() or objects() returns"));
  }
  return impl.medium().base() + info.offset;
}

void* Region::base() const { return alive(impl_).medium().base(); }

// ---- Commits ----------------------------------------------------------------------------------

void Region::pending(std::shared_ptr<Event> end) try {
  Impl& impl = alive(impl_);
  if (!end) throw Error(Errc::invalid_argument, "pending(): give an event that is recorded");
  impl.domain->writer_registered();  // whatever becomes of the call, it has begun
  impl.domain->pending().add(std::move(end));
} catch (const std::exception&) {
  core::fail("pending()");
}

void Region::settle() try { alive(impl_).domain->settle(); } catch (const std::exception&) {
  core::fail("settle()");
}

Commit Region::commit(Stream& stream) try {
  Impl& impl = alive(impl_);
  check_writable("commit()");
  (void)stream.impl();  // throws closed, before anything is queued
  return impl.domain->commit(stream);
} catch (const std::exception&) {
  core::fail("commit()");
}

CommitStats Region::commit() try {
  Impl& impl = alive(impl_);
  check_writable("commit()");
  return impl.domain->commit();
} catch (const std::exception&) {
  core::fail("commit()");
}

PageMarks Region::marks() const {
  const core::MarkMap* const marks = alive(impl_).domain->marks();
  return marks ? marks->device_view() : PageMarks();
}

void Region::mark(const void* address, std::size_t bytes) {
  Impl& impl = alive(impl_);
  const std::byte* const base = impl.medium().base();
  const auto* const at = static_cast<const std::byte*>(address);
  const std::uint64_t size = impl.medium().size();
  if (at < base || at > base + size || bytes > static_cast<std::size_t>(base + size - at)) {
    throw Error(Errc::invalid_argument,
                concat("mark(): these ", bytes, " bytes are not within '", impl.path, "'"));
  }
  core::MarkMap* const marks = impl.domain->marks();
  if (bytes == 0 || marks == nullptr) return;
  const auto offset = static_cast<std::uint64_t>(at - base);
  const std::lock_guard lock(impl.domain->mutex());
  marks->mark(offset / kPage, (offset + bytes - 1) / kPage);
}

// ---- Properties -------------------------------------------------------------------------------

const std::string& Region::path() const { return alive(impl_).path; }
std::string Region::uuid() const try {
  return core::to_text(alive(impl_).directory().uuid());
} catch (const std::exception&) {
  core::fail("uuid()");
}
Domain Region::domain() const { return alive(impl_).domain->domain(); }
bool Region::read_only() const { return alive(impl_).read_only; }

void Region::check_writable(const char* what) const {
  const Impl& impl = alive(impl_);
  if (!impl.read_only) return;
  throw Error(Errc::unsupported,
              concat(what, ": '", impl.path, "' is open for reading; open it for writing"));
}

std::uint64_t Region::size() const { return alive(impl_).medium().size(); }
std::uint64_t Region::max_size() const { return alive(impl_).medium().max_size(); }
std::uint64_t Region::used() const { return alive(impl_).directory().used_bytes(); }

std::uint64_t Region::generation() const { return alive(impl_).domain->generation(); }

Guarantee Region::guarantee() const try {
  return alive(impl_).domain->guarantee();
} catch (const std::exception&) {
  core::fail("guarantee()");
}

const OpenReport& Region::open_report() const { return alive(impl_).report; }

void core::RegionAccess::settle_user(const Region& region, std::string_view object) {
  alive(region.impl_).domain->users()->settle(region.object(object).offset);
}

core::Use core::RegionAccess::take_over(const Region& region, std::string_view object, User* user) {
  const std::shared_ptr<Users> users = alive(region.impl_).domain->users();
  const std::uint64_t offset = region.object(object).offset;
  return {users, offset, users->take_over(offset, user)};
}

bool core::RegionAccess::is_lent(const Region& region, std::string_view object) {
  return alive(region.impl_).domain->users()->is_lent(region.object(object).offset);
}

void core::RegionAccess::rename(const Region& region, const std::vector<Renaming>& names) {
  region.check_writable("renaming objects");
  for (const Renaming& name : names) (void)region.object(name.from);  // throws not_found
  const std::lock_guard lock(alive(region.impl_).domain->mutex());
  alive(region.impl_).directory().rename(names);
}

void core::RegionAccess::writer_begins(const Region& region) {
  alive(region.impl_).domain->writer_begins();
}

testing::Throttle& core::RegionAccess::throttle(const Region& region) {
  return alive(region.impl_).domain->throttle();
}

testing::Throttle& testing::throttle(const Region& region) {
  return core::RegionAccess::throttle(region);
}

}  // namespace holdfast
