// What the kernels of several contestants share. For files with kernels.
#pragma once

#include <bit>
#include <cstdint>

#include "contestant.hpp"
#include "holdfast/kernel.hpp"
#include "holdfast/sort.hpp"
#include "keys.hpp"
#include "slot_pool.hpp"

namespace maps {

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kWholeWarp = 0xffffffffu;
inline constexpr unsigned kBlock = 128;  // threads

using Word = unsigned long long;  // what atomicCAS() takes

// `hash` as a number below `count`, by its upper half.
__device__ inline std::uint32_t place_of(std::uint64_t hash, std::uint32_t count) {
  return static_cast<std::uint32_t>(((hash >> 32) * count) >> 32);
}

// Of numbers below `count`.
inline unsigned bits_of(std::uint32_t count) {
  return count < 2 ? 1 : static_cast<unsigned>(std::bit_width(count - 1));
}

template <class T>
__device__ T load_fresh(const T* address) {
  return *const_cast<const volatile T*>(address);
}

template <unsigned Words>
__device__ Key<Words> load_key(const std::byte* keys, std::uint32_t i) {
  return reinterpret_cast<const Key<Words>*>(keys)[i];
}

// A value, or a share of one, moved at once.
struct alignas(16) Chunk {
  std::uint64_t low, high;
};
inline constexpr unsigned kChunks = kValueBytes / sizeof(Chunk);

__device__ inline Chunk* chunks_of(std::byte* values, std::uint64_t i) {
  return reinterpret_cast<Chunk*>(values) + i * kChunks;
}
__device__ inline const Chunk* chunks_of(const std::byte* values, std::uint64_t i) {
  return reinterpret_cast<const Chunk*>(values) + i * kChunks;
}

// Neighbouring lanes that carry out their operations together, one after the other.
template <unsigned Size>
struct Lanes {
  unsigned lane = threadIdx.x % Size;
  unsigned shift = threadIdx.x % kWarp / Size * Size;
  unsigned mask = (Size == kWarp ? kWholeWarp : (1u << (Size % kWarp)) - 1) << shift;

  template <class T>
  __device__ T from(unsigned member, T value) const {
    return __shfl_sync(mask, value, static_cast<int>(member), Size);
  }
  template <unsigned Words>
  __device__ Key<Words> from(unsigned member, const Key<Words>& key) const {
    Key<Words> result;
    for (unsigned w = 0; w < Words; ++w) result.word[w] = from(member, key.word[w]);
    return result;
  }
  // Of which lanes it holds, as bits.
  __device__ unsigned where(bool holds) const {
    return __ballot_sync(mask, holds) >> shift & (mask >> shift);
  }
  __device__ void meet() const { __syncwarp(mask); }
  // A chunk a lane: 128 bytes at once, where there are eight lanes or more.
  __device__ void copy_value(Chunk* to, const Chunk* from) const {
    for (unsigned chunk = lane; chunk < kChunks; chunk += Size) to[chunk] = from[chunk];
  }
};

// The operations of a group of lanes, one after the other, by all of them: group.carry_out(op, key,
// batch, number of the operation, number of the thread whose it is).
template <unsigned Words, class Group>
__device__ void carry_out_in_turn(const Group& group, const Batch& batch,
                                  const std::uint32_t* order) {
  const auto& lanes = group.lanes;
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  const bool mine = thread < batch.count;
  const std::uint32_t i = !mine ? 0 : order != nullptr ? order[thread] : thread;
  const Key<Words> key = load_key<Words>(batch.keys, i);
  const int op = static_cast<int>(batch.ops[i]);
  for (unsigned todo = lanes.where(mine); todo != 0; todo &= todo - 1) {
    const unsigned turn = __ffs(static_cast<int>(todo)) - 1;
    const std::uint32_t number = lanes.from(turn, i);
    const Outcome outcome =
        group.carry_out(static_cast<Op>(lanes.from(turn, op)), lanes.from(turn, key), batch, number,
                        lanes.from(turn, thread));
    if (lanes.lane == turn) batch.outcomes[number] = outcome;
  }
}

// Which of `buckets` is a key's.
struct BucketOf {
  std::uint32_t buckets;
  template <unsigned Words>
  __device__ std::uint32_t operator()(const Key<Words>& key) const {
    return place_of(key.hash(), buckets);
  }
};

// The order in which a batch is carried out: null, as it is given, or by place.
// Thread safety: one thread.
class BatchOrder {
 public:
  BatchOrder() = default;
  explicit BatchOrder(std::uint32_t most)
      : places_(most), sorted_places_(most), numbers_(most), sorted_numbers_(most), sorter_(most) {}

  // By place(key of operation i), of `bits` bits. Stream-ordered.
  template <unsigned Words, class Place>
  const std::uint32_t* by(holdfast::Stream& stream, const Batch& batch, const Place& place,
                          unsigned bits);

 private:
  holdfast::DeviceBuffer<std::uint32_t> places_, sorted_places_, numbers_, sorted_numbers_;
  holdfast::PairSorter sorter_{1};
};

template <unsigned Words, class Place>
__global__ void number_operations(Batch batch, Place place, std::uint32_t* places,
                                  std::uint32_t* numbers) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= batch.count) return;
  places[i] = place(load_key<Words>(batch.keys, i));
  numbers[i] = i;
}

template <unsigned Words, class Place>
const std::uint32_t* BatchOrder::by(holdfast::Stream& stream, const Batch& batch,
                                    const Place& place, unsigned bits) {
  holdfast::launch(stream, holdfast::blocks_for(batch.count, kBlock), kBlock,
                   number_operations<Words, Place>, batch, place, places_.data(), numbers_.data());
  sorter_.sort(stream, places_.data(), sorted_places_.data(), numbers_.data(),
               sorted_numbers_.data(), batch.count, bits);
  return sorted_numbers_.data();
}

}  // namespace maps
