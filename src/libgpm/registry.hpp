// The maps and logs of libGPM's interfaces that are open in this process.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

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
inline constexpr const char* kTransaction = "gpmlog.tx";

// A log with everything that it stands on. Members are let go of from the last to the first.
struct OpenLog {
  Region region;
  Transaction transaction;
  UndoLog log;
  DeviceBuffer<::gpmlog> view;
};

// A checkpoint file that was made with these limits. Throws as gpmcp_open(), and already_exists
// if it was made with others.
::gpmcp* reopen_checkpoint(const std::string& path, std::size_t bytes, long long elements,
                           long long groups);

struct Registry {
  std::mutex mutex;
  std::map<void*, std::unique_ptr<Region>> maps;
  std::map<::gpmlog*, std::unique_ptr<OpenLog>> logs;
};

// Never destroyed: a program that exits without unmapping leaves what a crash leaves, and the
// GPU's runtime may be gone by then.
inline Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

}  // namespace holdfast::gpm
