#include "core/growth.hpp"

#include "core/format.hpp"

namespace holdfast::core {

using detail::concat;

std::byte* allocate_enlarging(Region& region, const std::string& where, const std::string& object,
                              const char* type, std::uint32_t element_bytes, std::uint64_t count) {
  return make_enlarging(region, where, object, count * element_bytes, [&] {
    return static_cast<std::byte*>(
        region.allocate_raw(object, type, element_bytes, count, Tracking::marked));
  });
}

void enlarge_for(Region& region, const std::string& where, const std::string& object,
                 std::uint64_t bytes) {
  const ObjectInfo last = region.objects().back();
  const std::uint64_t wanted = last.offset + (pages_of(last.bytes()) + pages_of(bytes)) * kPage;
  if (wanted <= region.size()) throw;  // not for want of bytes
  if (wanted > region.max_size()) {
    throw Error(Errc::no_space,
                concat(where, ": to grow it takes ", bytes, " bytes for '", object,
                       "'; the region would have ", wanted, ", and can have ", region.max_size(),
                       " (max_size): open it with more, or remove something"));
  }
  region.grow(wanted);
}

void refuse_foreign(const Region& region, const std::string& where, const std::string& name,
                    const std::string& object) {
  if (!region.contains(object)) return;
  throw Error(Errc::already_exists,
              concat(where, ": to grow it makes an object '", object,
                     "', and the region has one that is another's: copy what that holds into "
                     "one whose name does not begin with '",
                     name, ".', and remove() it"));
}

}  // namespace holdfast::core
