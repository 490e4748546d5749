// The operations of a map's batches, for its benchmarks; for kernel files.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "holdfast/hash_map.hpp"
#include "holdfast/kernel.hpp"

namespace bench {

// Key number i: all different, in no order.
__host__ __device__ std::uint64_t key_number(std::uint64_t i) {
  i = (i ^ i >> 31) * 0x7fb5d329728ea185ull;
  i = (i ^ i >> 27) * 0x81dadef4bc2dd44dull;
  return i ^ i >> 33;
}

// As one of any size; of longer ones every word is another.
template <class Key>
__host__ __device__ Key key_of(std::uint64_t i) {
  std::uint64_t words[sizeof(Key) / 8];
  for (std::uint64_t& word : words) word = i = key_number(i);
  Key key;
  memcpy(&key, words, sizeof(key));
  return key;
}

template <class Key>
__global__ void fill_keys(Key* keys, std::uint64_t first, std::uint64_t count) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) keys[i] = key_of<Key>(first + i);
}

// Of keys [0, all), drawn with a seed.
template <class Key>
__global__ void draw_keys(Key* keys, std::uint64_t all, std::uint64_t seed, std::uint64_t count) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) keys[i] = key_of<Key>(key_number(seed << 32 | i) % all);
}

// By a power law of this exponent, continuous and cut off at `all`. Keys that are drawn about as
// often are no neighbours, in the table or among values.
template <class Key>
__global__ void draw_power(Key* keys, std::uint64_t all, double exponent, std::uint64_t seed,
                           std::uint64_t count) {
  const std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const double unit = static_cast<double>(key_number(seed << 32 | i) >> 11) * 0x1p-53;
  const double power = 1 - exponent;
  const double most = pow(static_cast<double>(all + 1), power);
  const auto rank = static_cast<std::uint64_t>(pow(1 + unit * (most - 1), 1 / power)) - 1;
  constexpr std::uint64_t kPrime = 2654435761;
  keys[i] = key_of<Key>((rank < all ? rank : all - 1) * kPrime % all);
}

// The operations of a batch, in device memory, or from pinned host memory.
template <class Key>
class Batch {
 public:
  Batch(std::size_t most, std::uint32_t value_bytes, bool host)
      : host_(host),
        keys_(most),
        values_(most * value_bytes),
        found_(most),
        host_keys_(host ? most : 0),
        host_values_(host ? most * value_bytes : 0),
        host_found_(host ? most : 0) {}

  void take_first(std::uint64_t first, std::size_t count) {
    launch(stream_, dim3(holdfast::blocks_for(count, 256)), dim3(256), fill_keys<Key>, keys_.data(),
           first, std::uint64_t{count});
    finish(count);
  }
  void draw(std::uint64_t all, std::size_t count) {
    launch(stream_, dim3(holdfast::blocks_for(count, 256)), dim3(256), draw_keys<Key>, keys_.data(),
           all, ++seed_, std::uint64_t{count});
    finish(count);
  }
  void draw_by_power(std::uint64_t all, double exponent, std::size_t count) {
    launch(stream_, dim3(holdfast::blocks_for(count, 256)), dim3(256), draw_power<Key>,
           keys_.data(), all, exponent, ++seed_, std::uint64_t{count});
    finish(count);
  }
  const Key* keys() const { return host_ ? host_keys_.data() : keys_.data(); }
  std::byte* values() const { return host_ ? host_values_.data() : values_.data(); }
  std::uint8_t* found() const { return host_ ? host_found_.data() : found_.data(); }

 private:
  void finish(std::size_t count) {
    if (host_) copy_async(stream_, host_keys_.data(), keys_.data(), count * sizeof(Key));
    stream_.synchronize();
  }
  bool host_;
  holdfast::DeviceBuffer<Key> keys_;
  holdfast::DeviceBuffer<std::byte> values_;
  holdfast::DeviceBuffer<std::uint8_t> found_;
  holdfast::PinnedBuffer<Key> host_keys_;
  holdfast::PinnedBuffer<std::byte> host_values_;
  holdfast::PinnedBuffer<std::uint8_t> host_found_;
  holdfast::Stream stream_;
  std::uint64_t seed_ = 0;
};

}  // namespace bench
