// For structures that are made of more than one durable object.
#pragma once

#include <string_view>

#include "holdfast/error.hpp"
#include "holdfast/region.hpp"

namespace holdfast {

// Whether it is whole; if not, what there is of it is of a creation that was cut off. Throws what
// else is wrong.
template <class Object>
bool is_whole(Region& region, std::string_view name) {
  try {
    (void)Object::open(region, name);
  } catch (const Error& error) {
    if (error.code() != Errc::not_found) throw;
    return false;
  }
  return true;
}

// Whether there is an object of this name, of this type or another. Throws damaged, no_memory.
template <class Object>
bool is_taken(Region& region, std::string_view name) {
  try {
    return is_whole<Object>(region, name);
  } catch (const Error& error) {
    if (error.code() == Errc::damaged || error.code() == Errc::no_memory) throw;
    return true;
  }
}

}  // namespace holdfast
