#include "bytes_map/bytes_map_ref_test.hpp"

#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

__device__ void make_step(const BytesMapRef& ref, const BytesMapRef::Group& group, BytesStep& step,
                          const BytesSteps& all, std::byte* out) {
  const ByteSpan key = all.keys[step.key], value = all.values[step.value];
  MapStatus status{};
  BytesHit hit;
  BytesFound read{};
  switch (step.call) {
    case BytesCall::insert:
      status = ref.insert(group, key, value);
      break;
    case BytesCall::insert_or_assign:
      status = ref.insert_or_assign(group, key, value);
      break;
    case BytesCall::erase:
      status = ref.erase(group, key);
      break;
    default:
      hit = ref.find(group, key);
      read = ref.read(group, hit, out);
  }
  group.sync();
  if (group.rank != 0) return;
  step.status = status;
  step.found = hit.found;
  step.read = read;
  step.bytes = hit.bytes;
}

__global__ void make_steps_kernel(BytesMapRef ref, BytesSteps all) {
  const BytesMapRef::Group group;
  const std::uint32_t number = (blockIdx.x * blockDim.x + threadIdx.x) / BytesMapRef::kWidth;
  if (number >= all.groups) return;
  for (std::uint32_t i = number * all.each; i < (number + 1) * all.each; ++i) {
    BytesStep& step = all.steps[i];
    if (group.rank == 0) step.begun = atomicAdd(all.clock, 1ull);
    group.sync();
    make_step(ref, group, step, all, all.out + std::size_t{i} * all.out_stride);
    if (group.rank == 0) step.ended = atomicAdd(all.clock, 1ull);
    group.sync();
  }
}

}  // namespace

void make_steps(Stream& stream, const BytesMapRef& ref, const BytesSteps& steps,
                unsigned groups_of_block) {
  launch(stream, dim3(blocks_for(steps.groups, groups_of_block)),
         dim3(groups_of_block * BytesMapRef::kWidth), make_steps_kernel, ref, steps);
}

}  // namespace holdfast::test
