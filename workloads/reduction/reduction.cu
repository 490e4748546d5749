#include "reduction/reduction.hpp"

#include "holdfast/kernel.hpp"

namespace reduction {
namespace {

using holdfast::pacq;
using holdfast::prel;
using holdfast::Scope;

constexpr const char* kTotal = "reduction.total";
constexpr const char* kPartial = "reduction.partial";
constexpr const char* kRow = "reduction_row";
constexpr std::uint64_t kEmpty = 0;

__host__ __device__ constexpr std::uint64_t encoded(std::uint64_t sum) { return sum + 1; }
__host__ __device__ constexpr std::uint64_t decoded(std::uint64_t stored) { return stored - 1; }

struct Sums {
  std::uint64_t* total;
  std::uint64_t* partial;
  std::uint32_t* flags;        // one for every thread: its partial sum is there
  std::uint32_t* block_flags;  // one for every block: its sum is there
  std::uint32_t* ended;        // blocks that are at their end
};

// The sum of this thread's share of the numbers.
__device__ std::uint64_t own_sum(const std::uint32_t* input, std::uint64_t count) {
  const std::uint64_t step = std::uint64_t{gridDim.x} * blockDim.x;
  std::uint64_t sum = 0;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += step) {
    sum += input[i];
  }
  return sum;
}

__device__ unsigned half_of(unsigned threads) {
  unsigned half = 1;
  while (half * 2 < threads) half *= 2;
  return half;
}

// Figure 3's loop. Whoever ends stores its sum and releases its flag; whoever goes on acquires the
// flag of the thread whose sum it adds. So a partial sum is durable before all that were made from
// it, the block's sum last. Returns the sum of thread 0; others return once they end.
__device__ std::uint64_t reduce(std::uint64_t sum, std::uint64_t* row, std::uint32_t* flags) {
  const unsigned thread = threadIdx.x;
  for (unsigned half = half_of(blockDim.x); half > 0; half /= 2) {
    if (thread >= half) {
      row[thread] = encoded(sum);
      prel<Scope::block>(&flags[thread], 1u);
      break;
    }
    const unsigned other = thread + half;
    if (other >= blockDim.x) continue;
    while (pacq<Scope::block>(&flags[other]) == 0) {
    }
    sum += decoded(row[other]);
  }
  return sum;
}

// The last block's first thread adds all blocks' sums.
__device__ void finish(const Sums& sums) {
  std::uint64_t total = 0;
  for (unsigned block = 0; block < gridDim.x; ++block) {
    while (pacq<Scope::device>(&sums.block_flags[block]) == 0) {
    }
    total += decoded(sums.partial[std::uint64_t{block} * blockDim.x]);
  }
  // A release orders what other threads do after they acquire it. This block's own sum needs more.
  holdfast::ofence();
  *sums.total = encoded(total);
  holdfast::persist();
}

template <Scope kRelease>
__global__ void sum_up(const std::uint32_t* input, std::uint64_t count, Sums sums) {
  std::uint64_t* const row = sums.partial + std::uint64_t{blockIdx.x} * blockDim.x;
  std::uint32_t* const flags = sums.flags + std::uint64_t{blockIdx.x} * blockDim.x;
  // Where a block's sum is there, so are its partial sums; where the total is, so is everything.
  if (threadIdx.x != 0 && row[0] != kEmpty) return;
  if (*sums.total != kEmpty) return;

  if (row[0] == kEmpty) {
    if (threadIdx.x != 0 && row[threadIdx.x] != kEmpty) {
      // Durable since before the crash; those who wait for it need the flag all the same.
      prel<Scope::block>(&flags[threadIdx.x], 1u);
      return;
    }
    const std::uint64_t sum = reduce(own_sum(input, count), row, flags);
    if (threadIdx.x == 0) row[0] = encoded(sum);
  }
  if (threadIdx.x != 0) return;

  // The flag is apart from the sum: where a release waits for what precedes it and no more (the
  // epoch model), a flag that is persistent itself could be seen and still be lost.
  prel<kRelease>(&sums.block_flags[blockIdx.x], 1u);
  // This only chooses who finishes, so that no block waits for one that has not begun. What orders
  // the sums are the flags: there is no fence here on purpose.
  if (atomicAdd(sums.ended, 1u) == gridDim.x - 1) finish(sums);
}

[[noreturn]] void refuse(const std::string& message) {
  throw holdfast::Error(holdfast::Errc::invalid_argument, message);
}

std::uint64_t flags_of(std::uint32_t blocks, std::uint32_t threads) {
  return std::uint64_t{blocks} * threads + blocks + 1;
}

}  // namespace

