#include "bytes_map_refs.hpp"

#include "holdfast/kernel.hpp"

namespace bench {
namespace {

using holdfast::BytesFound;
using holdfast::BytesHit;
using holdfast::BytesMapRef;
using holdfast::ByteSpan;
using holdfast::MapStatus;

__device__ ByteSpan span_of(const RefStrings& strings, std::uint32_t i) {
  return {strings.bytes + strings.offsets[i], strings.offsets[i + 1] - strings.offsets[i]};
}

__global__ void apply_kernel(BytesMapRef ref, RefBatch batch) {
  const BytesMapRef::Group group;
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const auto i = static_cast<std::uint32_t>(thread / BytesMapRef::kWidth);
  if (i >= batch.count) return;
  const ByteSpan key = span_of(batch.keys, i), value = span_of(batch.values, i);
  MapStatus status{};
  BytesFound found{};
  if (batch.call == RefCall::find) {
    const BytesHit hit = ref.find(group, key);
    found = hit.found == BytesFound::present && hit.bytes != value.count
                ? BytesFound::damaged
                : ref.read(group, hit, batch.values.bytes + batch.values.offsets[i]);
  } else if (batch.call == RefCall::erase) {
    status = ref.erase(group, key);
  } else if (batch.call == RefCall::insert) {
    status = ref.insert(group, key, value);
  } else {
    status = ref.insert_or_assign(group, key, value);
  }
  if (group.rank != 0) return;
  batch.status[i] = status;
  batch.found[i] = found;
}

}  // namespace

void apply(holdfast::Stream& stream, const BytesMapRef& ref, const RefBatch& batch) {
  constexpr unsigned kGroups = 256 / BytesMapRef::kWidth;
  holdfast::launch(stream, dim3(holdfast::blocks_for(batch.count, kGroups)), dim3(256),
                   apply_kernel, ref, batch);
}

}  // namespace bench
