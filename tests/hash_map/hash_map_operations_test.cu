#include "hash_map/hash_map_operations_test.hpp"

#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

struct Some {
  std::uint64_t remainder;
  std::uint32_t least;
  __device__ bool operator()(std::uint64_t key, const void* value) const {
    return key % 3 == remainder && *static_cast<const std::uint32_t*>(value) >= least;
  }
};

struct Initial {
  std::uint32_t seed;
  std::uint32_t words;
  __device__ void operator()(std::uint64_t key, void* value) const {
    for (std::uint32_t word = 0; word < words; ++word) {
      static_cast<std::uint32_t*>(value)[word] =
          static_cast<std::uint32_t>(key) * 2654435761u + seed + word;
    }
  }
};

}  // namespace

std::uint64_t export_some(const OperationsMap& map, std::uint64_t first, std::uint64_t slots,
                          std::uint64_t remainder, std::uint32_t least, std::uint64_t* keys,
                          void* values) {
  return map.export_batch_if(first, slots, Some{remainder, least}, keys, values);
}

MapResult find_or_initialise(OperationsMap& map, const std::uint64_t* keys, std::uint32_t seed,
                             void* out, std::size_t count, MapStatus* status) {
  return map.find_or_insert(keys, Initial{seed, map.value_bytes() / 4}, out, count, status);
}

}  // namespace holdfast::test
