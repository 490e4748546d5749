// The host's part of the artifact's interface (compat/libgpm.cuh), on that of the paper.
#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "holdfast/compat/gpm/change-ddio.h"
#include "holdfast/compat/gpm_host.hpp"
#include "holdfast/compat/libgpm.h"
#include "libgpm/registry.hpp"

namespace holdfast::gpm {

namespace {

using holdfast::detail::concat;

// Runs `body`; what it throws is said on stderr, and `failed` returned.
template <class Result, class Body>
Result said(const char* what, Result failed, Body&& body) noexcept {
  try {
    return body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "holdfast: %s: %s\n", what, error.what());
  } catch (...) {
    std::fprintf(stderr, "holdfast: %s: an unknown exception\n", what);
  }
  return failed;
}

std::string place_of(const char* path) {
  if (path == nullptr || *path == '\0') {
    throw Error(Errc::invalid_argument, "there is no path: give one");
  }
  const char* const folder = std::getenv("HOLDFAST_GPM_FOLDER");
  if (*path == '/' || folder == nullptr || *folder == '\0') return path;
  return (std::filesystem::path(folder) / path).lexically_normal();
}

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// Throws in_use where this process has the file open as a map or a log.
void check_not_open(const std::string& path) {
  const auto refuse_same = [&](const Region& region) {
    std::error_code ignored;
    if (!std::filesystem::equivalent(path, region.path(), ignored)) return;
    throw Error(Errc::in_use, concat("'", path, "' is open in this process: close it first"));
  };
  const std::lock_guard lock(registry().mutex);
  for (const auto& [address, map] : registry().maps) refuse_same(*map.region);
  for (const auto& [handle, open] : registry().logs) refuse_same(open->region);
}

// Whether the region in this file has a log's objects alone: fewer, or none, if its creation was
// cut off. Throws what Region::open() does.
bool is_log(const std::string& path) {
  OpenOptions options;
  options.mode = OpenMode::read_only;
  const Region region = Region::open(path, options);
  const std::vector<ObjectInfo> objects = region.objects();
  return std::all_of(objects.begin(), objects.end(),
                     [&](const ObjectInfo& object) { return object.name.starts_with(kLog); });
}

// For what refuses both ends of int.
int clamped(long long number) {
  return static_cast<int>(std::clamp<long long>(number, INT_MIN, INT_MAX));
}

// Null: none has all of it. REQUIRES: the registry is locked.
Region* region_of(const void* address, std::size_t bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  for (const auto& [start, map] : registry().maps) {
    const auto from = reinterpret_cast<std::uintptr_t>(start);
    if (first < from || bytes > map.bytes || first - from > map.bytes - bytes) continue;
    return map.region.get();
  }
  return nullptr;
}

// Runs store(stream) on memory of a map, and makes what it stored durable.
template <class Store>
bool stored(const char* what, void* to, std::size_t bytes, Store&& store) noexcept {
  return said(what, false, [&] {
    {
      const std::lock_guard lock(registry().mutex);
      Region* const region = region_of(to, bytes);
      if (region == nullptr) {
        throw Error(Errc::invalid_argument, "the target is not within what gpm_map_file() gave");
      }
      (void)region->object(kObject);  // throws in a forked child
    }
    Stream stream;
    store(stream);
    stream.synchronize();
    persist_by_host(to, bytes);
    return true;
  });
}

}  // namespace

void* map_file(const char* path, std::size_t* bytes, bool create) noexcept {
  return said<void*>("gpm_map_file", nullptr, [&] {
    const std::string place = place_of(path);
    if (!create && *bytes != 0) {
      throw Error(Errc::invalid_argument,
                  concat("'", place, "': to open a file give a length of 0; it is told"));
    }
    const bool reuse = create && is_there(place);
    void* const address =
        reuse ? reopen_map(place, *bytes) : gpm_map(place.c_str(), *bytes, create);
    std::size_t there = 0;
    {
      const std::lock_guard lock(registry().mutex);
      there = registry().maps.at(address).bytes;
    }
    if (reuse && there != *bytes) {
      gpm_unmap(place.c_str(), address, there);
      throw Error(Errc::already_exists, concat("'", place, "' is there with ", there,
                                               " bytes, and not ", *bytes, ": remove it first"));
    }
    *bytes = there;
    return address;
  });
}

bool unmap(const char* path, void* address) noexcept {
  return said("gpm_unmap", false, [&] {
    gpm_unmap(path, address, 0);
    return true;
  });
}

bool is_mapped(const void* address, std::size_t bytes) noexcept {
  const std::lock_guard lock(registry().mutex);
  return region_of(address, bytes) != nullptr;
}

