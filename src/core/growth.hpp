// Objects with which a structure grows: further ones, beside its durable object, which never
// changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "holdfast/region.hpp"

namespace holdfast::core {

// Makes a marked object, in a region that is enlarged where it has no room. `where` is for
// messages. REQUIRES: the region has an object. Throws as Region::allocate(); no_space says what
// the region would have to have. Nothing has changed then, but that the region may be larger.
std::byte* allocate_enlarging(Region& region, const std::string& where, const std::string& object,
                              const char* type, std::uint32_t element_bytes, std::uint64_t count);

// What is done where something that takes `bytes` behind the region's last object has thrown
// no_space: enlarges the region for it, or throws what was thrown, or no_space, as above.
// REQUIRES: called by the handler.
void enlarge_for(Region& region, const std::string& where, const std::string& object,
                 std::uint64_t bytes);

// Does `make`, of something that takes `bytes` there, in a region that is enlarged where it has no
// room. Throws as it does, and as enlarge_for().
template <class Make>
auto make_enlarging(Region& region, const std::string& where, const std::string& object,
                    std::uint64_t bytes, const Make& make) -> decltype(make()) {
  try {
    return make();
  } catch (const Error& error) {
    if (error.code() != Errc::no_space) throw;
    enlarge_for(region, where, object, bytes);
  }
  return make();
}

// Throws already_exists if the region has an object of this name, which `name` needs to grow.
void refuse_foreign(const Region& region, const std::string& where, const std::string& name,
                    const std::string& object);

}  // namespace holdfast::core
