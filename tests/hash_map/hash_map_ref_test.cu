#include "hash_map/hash_map_ref_test.hpp"

#include <vector>

#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

template <class Ref>
__device__ void make_step(const Ref& ref, const typename Ref::Group& group, MapStep& step,
                          typename Ref::KeyArgument key, const std::uint32_t* value,
                          std::uint32_t* out) {
  MapStatus status{};
  bool found = false;
  switch (step.call) {
    case MapCall::insert:
      status = ref.insert(group, key, value);
      break;
    case MapCall::insert_or_assign:
      status = ref.insert_or_assign(group, key, value);
      break;
    case MapCall::assign:
      status = ref.assign(group, key, value);
      break;
    case MapCall::find_or_insert:
      status = ref.find_or_insert(group, key, value, out);
      break;
    case MapCall::erase:
      status = ref.erase(group, key);
      break;
    case MapCall::find:
      found = ref.find(group, key, out);
      break;
    case MapCall::accumulate:
      status = ref.accumulate(group, key, value);
      break;
    default:
      found = ref.contains(group, key);
  }
  group.sync();
  if (group.rank != 0) return;
  step.status = status;
  step.found = found;
}

template <class Key, class Ref>
__global__ void make_steps_kernel(Ref ref, MapSteps all) {
  const typename Ref::Group group;
  const std::uint32_t number = (blockIdx.x * blockDim.x + threadIdx.x) / Ref::kWidth;
  if (number >= all.groups) return;
  const std::uint32_t words = ref.value_bytes() / 4;
  for (std::uint32_t i = number * all.each; i < (number + 1) * all.each; ++i) {
    MapStep& step = all.steps[i];
    if (group.rank == 0) step.begun = atomicAdd(all.clock, 1ull);
    group.sync();
    make_step(ref, group, step, static_cast<const Key*>(all.keys)[i], all.values + i * words,
              all.out + i * words);
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

// Keys as a program has them.
struct Room {
  std::uint64_t building;
  std::uint32_t floor, number;
};
using Named = HashMap<Room, MapConfig<8>>;
using NamedRef = HashMapRef<Room, MapConfig<8>>;
__host__ __device__ Room room(std::uint32_t i) { return {7, i % 4, i}; }

// A group for every other room, which has its number for a value.
__global__ void enter_rooms(NamedRef ref, std::uint32_t count) {
  const NamedRef::Group group;
  const std::uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) / NamedRef::kWidth;
  if (i >= count || i % 2 != 0) return;
  const std::uint64_t value = i;
  ref.insert(group, room(i), &value);
}
struct Numbered {
  __device__ void operator()(const Room& room, void* value) const {
    *static_cast<std::uint64_t*>(value) = 1000 + room.number;
  }
};
struct Upstairs {
  __device__ bool operator()(const Room& room, const void*) const { return room.floor >= 2; }
};

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

template <class Key, unsigned Width>
void make_steps(Stream& stream, HashMap<Key, MapConfig<Width>>& map, const MapSteps& steps,
                unsigned groups_of_block) {
  using Ref = HashMapRef<Key, MapConfig<Width>>;
  const Ref ref = map.ref();
  launch(stream, dim3(blocks_for(steps.groups, groups_of_block)), dim3(groups_of_block * Width),
         make_steps_kernel<Key, Ref>, ref, steps);
}

#define HOLDFAST_STEPS(Key, width) \
  template void make_steps(Stream&, HashMap<Key, MapConfig<width>>&, const MapSteps&, unsigned);
HOLDFAST_STEPS(std::uint64_t, 4)
HOLDFAST_STEPS(std::uint64_t, 8)
HOLDFAST_STEPS(std::uint64_t, 32)
HOLDFAST_STEPS(Bytes<16>, 4)
HOLDFAST_STEPS(Bytes<16>, 8)
HOLDFAST_STEPS(Bytes<40>, 4)
HOLDFAST_STEPS(Bytes<32>, 8)
HOLDFAST_STEPS(Bytes<40>, 8)
#undef HOLDFAST_STEPS

void insert_by_thread(Stream& stream, HashMap<std::uint64_t, MapConfig<32>>& map,
                      const std::uint64_t* keys, std::uint32_t count) {
  launch(stream, dim3(blocks_for(count, 64)), dim3(64), insert_by_thread_kernel, map.ref(), keys,
         count);
}

std::string use_named_keys(Region& region) {
  constexpr std::uint32_t kRooms = 100;
  MapOptions options;
  options.capacity = 400;
  options.max_batch = kRooms;
  Named map = Named::create(region, "rooms", options);
  launch(map.stream(), dim3(blocks_for(kRooms * NamedRef::kWidth, 64)), dim3(64), enter_rooms,
         map.ref(), kRooms);
  map.stream().synchronize();
  map.quiesce();
  std::vector<Room> rooms(kRooms);
  for (std::uint32_t i = 0; i < kRooms; ++i) rooms[i] = room(i);
  std::vector<std::uint64_t> first(kRooms, ~std::uint64_t{0}), found(kRooms);
  const MapResult result = map.find_or_insert(rooms.data(), Numbered(), first.data(), kRooms);
  if (result.kept != kRooms / 2 || result.inserted != kRooms / 2) return "a room is lost";
  for (std::uint32_t i = 0; i < kRooms; ++i) {
    if (first[i] != (i % 2 == 0 ? i : 1000 + i)) return "a room has another's value";
  }
  std::vector<Room> upstairs(kRooms);
  const std::uint64_t exported =
      map.export_batch_if(0, map.capacity(), Upstairs(), upstairs.data(), found.data());
  if (exported != kRooms / 2) return "an export has other rooms";
  for (std::uint64_t i = 0; i < exported; ++i) {
    if (upstairs[i].floor < 2 || found[i] % 1000 != upstairs[i].number) return "and other values";
  }
  return map.verify();
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