bool copy(void* to, const void* from, std::size_t bytes) noexcept {
  return stored("gpm_memcpy", to, bytes, [&](Stream& stream) {
    if (from == nullptr && bytes != 0) throw Error(Errc::invalid_argument, "the source is null");
    copy_async(stream, to, from, bytes);
  });
}

bool set_bytes(void* to, unsigned char value, std::size_t bytes) noexcept {
  return stored("gpm_memset", to, bytes,
                [&](Stream& stream) { fill_async(stream, to, value, bytes); });
}

// Memory that a killed process leaves behind has what the host stored; a dax domain's caches are
// flushed.
void persist_by_host(void* address, std::size_t bytes) noexcept {
  said("pmem_mt_persist", false, [&] {
    const std::lock_guard lock(registry().mutex);
    Region* const region = region_of(address, bytes);
    if (region == nullptr) {
      throw Error(Errc::invalid_argument, "the bytes are not within what gpm_map_file() gave");
    }
    if (region->domain() == Domain::dax) region->commit();
    return true;
  });
}

gpmlog* create_log(const char* path, std::size_t* bytes, int blocks, int threads,
                   bool managed) noexcept {
  return said<gpmlog*>(managed ? "gpmlog_create_managed" : "gpmlog_create", nullptr, [&] {
    const std::string place = place_of(path);
    check_log(*bytes, blocks, threads, managed);
    if (is_there(place)) {
      check_not_open(place);
      if (!is_log(place)) {
        throw Error(Errc::already_exists, concat("'", place, "' is there and no log: remove it"));
      }
      Region::destroy(place);
    }
    if (!managed) return gpmlog_create_conv(place.c_str(), *bytes, blocks);
    gpmlog* const log = gpmlog_create_hcl(place.c_str(), *bytes, blocks, threads);
    const std::lock_guard lock(registry().mutex);
    const LogShape& shape = registry().logs.at(log)->log.shape();
    *bytes = std::size_t{shape.slots} * shape.bytes_per_slot;
    return log;
  });
}

gpmlog* open_log(const char* path) noexcept {
  return said<gpmlog*>("gpmlog_open", nullptr, [&] { return gpmlog_open(place_of(path).c_str()); });
}

bool close_log(gpmlog* log) noexcept {
  return said("gpmlog_close", false, [&] {
    gpmlog_close(log);
    return true;
  });
}

int partitions(const gpmlog* log) noexcept {
  return said("gpmlog_get_partitions", -1, [&] {
    const std::lock_guard lock(registry().mutex);
    const auto found = registry().logs.find(const_cast<gpmlog*>(log));
    if (found == registry().logs.end()) throw Error(Errc::invalid_argument, "not an open log");
    return static_cast<int>(found->second->log.shape().slots);
  });
}

gpmcp* create_checkpoint(const char* path, std::size_t bytes, long long elements,
                         long long groups) noexcept {
  return said<gpmcp*>("gpmcp_create", nullptr, [&] {
    const std::string place = place_of(path);
    const int each = clamped(elements), count = clamped(groups);
    if (is_there(place)) return reopen_checkpoint(place, bytes, each, count);
    return gpmcp_create(place.c_str(), bytes, each, count);
  });
}

gpmcp* open_checkpoint(const char* path) noexcept {
  return said<gpmcp*>("gpmcp_open", nullptr, [&] { return gpmcp_open(place_of(path).c_str()); });
}

bool close_checkpoint(gpmcp* checkpoint) noexcept {
  return said("gpmcp_close", false, [&] {
    gpmcp_close(checkpoint);
    return true;
  });
}

bool register_element(gpmcp* checkpoint, void* address, std::size_t bytes,
                      long long group) noexcept {
  return said("gpmcp_register", false, [&] {
    gpmcp_register(checkpoint, address, bytes, clamped(group));
    return true;
  });
}

bool save(gpmcp* checkpoint, long long group) noexcept {
  return said("gpmcp_checkpoint", false, [&] {
    gpmcp_checkpoint(checkpoint, clamped(group));
    return true;
  });
}

bool restore(gpmcp* checkpoint, long long group) noexcept {
  return said("gpmcp_restore", false, [&] {
    gpmcp_restore(checkpoint, clamped(group));
    return true;
  });
}

}  // namespace holdfast::gpm

extern "C" void holdfast_gpm_window(int open) {
  static std::mutex mutex;
  static bool is_open = false;  // applications end it first, and more than once
  const bool wanted = open != 0;
  holdfast::gpm::said(wanted ? "ddio_off" : "ddio_on", false, [&] {
    const std::lock_guard lock(mutex);
    if (wanted == is_open) return true;
    wanted ? gpm_persist_begin() : gpm_persist_end();
    is_open = wanted;
    return true;
  });
}
