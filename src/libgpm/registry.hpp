// The maps and logs of libGPM's interfaces that are open in this process.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "core/domain.hpp"
#include "holdfast/compat/gpmlog.hpp"
#include "holdfast/region.hpp"
#include "holdfast/stream.hpp"
#include "holdfast/transaction.hpp"
#include "holdfast/undo_log.hpp"

struct gpmcp;

namespace holdfast::gpm {

// Objects of the regions.
inline constexpr const char* kObject = "gpm";
inline constexpr const char* kLog = "gpmlog";
inline constexpr const char* kTransaction = "gpmlog.tx";  // begins as the log's name does

inline constexpr std::size_t kMostBytes = std::size_t{1} << 40;

// A region of this size that make(region) fills. Of one that it cannot fill nothing is left.
template <class Make>
Region make_region(const char* path, std::uint64_t bytes, Make&& make) {
  RegionOptions options;
  options.size = bytes;
  options.domain = core::domain_for(path);
  Region region = Region::create(path, options);
  try {
    make(region);
  } catch (...) {
    region.abandon();
    Region::destroy(path);
    throw;
  }
  return region;
}

// A log with everything that it stands on. Members are let go of from the last to the first.
struct OpenLog {
  Region region;
  Transaction transaction;
  UndoLog log;
  DeviceBuffer<::gpmlog> view;
};

// A map, with its bytes, which can be asked for in a forked child, too.
struct OpenMap {
  std::unique_ptr<Region> region;
  std::uint64_t bytes;
};

// Maps a file that is there; one whose creation was cut off is made anew, with so many bytes.
// Throws as gpm_map().
void* reopen_map(const std::string& path, std::size_t bytes);
// A checkpoint file that was made with these limits; one that was not made to its end is made anew.
// Throws as gpmcp_open() and gpmcp_create(), and already_exists if it was made with others, or is
// none.
::gpmcp* reopen_checkpoint(const std::string& path, std::size_t bytes, int elements, int groups);

// Throws invalid_argument where no log has such a shape, as creating it would.
void check_log(std::size_t bytes, int blocks, int threads, bool managed);

struct Registry {
  std::mutex mutex;
  std::map<void*, OpenMap> maps;
  std::map<::gpmlog*, std::unique_ptr<OpenLog>> logs;
};

// Never destroyed: a program that exits without unmapping leaves what a crash leaves, and the
// GPU's runtime may be gone by then.
inline Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

}  // namespace holdfast::gpm
