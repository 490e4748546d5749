// A copy of a region, beside whoever uses it.
#pragma once

#include <cstdint>
#include <string>

#include "holdfast/region.hpp"

namespace holdfast {

struct BackupReport {
  std::string uuid;              // the copy's own
  bool arena_found = false;      // the copy holds what a crashed process had persisted
  std::uint64_t generation = 0;  // of the commit that was copied; 0 for an arena without its image
  std::uint64_t region_bytes = 0;
  std::uint64_t pages_written = 0;
};

// Writes a consistent copy of the file-backed region `from` into the new file `to`, durably, with a
// uuid of its own: both may be open at once. Beside a process that has the region open it is a copy
// of the last commit; after a crash, of what was persisted. `from` may be of an older version of
// the format, or an arena whose image is lost. Objects with Tracking::none are zeros in it. Takes
// as much memory as the region has bytes. Throws as Region::open() for `from`, as Region::create()
// for `to`; `to` then does not exist.
BackupReport backup(const std::string& from, const std::string& to,
                    const OpenOptions& options = {});

}  // namespace holdfast
