// What a region holds, by name.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "holdfast/region.hpp"

namespace holdfast::test {

// In the order of the names.
inline std::vector<std::string> names_in(const Region& region) {
  std::vector<std::string> names;
  for (const ObjectInfo& object : region.objects()) names.push_back(object.name);
  std::sort(names.begin(), names.end());
  return names;
}

// Whether there is anything of a growth that was cut off, or is through.
inline bool has_remains(const Region& region) {
  const std::vector<std::string> names = names_in(region);
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    return name.find("grown") != std::string::npos;
  });
}

}  // namespace holdfast::test
