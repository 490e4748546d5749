#include "core/dax_flush.hpp"

#include <sys/mman.h>

#include <cerrno>

#include "core/files.hpp"
#include "holdfast/config.hpp"

#if HOLDFAST_WITH_PMEM2
#include <libpmem2.h>
#endif

namespace holdfast::core {

namespace {

void sync_pages(const void* address, std::size_t bytes, const std::string& path) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address) / kPageBytes * kPageBytes;
  const auto end = reinterpret_cast<std::uintptr_t>(address) + bytes;
  if (::msync(reinterpret_cast<void*>(begin), end - begin, MS_SYNC) != 0) {
    throw system_error(errno, "sync", path);
  }
}

}  // namespace

#if HOLDFAST_WITH_PMEM2

struct DaxFlush::Pmem2Map {
  pmem2_map* map = nullptr;
  pmem2_persist_fn persist = nullptr;

  Pmem2Map(int fd, void* address, std::uint64_t bytes, FlushUnit unit, const std::string& path) {
    pmem2_source* source = nullptr;
    int error = pmem2_source_from_fd(&source, fd);
    if (error == 0) {
      error = pmem2_map_from_existing(
          &map, source, address, bytes,
          unit == FlushUnit::fence ? PMEM2_GRANULARITY_BYTE : PMEM2_GRANULARITY_CACHE_LINE);
      pmem2_source_delete(&source);
    }
    if (error != 0) {
      throw Error(Errc::io,
                  detail::concat("libpmem2 does not accept '", path, "': ", pmem2_errormsg()));
    }
    persist = pmem2_get_persist_fn(map);
  }
  // Forgets the mapping; the memory stays mapped.
  ~Pmem2Map() { pmem2_map_delete(&map); }
  Pmem2Map(const Pmem2Map&) = delete;
  Pmem2Map& operator=(const Pmem2Map&) = delete;
};

bool DaxFlush::available() noexcept { return true; }

#else

struct DaxFlush::Pmem2Map {
  void (*persist)(const void*, std::size_t) = nullptr;

  Pmem2Map(int, void*, std::uint64_t, FlushUnit, const std::string& path) {
    throw Error(Errc::unsupported,
                detail::concat("this build cannot flush '", path,
                               "': it was made without libpmem2. Install libpmem2-dev (PMDK) and "
                               "build again, or use Domain::file"));
  }
};

bool DaxFlush::available() noexcept { return false; }

#endif

DaxFlush::DaxFlush(int fd, void* address, std::uint64_t bytes, FlushUnit unit,
                   const std::string& path)
    : path_(path) {
  if (unit != FlushUnit::page) {
    map_ = std::make_shared<Pmem2Map>(fd, address, bytes, unit, path);
  }
}

void DaxFlush::persist(const void* address, std::size_t bytes) const {
  if (bytes == 0) return;
  if (map_) {
    map_->persist(address, bytes);
  } else {
    sync_pages(address, bytes, path_);
  }
}

}  // namespace holdfast::core
