#include "kv_store/read_copy.hpp"

#include <string_view>

#include "kv_store/rules.hpp"

namespace holdfast::kv {

using detail::concat;
using Cache = KvStore::Cache;

bool wants_copy(Cache cache, std::uint64_t bytes, std::uint64_t free, bool across_link) {
  switch (cache) {
    case Cache::off:
      return false;
    case Cache::automatic:
      return across_link && bytes <= free - free / 8;
    case Cache::on:
      break;
  }
  if (bytes <= free) return true;
  throw Error(
      Errc::no_memory,
      concat("store: the copy of its table takes ", bytes, " bytes of device memory, and ", free,
             " are free: free some, make a store of a smaller capacity, or open it "
             "with the cache off or automatic"));
}

DeviceBuffer<Bucket> make_copy(Cache cache, std::uint64_t buckets, bool on_device) {
  if (cache == Cache::off) return {};
  // The CPU backend's device memory is the host's: a copy would only take room.
  const bool across_link = !on_device && std::string_view(backend::name()) == "cuda";
  const std::uint64_t bytes = buckets * sizeof(Bucket);
  if (!wants_copy(cache, bytes, backend::free_device_memory(), across_link)) return {};
  try {
    return DeviceBuffer<Bucket>(buckets);
  } catch (const Error& error) {
    // What is free may be in pieces, or another process's by now.
    if (cache == Cache::automatic && error.code() == Errc::no_memory) return {};
    throw;
  }
}

}  // namespace holdfast::kv
