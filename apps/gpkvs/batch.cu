#include "gpkvs/batch.hpp"

#include <bit>

namespace gpkvs {
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

// Ordered: operations of a bucket are neighbours; the first leads.
__global__ void chain_neighbours(const std::uint32_t* bucket, std::uint32_t count,
                                 std::uint32_t* next, std::uint8_t* leads) {
  const std::uint32_t i = thread_in_row();
  if (i >= count) return;
  leads[i] = i == 0 || bucket[i - 1] != bucket[i];
  next[i] = i + 1 < count && bucket[i + 1] == bucket[i] ? i + 1 : kNone;
}

// Unordered: each operation is put before the one that came to its bucket last; the one that no
// other follows leads.
__global__ void chain_arrivals(const std::uint32_t* bucket, std::uint32_t count,
                               std::uint32_t* next, std::uint32_t* heads) {
  const std::uint32_t i = thread_in_row();
  if (i < count) next[i] = atomicExch(&heads[bucket[i]], i);
}
__global__ void find_leads(const std::uint32_t* bucket, std::uint32_t count, std::uint8_t* leads,
                           const std::uint32_t* heads) {
  const std::uint32_t i = thread_in_row();
  if (i < count) leads[i] = heads[bucket[i]] == i;
}
__global__ void reset_heads(const std::uint32_t* bucket, std::uint32_t count,
                            std::uint32_t* heads) {
  const std::uint32_t i = thread_in_row();
  if (i < count) heads[bucket[i]] = kNone;
}

}  // namespace

BatchPlanner::BatchPlanner(std::uint32_t max_batch, std::uint64_t buckets)
    : keys_(max_batch),
      values_(max_batch),
      bucket_(max_batch),
      op_(max_batch),
      sorted_bucket_(max_batch),
      sorted_op_(max_batch),
      next_(max_batch),
      leads_(max_batch),
      buckets_(buckets),
      sorter_(max_batch) {}

void BatchPlanner::load(holdfast::Stream& stream, const std::uint64_t* keys,
                        const std::uint64_t* values, std::size_t count) {
  count_ = static_cast<std::uint32_t>(count);
  has_values_ = values != nullptr;
  holdfast::copy_async(stream, keys_.data(), keys, count * sizeof(*keys));
  if (values) holdfast::copy_async(stream, values_.data(), values, count * sizeof(*values));
}

Batch BatchPlanner::plan(holdfast::Stream& stream, const Table& table, bool ordered, bool chains,
                         Outcome* outcome) {
  const dim3 grid((count_ + kThreads - 1) / kThreads);
  const dim3 block(kThreads);
  holdfast::launch(stream, grid, block, find_buckets, table, keys_.data(), count_, bucket_.data(),
                   op_.data(), outcome);
  Batch batch{keys_.data(), has_values_ ? values_.data() : nullptr,
              op_.data(),   bucket_.data(),
              next_.data(), leads_.data(),
              count_};
  if (ordered) {
    sorter_.sort(stream, bucket_.data(), sorted_bucket_.data(), op_.data(), sorted_op_.data(),
                 count_, static_cast<unsigned>(std::bit_width(table.mask)));
    batch.op = sorted_op_.data();
    batch.bucket = sorted_bucket_.data();
  }
  if (!chains) return batch;
  if (ordered) {
    holdfast::launch(stream, grid, block, chain_neighbours, batch.bucket, count_, next_.data(),
                     leads_.data());
    return batch;
  }
  if (heads_.size() == 0) {
    heads_ = holdfast::DeviceBuffer<std::uint32_t>(buckets_);
    holdfast::fill_async(stream, heads_.data(), 0xff, heads_.bytes());
  }
  holdfast::launch(stream, grid, block, chain_arrivals, batch.bucket, count_, next_.data(),
                   heads_.data());
  holdfast::launch(stream, grid, block, find_leads, batch.bucket, count_, leads_.data(),
                   static_cast<const std::uint32_t*>(heads_.data()));
  holdfast::launch(stream, grid, block, reset_heads, batch.bucket, count_, heads_.data());
  return batch;
}

}  // namespace gpkvs
