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

  // From now on the caller uses an object that has one user at a time, and whoever did so before
  // does not. The result says whether that is still so, which ends with the region, and may outlive
  // it. Throws not_found.
  static std::function<bool()> take_over(const Region& region, std::string_view object);
};

}  // namespace holdfast::core
