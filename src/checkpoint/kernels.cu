#include "checkpoint/kernels.hpp"

#include <algorithm>

#include "core/warp_sum.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::checkpoint {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kMostBlocks = 1024;

struct alignas(16) Pair {
  std::uint64_t first;
  std::uint64_t second;
};

__host__ __device__ inline std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  x ^= x >> 32;
  return x;
}

// What a word contributes to the sum: it depends on the word's place, so that words that change
// places are noticed, and sums may be taken in any order.
__host__ __device__ inline std::uint64_t mix_at(std::uint64_t word, std::uint64_t place) {
  return mix(word + (place + 1) * 0x9e3779b97f4a7c15ull);
}

__host__ __device__ inline std::uint64_t check_of(std::uint64_t tag, std::uint64_t data,
                                                  std::uint64_t sequence) {
  return mix_at(tag, 1) + mix_at(data, 2) + mix_at(sequence, 3) + 1;
}

// The part that chunk number `chunk` belongs to.
__device__ const Part& part_of(const Part* parts, std::uint32_t count, std::uint64_t chunk) {
  std::uint32_t low = 0;
  for (std::uint32_t high = count; high - low > 1;) {
    const std::uint32_t middle = low + (high - low) / 2;
    (parts[middle].first_chunk <= chunk ? low : high) = middle;
  }
  return parts[low];
}

__device__ bool is_aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % sizeof(Pair) == 0;
}

// Copies up to 8 bytes, as many as `Unit` divides, and returns them as a word.
template <class Unit>
__device__ std::uint64_t copy_by(const unsigned char* from, unsigned char* to, unsigned bytes) {
  std::uint64_t word = 0;
  for (unsigned i = 0; i < bytes; i += sizeof(Unit)) {
    const Unit unit = *reinterpret_cast<const Unit*>(from + i);
    word |= std::uint64_t{unit} << (8 * i);
    if (to != nullptr) *reinterpret_cast<Unit*>(to + i) = unit;
  }
  return word;
}

// The same by the widest units that both addresses have: stores of single bytes would each be a
// transfer over the link.
__device__ std::uint64_t copy_word(const unsigned char* from, unsigned char* to, unsigned bytes) {
  const auto has = [&](unsigned unit) {
    return (reinterpret_cast<std::uintptr_t>(from) | reinterpret_cast<std::uintptr_t>(to) | bytes) %
               unit ==
           0;
  };
  if (has(8)) return copy_by<std::uint64_t>(from, to, bytes);
  if (has(4)) return copy_by<std::uint32_t>(from, to, bytes);
  return copy_by<std::uint8_t>(from, to, bytes);
}

// Copies bytes [first, first + bytes) of a part, and returns this thread's share of the sum.
__device__ std::uint64_t copy_chunk(const Part& part, std::uint64_t first, std::uint64_t bytes) {
  const unsigned char* const from = part.from + first;
  unsigned char* const to = part.to == nullptr ? nullptr : part.to + first;
  const std::uint64_t place = (part.offset + first) / 8;
  std::uint64_t sum = 0;
  std::uint64_t done = 0;
  if (is_aligned(from) && is_aligned(to)) {
    const std::uint64_t pairs = bytes / sizeof(Pair);
    for (std::uint64_t i = threadIdx.x; i < pairs; i += kThreads) {
      const Pair pair = reinterpret_cast<const Pair*>(from)[i];
      if (to != nullptr) reinterpret_cast<Pair*>(to)[i] = pair;
      sum += mix_at(pair.first, place + 2 * i) + mix_at(pair.second, place + 2 * i + 1);
    }
    done = pairs * sizeof(Pair);
  }
  for (std::uint64_t at = done + 8 * threadIdx.x; at < bytes; at += 8 * kThreads) {
    const std::uint64_t rest = bytes - at;
    const std::uint64_t word = copy_word(from + at, to == nullptr ? nullptr : to + at,
                                         static_cast<unsigned>(rest < 8 ? rest : 8));
    sum += mix_at(word, place + at / 8);
  }
  return sum;
}

