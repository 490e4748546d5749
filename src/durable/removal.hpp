// For structures that can be removed while they are open in this process, or damaged.
#pragma once

#include <string>
#include <string_view>

#include "core/region_access.hpp"
#include "durable/is_whole.hpp"
#include "holdfast/durable.hpp"
#include "holdfast/error.hpp"
#include "holdfast/region.hpp"

namespace holdfast {

// Throws not_found, invalid_argument (it has another type), newer_version, no_memory. One that is
// damaged, or of an earlier version, passes.
template <class Object>
void check_removable(Region& region, std::string_view name) {
  try {
    (void)Object::open(region, name);
  } catch (const Error& error) {
    if (error.code() != Errc::damaged && error.code() != Errc::unsupported) throw;
  }
}

// Does `removal` where what it removes is there.
template <class Removal>
void remove_if_there(Removal&& removal) {
  try {
    removal();
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
  }
}

// Removes what is there of an object that something that was cut off has left, if it is of this
// type. What cannot be removed stays: it takes room, and who makes another of its name is told.
template <class Object>
void drop_remains(Region& region, std::string_view name) {
  if (!region.contains(detail::concat(name, ".", Part::kHeader))) return;
  try {
    (void)is_whole<Object>(region, name);  // throws where it is of another type
    Object::remove(region, name);
  } catch (const Error&) {
  }
}

// Whoever has it open in this process, which is the user of its part `part`, is ended first. Throws
// as check_removable(), and as Object::remove().
template <class Object>
void remove_in_use(Region& region, std::string_view name, const char* part) {
  check_removable<Object>(region, name);
  const std::string used = detail::concat(name, ".", part);
  if (region.contains(used)) (void)core::RegionAccess::take_over(region, used);
  Object::remove(region, name);
}

}  // namespace holdfast
