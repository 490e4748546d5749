#include "prefix_sum/prefix_sum.hpp"

#include "holdfast/kernel.hpp"

namespace prefix_sum {
namespace {

constexpr const char* kObject = "prefix_sum";
constexpr const char* kRow = "prefix_sum_row";

// A sum is stored as one more than it is, so that no sum looks like zeroed memory. It cannot
// overflow: 2^30 numbers of 32 bits stay far below 2^64.
constexpr std::uint64_t kEmpty = 0;
__host__ __device__ constexpr std::uint64_t encode(std::uint64_t sum) { return sum + 1; }
__host__ __device__ constexpr std::uint64_t decode(std::uint64_t stored) { return stored - 1; }

// Inclusive sums over the block. All of its threads call this.
__device__ std::uint64_t sum_up_to_this(std::uint64_t value) {
  __shared__ std::uint64_t sums[kMaxThreads];
  sums[threadIdx.x] = value;
  __syncthreads();
  for (unsigned distance = 1; distance < blockDim.x; distance *= 2) {
    const std::uint64_t before = threadIdx.x >= distance ? sums[threadIdx.x - distance] : 0;
    __syncthreads();
    sums[threadIdx.x] += before;
    __syncthreads();
  }
  return sums[threadIdx.x];
}

// Stores a row, its last sum behind all others: the barrier makes the last thread wait until the
// others' persist() has returned. All threads of the block call this.
__device__ void store_row(std::uint64_t* row, std::uint64_t sum) {
  const unsigned last = blockDim.x - 1;
  if (threadIdx.x != last) {
    row[threadIdx.x] = encode(sum);
    holdfast::persist();
  }
  __syncthreads();
  if (threadIdx.x == last) {
    row[last] = encode(sum);
    holdfast::persist();
  }
}

__device__ std::uint64_t* row_of(std::uint64_t* rows, std::uint64_t number) {
  return rows + number * blockDim.x;
}

// Row b: the sums of block b's numbers alone.
__global__ void sum_blocks(const std::uint32_t* input, std::uint64_t* rows) {
  std::uint64_t* const row = row_of(rows, blockIdx.x);
  if (row[blockDim.x - 1] != kEmpty) return;  // a sentinel: the row was stored before a crash
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  store_row(row, sum_up_to_this(input[i]));
}

// Row blocks + b: those sums, and all that the blocks before b come to. REQUIRES: sum_blocks() has
// ended.
__global__ void add_blocks_before(std::uint64_t* rows) {
  std::uint64_t* const row = row_of(rows, std::uint64_t{gridDim.x} + blockIdx.x);
  const unsigned last = blockDim.x - 1;
  if (row[last] != kEmpty) return;
  std::uint64_t before = 0;
  for (unsigned block = threadIdx.x; block < blockIdx.x; block += blockDim.x) {
    before += decode(row_of(rows, block)[last]);
  }
  __shared__ std::uint64_t offset;
  const std::uint64_t up_to_this = sum_up_to_this(before);
  if (threadIdx.x == last) offset = up_to_this;
  __syncthreads();
  store_row(row, offset + decode(row_of(rows, blockIdx.x)[threadIdx.x]));
}

std::vector<std::uint64_t> copy_of(const std::uint64_t* from, std::uint64_t count,
                                   holdfast::Stream& stream) {
  std::vector<std::uint64_t> values(count);
  holdfast::copy_async(stream, values.data(), from, count * sizeof(std::uint64_t));
  stream.synchronize();
  return values;
}

}  // namespace

std::uint64_t PrefixSum::object_bytes(std::uint32_t blocks, std::uint32_t threads) {
  return std::uint64_t{2} * blocks * threads * sizeof(std::uint64_t);
}

PrefixSum PrefixSum::create(holdfast::Region& region, std::uint32_t blocks, std::uint32_t threads) {
  if (blocks == 0 || blocks > kMaxBlocks || threads == 0 || threads > kMaxThreads) {
    throw holdfast::Error(holdfast::Errc::invalid_argument,
                          holdfast::detail::concat("prefix sum of ", blocks, " blocks of ", threads,
                                                   " threads: give 1 to ", kMaxBlocks,
                                                   " blocks of 1 to ", kMaxThreads, " threads"));
  }
  // One object holds all, its shape included, so that creation cannot be cut in two.
  void* const rows = region.allocate_raw(kObject, kRow, threads * sizeof(std::uint64_t),
                                         std::uint64_t{2} * blocks, holdfast::Tracking::hashed);
  return {static_cast<std::uint64_t*>(rows), blocks, threads};
}

PrefixSum PrefixSum::open(holdfast::Region& region) {
  const holdfast::ObjectInfo info = region.object(kObject);
  if (info.type != kRow || info.element_bytes % sizeof(std::uint64_t) != 0 || info.count % 2 != 0) {
    throw holdfast::Error(holdfast::Errc::invalid_argument,
                          holdfast::detail::concat("object '", kObject, "' of region '",
                                                   region.path(), "' is not a prefix sum"));
  }
  return {static_cast<std::uint64_t*>(region.address(info)),
          static_cast<std::uint32_t>(info.count / 2),
          static_cast<std::uint32_t>(info.element_bytes / sizeof(std::uint64_t))};
}

void PrefixSum::run(holdfast::Stream& stream, const std::uint32_t* input) {
  holdfast::launch(stream, dim3(blocks_), dim3(threads_), sum_blocks, input, rows_);
  holdfast::launch(stream, dim3(blocks_), dim3(threads_), add_blocks_before, rows_);
}

std::vector<std::uint64_t> PrefixSum::result(holdfast::Stream& stream) const {
  std::vector<std::uint64_t> sums = copy_of(rows_ + size(), size(), stream);
  for (std::uint64_t& sum : sums) {
    if (sum == kEmpty) {
      throw holdfast::Error(holdfast::Errc::not_found,
                            "prefix sum: not all sums are there yet: run() it again");
    }
    sum = decode(sum);
  }
  return sums;
}

std::uint32_t PrefixSum::rows_done(holdfast::Stream& stream) const {
  const std::vector<std::uint64_t> sums = copy_of(rows_ + size(), size(), stream);
  std::uint32_t done = 0;
  for (std::uint32_t row = 0; row < blocks_; ++row) {
    done += sums[std::uint64_t{row} * threads_ + threads_ - 1] != kEmpty;
  }
  return done;
}

}  // namespace prefix_sum