// Adds up a warp's words, by shuffles: a tree over the block has a barrier for each of its steps.
__device__ void add_of_warp(std::uint64_t mine, std::uint64_t* to) {
  const unsigned long long sum = core::warp_sum(mine);
  if (sum != 0 && threadIdx.x % core::kWarp == 0) {
    atomicAdd(reinterpret_cast<unsigned long long*>(to), sum);
  }
}

// REQUIRES: the copy is durable. No order of the four words is relied on: of those of two saves the
// check fits neither.
__device__ void store_slot(const Publication& publication, std::uint64_t sum,
                           const PageMarks& marks) {
  marks.mark(publication.slot, sizeof(Slot));
  *publication.slot = {publication.tag, sum, check_of(publication.tag, sum, publication.sequence),
                       publication.sequence};
  persist();
}

__global__ void copy_parts(const Part* parts, std::uint32_t count, std::uint64_t chunks,
                           Tally* tally, Publication publication, PageMarks marks) {
  std::uint64_t sum = 0;
  bool on_medium = publication.slot != nullptr;  // else the copy goes to volatile memory
  for (std::uint64_t chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const Part& part = part_of(parts, count, chunk);
    const std::uint64_t first = (chunk - part.first_chunk) * kChunkBytes;
    const std::uint64_t rest = part.bytes - first;
    const std::uint64_t bytes = rest < kChunkBytes ? rest : kChunkBytes;
    sum += copy_chunk(part, first, bytes);
    if (part.marked == nullptr) continue;
    on_medium = true;
    if (threadIdx.x == 0) marks.mark(part.marked + first, bytes);
  }
  if (on_medium) persist();
  add_of_warp(sum, &tally->sum);
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence();
  if (atomicAdd(&tally->blocks_done, 1u) != gridDim.x - 1) return;
  __threadfence();
  tally->blocks_done = 0;
  if (publication.slot == nullptr) return;
  store_slot(publication, atomicExch(reinterpret_cast<unsigned long long*>(&tally->sum), 0ull),
             marks);
}

__global__ void publish_sum(Tally* tally, Publication publication, PageMarks marks) {
  persist();  // what other kernels and the copy engine wrote before this kernel
  store_slot(publication, tally->sum, marks);
  tally->sum = 0;
}

__global__ void note_pages(const unsigned char* address, std::uint64_t bytes, PageMarks marks) {
  const std::uint64_t first = (std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kPageBytes;
  if (first >= bytes) return;
  marks.mark(address + first, bytes - first < kPageBytes ? bytes - first : kPageBytes);
}

}  // namespace

void copy_and_sum(Stream& stream, const Part* parts, std::uint32_t count, std::uint64_t chunks,
                  Tally* tally, const Publication& publication, const PageMarks& marks) {
  const auto blocks = static_cast<unsigned>(std::clamp<std::uint64_t>(chunks, 1, kMostBlocks));
  launch(stream, dim3(blocks), dim3(kThreads), copy_parts, parts, count, chunks, tally, publication,
         marks);
}

void publish(Stream& stream, Tally* tally, const Publication& publication, const PageMarks& marks) {
  launch(stream, dim3(1), dim3(1), publish_sum, tally, publication, marks);
}

void mark_pages(Stream& stream, const unsigned char* address, std::uint64_t bytes,
                const PageMarks& marks) {
  const std::uint64_t bytes_per_block = std::uint64_t{kThreads} * kPageBytes;
  launch(stream, blocks_for(bytes, bytes_per_block), kThreads, note_pages, address, bytes, marks);
}

std::uint64_t slot_check(std::uint64_t tag, std::uint64_t data, std::uint64_t sequence) {
  return check_of(tag, data, sequence);
}

}  // namespace holdfast::checkpoint
