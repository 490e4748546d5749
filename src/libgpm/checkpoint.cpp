#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "holdfast/checkpoint.hpp"
#include "holdfast/compat/libgpm.h"
#include "holdfast/platform.hpp"
#include "holdfast/region.hpp"
#include "libgpm/registry.hpp"

using holdfast::Errc;
using holdfast::Error;
using holdfast::Region;
using holdfast::detail::concat;

namespace {

constexpr const char* kName = "gpmcp";
constexpr const char* kLimits = "gpmcp.limits";
constexpr std::uint64_t kMetadataBytes = std::uint64_t{1} << 20;
constexpr int kMostGroups = 500;  // a region has 512 objects
constexpr int kMostElements = 1 << 20;
using holdfast::gpm::kMostBytes;

// What gpmcp_create() was given, in the region.
enum Limit : std::size_t { kBytes, kElements, kGroups, kLimitCount };
using Limits = std::array<std::uint64_t, kLimitCount>;

std::string group_name(int group) { return concat("group ", group); }

}  // namespace

// Members are let go of from the last to the first.
struct gpmcp {
  Region region;
  Limits limits;
  holdfast::Stream stream;
  holdfast::Checkpoint checkpoint;
  std::map<int, std::uint64_t> elements;  // registered in each group
  std::uint64_t bytes = 0;                // registered in all

  gpmcp(Region&& opened, const Limits& given)
      : region(std::move(opened)), limits(given), checkpoint(region, kName) {}

  void check_group(const char* what, int group) const {
    if (group >= 0 && static_cast<std::uint64_t>(group) < limits[kGroups]) return;
    throw Error(Errc::invalid_argument,
                concat(what, ": there is no group ", group, " in '", region.path(),
                       "': gpmcp_create() made 0 to ", limits[kGroups] - 1));
  }
};

namespace {

struct Registry {
  std::mutex mutex;
  std::map<gpmcp*, std::unique_ptr<gpmcp>> open;
};

// Never destroyed, as the one of maps and logs.
Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

gpmcp* keep(Region region, const Limits& limits) {
  auto checkpoint = std::make_unique<gpmcp>(std::move(region), limits);
  gpmcp* const handle = checkpoint.get();
  const std::lock_guard lock(registry().mutex);
  registry().open.emplace(handle, std::move(checkpoint));
  return handle;
}

gpmcp& checked(const char* what, gpmcp* checkpoint) {
  const std::lock_guard lock(registry().mutex);
  if (registry().open.contains(checkpoint)) return *checkpoint;
  throw Error(Errc::invalid_argument, concat(what, ": not an open checkpoint"));
}

// The groups share `size` bytes, whoever has how many: room for any split, with an alignment for
// each element and a page for each group.
std::uint64_t region_bytes(std::size_t size, int elements, int groups) {
  const auto each = static_cast<std::uint64_t>(elements);
  return holdfast::Checkpoint::region_bytes(size, each) +
         (groups - 1) * holdfast::Checkpoint::region_bytes(holdfast::kPageBytes, each) +
         kMetadataBytes;
}

// All zero where a crash came while the file was made, before anything was saved.
Limits limits_in(Region& region) {
  Limits limits{};
  if (!region.contains(kLimits)) return limits;
  const auto there = region.find<std::uint64_t>(kLimits);
  if (there.size() == limits.size()) {
    holdfast::Stream stream;
    holdfast::copy_async(stream, limits.data(), there.data(), sizeof(limits));
    stream.synchronize();
  }
  return limits;
}

}  // namespace

gpmcp* gpmcp_create(const char* path, std::size_t size, int elements, int groups) {
  if (size == 0 || size > kMostBytes || elements < 1 || elements > kMostElements || groups < 1 ||
      groups > kMostGroups) {
    throw Error(
        Errc::invalid_argument,
        concat("gpmcp_create('", path, "'): ", size, " bytes, ", elements, " elements in each of ",
               groups, " groups; give 1 to ", kMostBytes, " bytes, 1 to ", kMostElements,
               " elements and 1 to ", kMostGroups, " groups"));
  }
  const Limits limits{size, static_cast<std::uint64_t>(elements),
                      static_cast<std::uint64_t>(groups)};
  const auto fill = [&](Region& made) {
    std::uint64_t* const there = made.allocate<std::uint64_t>(kLimits, kLimitCount).data();
    // The host may be unable to store there: the memory may be the device's.
    holdfast::Stream stream;
    holdfast::copy_async(stream, there, limits.data(), sizeof(limits));
    stream.synchronize();
  };
  Region region = holdfast::gpm::make_region(path, region_bytes(size, elements, groups), fill);
  return keep(std::move(region), limits);
}

