// Regions in surroundings that a test supplies.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "core/domain.hpp"
#include "holdfast/region.hpp"

namespace holdfast::core {

struct RegionAccess {
  // As the functions of Region; of domains only the file domain has surroundings.
  static Region create(const std::string& path, const RegionOptions& options,
                       const Surroundings& around);
  static Region open(const std::string& path, const OpenOptions& options,
                     const Surroundings& around);
  static Region open_or_create(const std::string& path, const RegionOptions& options,
                               const OpenOptions& opening, const Surroundings& around);

  // Before the first work of a writer that pending() is told of behind its last, and which commits
  // may meet that are on their way. By itself pending() has to suppose more of them.
  static void writer_begins(const Region& region);

  static testing::Throttle& throttle(const Region& region);

  // Of an object that has one user at a time: waits for what its user has under way. Throws
  // not_found.
  static void settle_user(const Region& region, std::string_view object);
  // From now on the caller is its user, and whoever was that before is not. `settle`, if it is not
  // empty, waits for what the caller has under way, and may be called as long as the region is
  // open. The result says whether the caller still is its user, and the region open; it may outlive
  // the region. Throws not_found.
  static std::function<bool()> take_over(const Region& region, std::string_view object,
                                         std::function<void()> settle = {});
};

}  // namespace holdfast::core
