// The kernels of docs/crash-consistent-kernels.md, which quotes them between the marks.
#include "checked_append/kernels.hpp"

namespace checked_append {

using holdfast::ofence;
using holdfast::pacq;
using holdfast::persist;
using holdfast::prel;
using holdfast::Scope;

// [naive]
__global__ void append_naive(Head* head, std::uint64_t* records) {
  const std::uint64_t first = head->count;
  records[first + threadIdx.x] = record(first + threadIdx.x);
  __syncthreads();  // all records are written
  if (threadIdx.x == 0) head->count = first + blockDim.x;
}
// [end]

// [fixed]
__global__ void append(Head* head, std::uint64_t* records) {
  const std::uint64_t first = head->count;
  records[first + threadIdx.x] = record(first + threadIdx.x);
  persist();        // this thread's record is durable
  __syncthreads();  // and so are those of all others
  if (threadIdx.x == 0) head->count = first + blockDim.x;
}
// [end]

// [blocks]
template <Scope S>
__device__ void append_from_grid(Head* head, std::uint64_t* records, std::uint32_t* done,
                                 std::uint32_t round) {
  const unsigned threads = gridDim.x * blockDim.x;
  const unsigned me = blockIdx.x * blockDim.x + threadIdx.x;
  const std::uint64_t first = head->count;
  records[first + me] = record(first + me);
  prel<S>(&done[me], round);  // whoever acquires this comes after the record
  if (me != 0) return;
  for (unsigned i = 0; i < threads; ++i) {
    while (pacq<S>(&done[i]) != round) __nanosleep(100);
  }
  ofence();  // its own record, too: a release orders for those who acquire
  head->count = first + threads;
}
// [end]

__global__ void append_blocks_naive(Head* head, std::uint64_t* records, std::uint32_t* done,
                                    std::uint32_t round) {
  append_from_grid<Scope::block>(head, records, done, round);
}

__global__ void append_blocks(Head* head, std::uint64_t* records, std::uint32_t* done,
                              std::uint32_t round) {
  append_from_grid<Scope::device>(head, records, done, round);
}

// [sum naive]
__global__ void sum_naive(Head* head, const std::uint64_t* records) {
  std::uint64_t total = head->total;
  for (std::uint64_t i = head->summed; i < head->count; ++i) total += records[i];
  head->total = total;
  persist();
  head->summed = head->count;
}
// [end]

// [sum]
__global__ void sum(Head* head, const std::uint64_t* records) {
  std::uint64_t total = 0;
  for (std::uint64_t i = 0; i < head->count; ++i) total += records[i];
  head->total = total;
  persist();
  head->summed = head->count;
}
// [end]

}  // namespace checked_append