Reduction::Reduction(std::uint64_t* total, std::uint64_t* partial, std::uint32_t blocks,
                     std::uint32_t threads)
    : total_(total),
      partial_(partial),
      blocks_(blocks),
      threads_(threads),
      flags_(flags_of(blocks, threads)) {}

Reduction Reduction::create(holdfast::Region& region, std::uint32_t blocks, std::uint32_t threads) {
  if (blocks == 0 || blocks > kMaxBlocks || threads == 0 || threads > kMaxThreads) {
    refuse(holdfast::detail::concat("reduction by ", blocks, " blocks of ", threads,
                                    " threads: give 1 to ", kMaxBlocks, " blocks of 1 to ",
                                    kMaxThreads, " threads"));
  }
  // The partial sums come last, so that a creation that was cut off is known by their absence.
  if (region.contains(kTotal) && !region.contains(kPartial)) region.remove(kTotal);
  std::uint64_t* const total = region.allocate<std::uint64_t>(kTotal, 1).data();
  void* const partial = region.allocate_raw(kPartial, kRow, threads * sizeof(std::uint64_t), blocks,
                                            holdfast::Tracking::hashed);
  return {total, static_cast<std::uint64_t*>(partial), blocks, threads};
}

Reduction Reduction::open(holdfast::Region& region) {
  const holdfast::ObjectInfo info = region.object(kPartial);
  if (info.type != kRow || info.element_bytes % sizeof(std::uint64_t) != 0) {
    refuse(holdfast::detail::concat("object '", kPartial, "' of region '", region.path(),
                                    "' is not a reduction's"));
  }
  return {region.find<std::uint64_t>(kTotal).data(),
          static_cast<std::uint64_t*>(region.address(info)), static_cast<std::uint32_t>(info.count),
          static_cast<std::uint32_t>(info.element_bytes / sizeof(std::uint64_t))};
}

void Reduction::run(holdfast::Stream& stream, const std::uint32_t* input, std::uint64_t count,
                    holdfast::Scope release) {
  if (count > kMaxNumbers) {
    refuse(holdfast::detail::concat("reduction of ", count, " numbers: ", kMaxNumbers, " at most"));
  }
  const std::uint64_t all = std::uint64_t{blocks_} * threads_;
  const Sums sums{total_, partial_, flags_.data(), flags_.data() + all,
                  flags_.data() + all + blocks_};
  const auto kernel = release == Scope::block    ? sum_up<Scope::block>
                      : release == Scope::device ? sum_up<Scope::device>
                                                 : sum_up<Scope::system>;
  holdfast::fill_async(stream, flags_.data(), 0, flags_.bytes());
  holdfast::launch(stream, dim3(blocks_), dim3(threads_), kernel, input, count, sums);
}

bool Reduction::done(holdfast::Stream& stream) const {
  std::uint64_t stored = kEmpty;
  holdfast::copy_async(stream, &stored, total_, sizeof(stored));
  stream.synchronize();
  return stored != kEmpty;
}

std::uint64_t Reduction::total(holdfast::Stream& stream) const {
  std::uint64_t stored = kEmpty;
  holdfast::copy_async(stream, &stored, total_, sizeof(stored));
  stream.synchronize();
  if (stored == kEmpty) {
    throw holdfast::Error(holdfast::Errc::not_found,
                          "reduction: the total is not there yet: run() it again");
  }
  return decode(stored);
}

std::vector<std::uint64_t> Reduction::partial_sums(holdfast::Stream& stream) const {
  std::vector<std::uint64_t> stored(std::uint64_t{blocks_} * threads_);
  holdfast::copy_async(stream, stored.data(), partial_, stored.size() * sizeof(std::uint64_t));
  stream.synchronize();
  return stored;
}

}  // namespace reduction
