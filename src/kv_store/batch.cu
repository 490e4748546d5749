#include "kv_store/batch.hpp"

#include <bit>

#include "kv_store/kernels.hpp"

namespace holdfast::kv {
namespace {

constexpr unsigned kThreads = 256;

__device__ std::uint32_t thread_in_row() { return blockIdx.x * blockDim.x + threadIdx.x; }

__global__ void find_buckets(Table kvs, const std::uint64_t* keys, std::uint32_t count,
                             std::uint32_t* bucket, std::uint32_t* op, Outcome* outcome) {
  const std::uint32_t i = thread_in_row();
  if (i >= count) return;
  const std::uint64_t key = keys[i];
  bucket[i] = kvs.bucket_of(key);
  op[i] = i;
  if (key == kReservedKey) atomicAdd(&outcome->reserved_keys, 1u);
}

__global__ void claim_keys(Batch batch, std::uint32_t* claim_of) {
  const std::uint32_t op = thread_in_row();
  if (op < batch.count) claim_of[op] = enter_claim(batch.claims, batch.keys, op);
}

// Whether the next link is of the same chain and the same key.
__device__ bool is_followed_by_its_key(const Batch& batch, std::uint32_t i) {
  return i + 1 < batch.count && batch.chain_bucket[i + 1] == batch.chain_bucket[i] &&
         batch.keys[batch.chain_op[i + 1]] == batch.keys[batch.chain_op[i]];
}

// Sorted by bucket, operations of one bucket are neighbours; the first leads. Until changes are
// chosen there are none.
__global__ void find_chains(Batch batch, std::uint32_t* starts, std::uint32_t* skips) {
  constexpr unsigned kWarps = kThreads / 32;
  __shared__ unsigned stops[kWarps];  // links that are not followed by their key, as bits
  const std::uint32_t i = thread_in_row();
  const bool there = i < batch.count;
  if (there) {
    const std::uint32_t position = batch.position_of(i);
    const bool first = i == 0 || batch.chain_bucket[i - 1] != batch.chain_bucket[i];
    starts[position] = first ? i : kNone;
    batch.changes[position] = Change{};
  }
  unsigned warp = threadIdx.x / 32;
  const unsigned lane = threadIdx.x % 32;
  const unsigned stopping = __ballot_sync(0xffffffffu, !there || !is_followed_by_its_key(batch, i));
  if (lane == 0) stops[warp] = stopping;
  __syncthreads();
  if (!there) return;
  // Past links of the same key to the last of them in this block, or to the next block.
  std::uint32_t first_of_warp = i - lane;
  unsigned ahead = stopping & (0xffffffffu << lane);
  while (ahead == 0 && ++warp < kWarps) {
    ahead = stops[warp];
    first_of_warp += 32;
  }
  skips[i] = ahead != 0
                 ? first_of_warp + static_cast<std::uint32_t>(__ffs(static_cast<int>(ahead))) - 1
                 : (blockIdx.x + 1) * kThreads;
}

}  // namespace

BatchPlanner::BatchPlanner(std::uint32_t max_batch)
    : keys_(max_batch),
      values_(max_batch),
      bucket_(max_batch),
      op_(max_batch),
      sorted_bucket_(max_batch),
      sorted_op_(max_batch),
      starts_(max_batch),
      skips_(max_batch),
      changes_(max_batch),
      sorter_(max_batch) {}

void BatchPlanner::reserve_mixed() {
  if (kinds_.size() != 0) return;
  const std::size_t most = keys_.size();
  claims_ = DeviceBuffer<unsigned long long>(claims_for(most));
  claim_of_ = DeviceBuffer<std::uint32_t>(most);
  kinds_ = DeviceBuffer<KvStore::Op>(most);
}

void BatchPlanner::load(Stream& stream, const std::uint64_t* keys, const std::uint64_t* values,
                        std::size_t count, const KvStore::Op* kinds) {
  count_ = static_cast<std::uint32_t>(count);
  has_values_ = values != nullptr;
  has_kinds_ = kinds != nullptr;
  copy_async(stream, keys_.data(), keys, count * sizeof(*keys));
  if (has_kinds_) copy_async(stream, kinds_.data(), kinds, count);
  if (!has_values_) return;
  keys_in_.record(stream);
  keys_in_.wait(beside_);
  copy_async(beside_, values_.data(), values, count * sizeof(*values));
  values_in_.record(beside_);
}

void BatchPlanner::choose(Stream& stream, const Table& table, const Batch& batch,
                          Outcome* outcome) {
  launch_choose(stream, table, batch, outcome);
  if (has_values_) values_in_.wait(stream);
}

Batch BatchPlanner::plan(Stream& stream, const Table& table, bool ordered, bool chains,
                         Outcome* outcome) {
  const dim3 grid(blocks_for(count_, kThreads));
  const dim3 block(kThreads);
  launch(stream, grid, block, find_buckets, table, keys_.data(), count_, bucket_.data(), op_.data(),
         outcome);
  Batch batch{keys_.data(),
              has_values_ ? values_.data() : nullptr,
              op_.data(),
              bucket_.data(),
              sorted_op_.data(),
              sorted_bucket_.data(),
              starts_.data(),
              skips_.data(),
              changes_.data(),
              count_,
              ordered};
  if (has_kinds_) {
    tag_ = next_tag(stream, tag_, claims_);
    batch.kinds = kinds_.data();
    batch.claim_of = claim_of_.data();
    batch.claims = {claims_.data(), static_cast<std::uint32_t>(claims_.size() - 1), tag_};
    launch(stream, grid, block, claim_keys, batch, claim_of_.data());
  }
  if (!ordered && !chains) return batch;
  // Chains need the sort in either order: it is what keeps operations of one bucket in turn.
  sorter_.sort(stream, bucket_.data(), sorted_bucket_.data(), op_.data(), sorted_op_.data(), count_,
               static_cast<unsigned>(std::bit_width(table.mask)));
  if (ordered) {
    batch.op = sorted_op_.data();
    batch.bucket = sorted_bucket_.data();
  }
  if (chains) launch(stream, grid, block, find_chains, batch, starts_.data(), skips_.data());
  return batch;
}

}  // namespace holdfast::kv
