// The host's part of the artifact's interface (compat/libgpm.cuh), on that of the paper.
#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string>

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

// Whether the region in this file has an object of this name. Throws what Region::open() does.
bool holds(const std::string& path, const char* object) {
  OpenOptions options;
  options.mode = OpenMode::read_only;
  Region region = Region::open(path, options);
  const bool there = region.contains(object);
  region.close();
  return there;
}

int whole(const char* what, long long number) {
  if (number >= 0 && number <= INT_MAX) return static_cast<int>(number);
  throw Error(Errc::invalid_argument, concat(what, " ", number, ": give 0 to ", INT_MAX));
}

Region* region_of(const void* address, std::size_t bytes) {
  const auto first = reinterpret_cast<std::uintptr_t>(address);
  for (const auto& [start, region] : registry().maps) {
    const auto from = reinterpret_cast<std::uintptr_t>(start);
    const std::uint64_t size = region->object(kObject).bytes();
    if (first >= from && bytes <= size && first - from <= size - bytes) return region.get();
  }
  return nullptr;
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
    void* const address = gpm_map(place.c_str(), reuse ? 0 : *bytes, create && !reuse);
    std::size_t there = 0;
    {
      const std::lock_guard lock(registry().mutex);
      there = registry().maps.at(address)->object(kObject).bytes();
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

bool copy(void* to, const void* from, int value, std::size_t bytes) noexcept {
  return said(from ? "gpm_memcpy" : "gpm_memset", false, [&] {
    if (!is_mapped(to, bytes)) {
      throw Error(Errc::invalid_argument, "the target is not within what gpm_map_file() gave");
    }
    Stream stream;
    if (from) {
      copy_async(stream, to, from, bytes);
    } else {
      fill_async(stream, to, static_cast<unsigned char>(value), bytes);
    }
    stream.synchronize();
    persist_by_host(to, bytes);
    return true;
  });
}

// Memory that a killed process leaves behind has what the host stored; a dax domain's caches are
// flushed.
void persist_by_host(void* address, std::size_t bytes) noexcept {
  said("pmem_mt_persist", false, [&] {
    const std::lock_guard lock(registry().mutex);
    Region* const region = region_of(address, bytes);
    if (region && region->domain() == Domain::dax) region->commit();
    return true;
  });
}

gpmlog* create_log(const char* path, std::size_t* bytes, int blocks, int threads,
                   bool managed) noexcept {
  return said<gpmlog*>(managed ? "gpmlog_create_managed" : "gpmlog_create", nullptr, [&] {
    const std::string place = place_of(path);
    if (is_there(place)) {
      if (!holds(place, kTransaction)) {
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
    if (is_there(place)) return reopen_checkpoint(place, bytes, elements, groups);
    return gpmcp_create(place.c_str(), bytes, whole("elements", elements), whole("groups", groups));
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
    gpmcp_register(checkpoint, address, bytes, whole("group", group));
    return true;
  });
}

bool save(gpmcp* checkpoint, long long group) noexcept {
  return said("gpmcp_checkpoint", false, [&] {
    gpmcp_checkpoint(checkpoint, whole("group", group));
    return true;
  });
}

bool restore(gpmcp* checkpoint, long long group) noexcept {
  return said("gpmcp_restore", false, [&] {
    gpmcp_restore(checkpoint, whole("group", group));
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
