#include "gpkvs/rival_kernels.hpp"

#include "kv_store/kernels.hpp"
#include "kv_store/replacement.hpp"

namespace gpkvs {
namespace {

namespace kv = holdfast::kv;

__global__ void store_unlogged(kv::Table kvs, kv::Batch batch, const kv::Outcome* outcome) {
  const kv::Replacement mine = kv::replacement_of_thread(batch, outcome);
  kv::store_in_table(kvs, mine);
  if (mine.needed) kv::store_in_copy(kvs, mine);
}

__global__ void store_gathered(kv::Table kvs, kv::Batch batch, workload::DeltaRef delta,
                               RivalOutcome* outcome) {
  const kv::Replacement mine = kv::replacement_of_thread(batch, &outcome->store);
  const std::uint32_t slot = workload::take_slot(&outcome->gathered, mine.needed);
  kv::store_in_table(kvs, mine);
  if (!mine.needed) return;
  delta.put(slot, mine.change.bucket * kv::kWays + mine.change.way,
            workload::Cell{{mine.after.key, mine.after.value}});
}

}  // namespace

void launch_store_unlogged(holdfast::Stream& stream, const kv::Table& kvs, const kv::Batch& batch,
                           const kv::Outcome* outcome) {
  holdfast::launch(stream, holdfast::blocks_for(batch.count, kv::kBlock), kv::kBlock,
                   store_unlogged, kvs, batch, outcome);
}

void launch_store_gathered(holdfast::Stream& stream, const kv::Table& kvs, const kv::Batch& batch,
                           const workload::DeltaRef& delta, RivalOutcome* outcome) {
  holdfast::launch(stream, holdfast::blocks_for(batch.count, kv::kBlock), kv::kBlock,
                   store_gathered, kvs, batch, delta, outcome);
}

}  // namespace gpkvs
