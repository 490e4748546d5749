#include "hash_map/hash_map_ref_test.hpp"

#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

template <class Ref>
__device__ void make_step(const Ref& ref, const typename Ref::Group& group, MapStep& step,
                          const std::uint32_t* value, std::uint32_t* out) {
  MapStatus status{};
  bool found = false;
  switch (step.call) {
    case MapCall::insert:
      status = ref.insert(group, step.key, value);
      break;
    case MapCall::insert_or_assign:
      status = ref.insert_or_assign(group, step.key, value);
      break;
    case MapCall::assign:
      status = ref.assign(group, step.key, value);
      break;
    case MapCall::find_or_insert:
      status = ref.find_or_insert(group, step.key, value, out);
      break;
    case MapCall::erase:
      status = ref.erase(group, step.key);
      break;
    case MapCall::find:
      found = ref.find(group, step.key, out);
      break;
    case MapCall::accumulate:
      status = ref.accumulate(group, step.key, value);
      break;
    default:
      found = ref.contains(group, step.key);
  }
  group.sync();
  if (group.rank != 0) return;
  step.status = status;
  step.found = found;
}

template <class Ref>
__global__ void make_steps_kernel(Ref ref, MapSteps all) {
  const typename Ref::Group group;
  const std::uint32_t number = (blockIdx.x * blockDim.x + threadIdx.x) / Ref::kWidth;
  if (number >= all.groups) return;
  const std::uint32_t words = ref.value_bytes() / 4;
  for (std::uint32_t i = number * all.each; i < (number + 1) * all.each; ++i) {
    MapStep& step = all.steps[i];
    if (group.rank == 0) step.begun = atomicAdd(all.clock, 1ull);
    group.sync();
    make_step(ref, group, step, all.values + i * words, all.out + i * words);
    if (group.rank == 0) step.ended = atomicAdd(all.clock, 1ull);
    group.sync();
  }
}

__global__ void insert_by_thread_kernel(HashMapRef<std::uint64_t, MapConfig<32>> ref,
                                        const std::uint64_t* keys, std::uint32_t count) {
  const MapGroup<32> group;
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  const std::uint64_t mine = i < count ? keys[i] : 0;
  group.in_turn(i < count, [&](unsigned rank) {
    const std::uint64_t key = group.from(mine, rank);
    ref.insert(group, key, &key);
  });
}

struct OtherHash {
  static constexpr std::uint64_t kId = 77;
  __host__ __device__ static constexpr std::uint32_t hash(std::uint64_t key, unsigned which) {
    return MapHash::hash(key * 0x9e3779b97f4a7c15ull, which + 2);
  }
};
using OtherConfig = MapConfig<32, 4, 2, OtherHash>;
using OtherMap = HashMap<std::uint64_t, OtherConfig>;

// Whether keys [0, count), and none behind them, are there.
template <class Key, class Config>
bool has_first(const HashMap<Key, Config>& map, std::uint64_t count) {
  std::uint64_t found = 0;
  map.for_each([&](Key key, const void*) { found += key < count ? 1 : 0; });
  return found == map.size() && map.size() == count;
}

// Fills a map by single keys until one does not fit, and lets it grow, four times.
template <class Key, class Config>
std::string grow_filled(Region& region, const char* name) {
  using Map = HashMap<Key, Config>;
  MapOptions options;
  options.capacity = 48;
  options.max_batch = 1;
  Map map = Map::create(region, name, options);
  std::uint64_t count = 0;
  for (int growth = 0; growth < 4; ++growth) {
    for (;; ++count) {
      const Key key = static_cast<Key>(count);
      if (map.insert(&key, &count, 1).full != 0) break;
    }
    map.grow();
    for (bool growing = true; growing; growing = map.migrate(3)) {
      if (!has_first(map, count)) return "a key is lost within a growth";
      if (const std::string wrong = map.verify(); !wrong.empty()) return wrong;
    }
    if (!has_first(map, count)) return "a key is lost by a growth";
  }
  return map.verify();
}

}  // namespace

std::string grow_other_maps(Region& region) {
  const std::string wrong = grow_filled<std::uint64_t, OtherConfig>(region, "four");
  return wrong.empty() ? grow_filled<std::uint32_t, MapConfig<8, 1, 2>>(region, "one") : wrong;
}

template <unsigned Width>
void make_steps(Stream& stream, HashMap<std::uint64_t, MapConfig<Width>>& map,
                const MapSteps& steps, unsigned groups_of_block) {
  using Ref = HashMapRef<std::uint64_t, MapConfig<Width>>;
  const Ref ref = map.ref();
  launch(stream, dim3(blocks_for(steps.groups, groups_of_block)), dim3(groups_of_block * Width),
         make_steps_kernel<Ref>, ref, steps);
}

template void make_steps<4>(Stream&, HashMap<std::uint64_t, MapConfig<4>>&, const MapSteps&,
                            unsigned);
template void make_steps<8>(Stream&, HashMap<std::uint64_t, MapConfig<8>>&, const MapSteps&,
                            unsigned);
template void make_steps<32>(Stream&, HashMap<std::uint64_t, MapConfig<32>>&, const MapSteps&,
                             unsigned);

void insert_by_thread(Stream& stream, HashMap<std::uint64_t, MapConfig<32>>& map,
                      const std::uint64_t* keys, std::uint32_t count) {
  launch(stream, dim3(blocks_for(count, 64)), dim3(64), insert_by_thread_kernel, map.ref(), keys,
         count);
}

std::string fill_other_map(Region& region, double* load) {
  MapOptions options;
  options.capacity = 8000;
  options.max_batch = 100;
  OtherMap map = OtherMap::create(region, "other", options);
  for (std::uint64_t first = 0;; first += 100) {
    std::uint64_t keys[100];
    for (std::uint64_t i = 0; i < 100; ++i) keys[i] = first + i;
    if (map.insert(keys, keys, 100).full != 0) break;
  }
  *load = map.load_factor();
  return map.verify();
}

}  // namespace holdfast::test
