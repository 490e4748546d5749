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

}  // namespace

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

}  // namespace holdfast::test
