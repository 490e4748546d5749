#include "kv_store/log/snapshot.hpp"

#include <algorithm>

#include "core/stream_end.hpp"
#include "kv_store/log/block_sum.hpp"
#include "undo_log/medium_store.hpp"

namespace holdfast::kv::log {
namespace {

static_assert(sizeof(SnapshotList) <= 3072, "kernels take 4 KB of arguments");

template <class Form>
__device__ SnapshotBits bits_from(const Form& index, std::uint32_t first) {
  constexpr std::uint32_t kAtOnce = 8;  // loads that wait for none of each other
  SnapshotBits bits{0, 0};
  for (std::uint32_t i = 0; i < kSnapshotSpan; i += kAtOnce) {
    Held held[kAtOnce];
#pragma unroll
    for (std::uint32_t j = 0; j < kAtOnce; ++j) held[j] = held_at(index, first + i + j);
#pragma unroll
    for (std::uint32_t j = 0; j < kAtOnce; ++j) {
      const std::uint64_t bit = std::uint64_t{1} << (i + j);
      if (held[j].slot != kNone) bits.live |= bit;
      if (held[j].slot != kNone && held[j].tombstone) bits.tombs |= bit;
    }
  }
  return bits;
}

__device__ void store_check(const Medium& medium, SnapshotHeader* header, std::uint64_t check) {
  header->check = check;
  medium.marks.mark(&header->check, sizeof(header->check));
  persist();
}

template <class Form>
__global__ void take_snapshots(Medium medium, Form index, SnapshotWord* snapshots,
                               SnapshotList list) {
  const SnapshotList::Entry& entry = list.entries[blockIdx.x];
  auto* const header = reinterpret_cast<SnapshotHeader*>(
      snapshots + snapshot_offset(entry.segment, 1u << index.shift));
  auto* const bits = reinterpret_cast<SnapshotBits*>(header + 1);
  const std::uint32_t first = entry.segment << index.shift;
  // What stands here counts no longer, before any of it is another.
  if (threadIdx.x == 0) store_check(medium, header, 0);
  __syncthreads();
  std::uint64_t mine = 0;
  if (threadIdx.x < (1u << index.shift) / kSnapshotSpan) {
    const SnapshotBits found = bits_from(index, first + threadIdx.x * kSnapshotSpan);
    mine = bits_sum(found, threadIdx.x);
    bits[threadIdx.x] = found;
    medium.marks.mark(&bits[threadIdx.x], sizeof(found));
    persist();
  }
  const std::uint64_t sum = block_sum(mine);
  if (threadIdx.x != 0) return;
  const auto* const run = reinterpret_cast<const RunHeader*>(medium.records + first);
  SnapshotHeader made{run->check, list.run, entry.oldest, entry.newest, sum, entry.oldest_piece, 0,
                      0,          0};
  *header = made;
  medium.marks.mark(header, sizeof(made));
  persist();
  store_check(medium, header, snapshot_check(made, entry.segment));
}

__global__ void forget_snapshots(Medium medium, SnapshotWord* snapshots, std::uint32_t segments,
                                 std::uint32_t segment_records) {
  const std::uint32_t segment = blockIdx.x * blockDim.x + threadIdx.x;
  if (segment >= segments) return;
  auto* const header =
      reinterpret_cast<SnapshotHeader*>(snapshots + snapshot_offset(segment, segment_records));
  store_check(medium, header, 0);
}

template <class Form>
__global__ void find_missing(Form index, const SnapshotWord* snapshots, const std::uint64_t* taken,
                             unsigned long long* missing) {
  const std::uint64_t at = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (at >= index.positions) return;
  const auto position = static_cast<std::uint32_t>(at);
  const std::uint32_t segment = position >> index.shift;
  const Held held = held_at(index, position);
  if (held.slot == kNone || taken[segment] == 0) return;
  const auto* const header = reinterpret_cast<const SnapshotHeader*>(
      snapshots + snapshot_offset(segment, 1u << index.shift));
  const auto* const bits = reinterpret_cast<const SnapshotBits*>(header + 1);
  const std::uint32_t place = position & ((1u << index.shift) - 1);
  const SnapshotBits of = bits[place / kSnapshotSpan];
  const bool live = (of.live >> place % kSnapshotSpan & 1) != 0;
  const bool tombstone = (of.tombs >> place % kSnapshotSpan & 1) != 0;
  if (!live || tombstone != held.tombstone) atomicAdd(missing, 1ull);
}

}  // namespace

template <class Form>
void launch_snapshots(Stream& stream, const Medium& medium, const Form& index,
                      SnapshotWord* snapshots, const SnapshotList& list) {
  const unsigned threads = std::max(kWarp, (1u << index.shift) / kSnapshotSpan);
  launch(stream, dim3(list.count), dim3(threads), take_snapshots<Form>, medium, index, snapshots,
         list);
}

void launch_forget(Stream& stream, const Medium& medium, SnapshotWord* snapshots,
                   const LogParameters& shape) {
  launch(stream, blocks_for(shape.segments, kBlock), kBlock, forget_snapshots, medium, snapshots,
         shape.segments, shape.segment_records);
}

template <class Form>
std::uint64_t count_missing(Stream& stream, const Form& index, const SnapshotWord* snapshots,
                            const std::vector<std::uint64_t>& taken) {
  const DeviceBuffer<std::uint64_t> flags(taken.size());
  const DeviceBuffer<unsigned long long> missing(1);
  const core::StreamEnd end(stream);
  copy_async(stream, flags.data(), taken.data(), flags.bytes());
  launch(stream, blocks_for(index.positions, kBlock), kBlock, find_missing<Form>, index, snapshots,
         flags.data(), missing.data());
  unsigned long long result = 0;
  read_back(stream, &result, missing.data(), sizeof(result));
  return result;
}

template void launch_snapshots(Stream&, const Medium&, const Index&, SnapshotWord*,
                               const SnapshotList&);
template void launch_snapshots(Stream&, const Medium&, const FingerprintIndex&, SnapshotWord*,
                               const SnapshotList&);
template std::uint64_t count_missing(Stream&, const Index&, const SnapshotWord*,
                                     const std::vector<std::uint64_t>&);
template std::uint64_t count_missing(Stream&, const FingerprintIndex&, const SnapshotWord*,
                                     const std::vector<std::uint64_t>&);

}  // namespace holdfast::kv::log
