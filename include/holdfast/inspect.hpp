// Looking at a region's files without opening the region: for tools.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "holdfast/region.hpp"

namespace holdfast {

// The arena that belongs to an image.
struct ArenaInfo {
  std::string path;  // where it is, or would be
  bool exists = false;
  bool valid = false;       // the next open() would adopt it or, after a reboot, pass it over
  bool this_boot = false;   // left by a crash since the last boot
  std::uint64_t bytes = 0;  // of the file
  std::string problem;      // why it is not valid
};

struct ImageInfo {
  std::string path;
  std::uint32_t version = 0;
  bool in_use = false;  // a process has the region open
  std::string uuid;
  std::uint64_t created_unix_ns = 0;
  std::uint64_t generation = 0;
  std::uint64_t committed_unix_ns = 0;
  std::uint64_t region_bytes = 0;
  std::uint64_t file_bytes = 0;       // as far as it reaches
  std::uint64_t allocated_bytes = 0;  // what it takes on the disk
  std::uint64_t pages_stored = 0;     // pages that are not all zero
  std::vector<ObjectInfo> objects;    // of the last commit
  ArenaInfo arena;
};

enum class Verify {
  tables,      // header, records, tables and directory
  everything,  // every page as well
};

// Reads the last commit of a file-backed region, also while a process has the region open. Writes
// nothing. Throws as Region::open() does. `arena_folder` as in OpenOptions.
ImageInfo inspect_image(const std::string& path, Verify verify = Verify::tables,
                        const std::string& arena_folder = "");

}  // namespace holdfast