gpmcp* gpmcp_open(const char* path) {
  Region region = Region::open(path);
  if (!region.contains(kLimits)) {
    region.abandon();
    throw Error(Errc::not_found, concat("gpmcp_open('", path,
                                        "'): the file holds no checkpoint: make one with "
                                        "gpmcp_create()"));
  }
  const Limits limits = limits_in(region);
  if (limits[kGroups] == 0) {
    region.abandon();
    throw Error(Errc::damaged, concat("gpmcp_open('", path,
                                      "'): it was not made to its end, and nothing was saved: "
                                      "gpmcp_create() makes it anew"));
  }
  return keep(std::move(region), limits);
}

gpmcp* holdfast::gpm::reopen_checkpoint(const std::string& path, std::size_t bytes, int elements,
                                        int groups) {
  Region region = Region::open(path);
  if (!region.contains(kLimits) && !region.objects().empty()) {
    region.abandon();
    throw Error(Errc::already_exists, concat("'", path,
                                             "' is there and no checkpoint: remove it, or "
                                             "choose another path"));
  }
  const Limits limits = limits_in(region);
  if (limits[kGroups] == 0) {
    region.close();
    Region::destroy(path);
    return gpmcp_create(path.c_str(), bytes, elements, groups);
  }
  if (limits ==
      Limits{bytes, static_cast<std::uint64_t>(elements), static_cast<std::uint64_t>(groups)}) {
    return keep(std::move(region), limits);
  }
  region.close();
  throw Error(Errc::already_exists, concat("'", path, "' is there, made for ", limits[kBytes],
                                           " bytes, ", limits[kElements], " elements and ",
                                           limits[kGroups], " groups: remove it first"));
}

void gpmcp_close(gpmcp* checkpoint) {
  std::unique_ptr<gpmcp> open;
  {
    const std::lock_guard lock(registry().mutex);
    const auto found = registry().open.find(checkpoint);
    if (found == registry().open.end()) {
      throw Error(Errc::invalid_argument, "gpmcp_close: not an open checkpoint");
    }
    open = std::move(found->second);
    registry().open.erase(found);
  }
  open->region.close();
}

void gpmcp_register(gpmcp* checkpoint, void* address, std::size_t size, int group) {
  constexpr const char* kWhat = "gpmcp_register";
  gpmcp& open = checked(kWhat, checkpoint);
  open.check_group(kWhat, group);
  const auto found = open.elements.find(group);
  const std::uint64_t number = found == open.elements.end() ? 0 : found->second;
  const auto refuse = [&](std::uint64_t limit, const char* of) {
    throw Error(Errc::invalid_argument,
                concat(kWhat, ": data structure ", number + 1, " of group ", group, ", of ", size,
                       " bytes: gpmcp_create() made '", open.region.path(), "' for ", limit, of));
  };
  if (number == open.limits[kElements]) refuse(open.limits[kElements], " in each group");
  if (size > open.limits[kBytes] - open.bytes) refuse(open.limits[kBytes], " bytes in all");
  open.checkpoint.add_raw(group_name(group), {concat("element ", number), "u8", size, 1}, address);
  open.elements[group] = number + 1;
  open.bytes += size;
}

void gpmcp_checkpoint(gpmcp* checkpoint, int group) {
  gpmcp& open = checked("gpmcp_checkpoint", checkpoint);
  open.check_group("gpmcp_checkpoint", group);
  holdfast::backend::synchronize();
  open.checkpoint.save(open.stream, group_name(group));
  open.stream.synchronize();
}

void gpmcp_restore(gpmcp* checkpoint, int group) {
  gpmcp& open = checked("gpmcp_restore", checkpoint);
  open.check_group("gpmcp_restore", group);
  holdfast::backend::synchronize();
  if (open.checkpoint.restore(open.stream, group_name(group))) return;
  throw Error(Errc::not_found, concat("gpmcp_restore: group ", group, " of '", open.region.path(),
                                      "' was never saved: call gpmcp_checkpoint() first"));
}
