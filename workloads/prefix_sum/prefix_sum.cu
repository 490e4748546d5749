#include "prefix_sum/prefix_sum.hpp"

#include "holdfast/kernel.hpp"
#include "prefix_sum/rows.hpp"

namespace prefix_sum {
namespace {

constexpr const char* kObject = "prefix_sum";
constexpr const char* kRow = "prefix_sum_row";

// A sum is stored as one more than it is, so that no sum looks like zeroed memory. It cannot
// overflow: 2^30 numbers of 32 bits stay far below 2^64.
constexpr std::uint64_t kEmpty = 0;
__host__ __device__ constexpr std::uint64_t encode(std::uint64_t sum) { return sum + 1; }
__host__ __device__ constexpr std::uint64_t decode(std::uint64_t stored) { return stored - 1; }

// Inclusive sums over the block. All of its threads call this, and none goes on to the next call
// before all have theirs.
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
__device__ void store_row(std::uint64_t* row, std::uint64_t sum, bool persists) {
  const unsigned last = blockDim.x - 1;
  if (threadIdx.x != last) {
    row[threadIdx.x] = encode(sum);
    if (persists) holdfast::persist();
  }
  __syncthreads();
  if (threadIdx.x == last) {
    row[last] = encode(sum);
    if (persists) holdfast::persist();
  }
}

__device__ std::uint64_t* row_of(std::uint64_t* rows) {
  return rows + std::uint64_t{blockIdx.x} * blockDim.x;
}

__device__ std::uint64_t number_of(const std::uint32_t* input) {
  return input[std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x];
}

// Row b: the sums of its numbers alone; totals[b]: what they come to.
__global__ void sum_blocks(const std::uint32_t* input, std::uint64_t* rows, std::uint64_t* totals,
                           bool persists) {
  std::uint64_t* const row = row_of(rows);
  const unsigned last = blockDim.x - 1;
  if (persists && row[last] != kEmpty) {
    // A sentinel: the row was stored before a crash.
    if (threadIdx.x == last) totals[blockIdx.x] = decode(row[last]);
    return;
  }
  const std::uint64_t sum = sum_up_to_this(number_of(input));
  if (threadIdx.x == last) totals[blockIdx.x] = sum;
  store_row(row, sum, persists);
}

// totals[b] becomes what all rows before b come to, `before` (a stored sum, if there is one)
// included. One block.
__global__ void add_up_totals(std::uint64_t* totals, std::uint32_t count,
                              const std::uint64_t* before) {
  __shared__ std::uint64_t so_far;
  const unsigned last = blockDim.x - 1;
  if (threadIdx.x == 0) so_far = before != nullptr ? decode(*before) : 0;
  for (std::uint32_t first = 0; first < count; first += blockDim.x) {
    const std::uint32_t i = first + threadIdx.x;
    const std::uint64_t total = i < count ? totals[i] : 0;
    const std::uint64_t up_to_this = sum_up_to_this(total);
    if (i < count) totals[i] = so_far + up_to_this - total;
    __syncthreads();
    if (threadIdx.x == last) so_far += up_to_this;
    __syncthreads();
  }
}

// Row b: its sums, and all that the rows before it come to. The sums are made again: they are
// nearer in the input than in the partial sums' rows on the medium.
__global__ void sum_all(const std::uint32_t* input, std::uint64_t* rows,
                        const std::uint64_t* totals, bool persists) {
  std::uint64_t* const row = row_of(rows);
  if (persists && row[blockDim.x - 1] != kEmpty) return;
  store_row(row, totals[blockIdx.x] + sum_up_to_this(number_of(input)), persists);
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

void sum_rows(holdfast::Stream& stream, const std::uint32_t* input, const Rows& rows,
              const RowRange& range, std::uint64_t* totals, bool persists) {
  const std::uint64_t skipped = std::uint64_t{range.first} * rows.length;
  const dim3 blocks(range.count);
  const dim3 threads(rows.length);
  holdfast::launch(stream, blocks, threads, sum_blocks, input + skipped, rows.partial + skipped,
                   totals, persists);
  const std::uint64_t* const before = range.first == 0 ? nullptr : rows.result + skipped - 1;
  holdfast::launch(stream, dim3(1), threads, add_up_totals, totals, range.count, before);
  holdfast::launch(stream, blocks, threads, sum_all, input + skipped, rows.result + skipped, totals,
                   persists);
}

void PrefixSum::run(holdfast::Stream& stream, const std::uint32_t* input) {
  if (totals_.size() == 0) totals_ = holdfast::DeviceBuffer<std::uint64_t>(blocks_);
  sum_rows(stream, input, {rows_, rows_ + size(), threads_}, {0, blocks_}, totals_.data(), true);
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
