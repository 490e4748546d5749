// The region that a contestant keeps its map in.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "contestant.hpp"
#include "holdfast/region.hpp"

namespace maps {

// A value's bytes on the medium.
struct alignas(128) ValueBlock {
  static constexpr const char* kTypeName = "map_rival_value";
  std::byte bytes[kValueBytes];
};

// Objects have Tracking::none: they survive the death of a process, which is the rung of all
// contestants here, and nothing has to be marked for commits that are never made.
inline constexpr holdfast::Tracking kTracking = holdfast::Tracking::none;

// Opens the region at `path`, or creates one of so many bytes. `fresh` says which. `most`: that it
// can grow to; 0: as a region is by default.
inline holdfast::Region open_or_create(const std::string& path, std::uint64_t bytes, bool& fresh,
                                       std::uint64_t most = 0) {
  fresh = !std::filesystem::exists(path);
  if (!fresh) {
    holdfast::OpenOptions opening;
    opening.max_size = most;
    return holdfast::Region::open(path, opening);
  }
  holdfast::RegionOptions options;
  options.size = bytes + (std::uint64_t{4} << 20);  // its own tables
  options.max_size = most;
  return holdfast::Region::create(path, options);
}

// The array of this name, made if the region is fresh.
template <class T>
T* array_in(holdfast::Region& region, bool fresh, const char* name, std::uint64_t count) {
  return fresh ? region.allocate<T>(name, count, kTracking).data() : region.find<T>(name).data();
}

}  // namespace maps
