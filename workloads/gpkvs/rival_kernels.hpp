// What the store's rivals of the workload run in place of its kernel that logs and persists.
#pragma once

#include "kv_store/table.hpp"
#include "workload/delta_ref.hpp"

namespace gpkvs {

// What the kernels of a rival's batch report; in device memory.
struct RivalOutcome {
  holdfast::kv::Outcome store;
  std::uint32_t gathered;  // changes, where they are gathered
};

// Stores the changes that the store's kernels have found, without log and persists: for tables that
// the CPU makes durable behind the kernel. Stream-ordered.
void launch_store_unlogged(holdfast::Stream& stream, const holdfast::kv::Table& kvs,
                           const holdfast::kv::Batch& batch, const holdfast::kv::Outcome* outcome);
// The same, and gathers the changes in `delta`, a pair being a cell: in the order of positions, but
// for blocks of threads that overtake others.
void launch_store_gathered(holdfast::Stream& stream, const holdfast::kv::Table& kvs,
                           const holdfast::kv::Batch& batch, const workload::DeltaRef& delta,
                           RivalOutcome* outcome);

}  // namespace gpkvs
