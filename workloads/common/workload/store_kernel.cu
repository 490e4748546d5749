#include "workload/store_kernel.hpp"

#include <algorithm>

#include "holdfast/kernel.hpp"

namespace workload {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kMostBlocks = 1024;

struct alignas(16) Chunk {
  std::uint64_t halves[2];
};

// By `Unit`, which both addresses are aligned to, and what is left of one by single bytes.
template <class Unit>
__device__ void copy_by(unsigned char* to, const unsigned char* from, std::uint64_t bytes) {
  const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::uint64_t units = bytes / sizeof(Unit);
  for (std::uint64_t i = thread; i < units; i += threads) {
    reinterpret_cast<Unit*>(to)[i] = reinterpret_cast<const Unit*>(from)[i];
  }
  for (std::uint64_t i = units * sizeof(Unit) + thread; i < bytes; i += threads) to[i] = from[i];
}

// By the widest units that both addresses have: stores of single bytes would each be a transfer.
__global__ void copy_bytes(unsigned char* to, const unsigned char* from, std::uint64_t bytes) {
  const auto addresses =
      reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  if (addresses % sizeof(Chunk) == 0) return copy_by<Chunk>(to, from, bytes);
  if (addresses % 8 == 0) return copy_by<std::uint64_t>(to, from, bytes);
  if (addresses % 4 == 0) return copy_by<std::uint32_t>(to, from, bytes);
  copy_by<unsigned char>(to, from, bytes);
}

}  // namespace

void store_by_kernel(holdfast::Stream& stream, void* to, const void* from, std::uint64_t bytes) {
  if (bytes == 0) return;
  const unsigned blocks =
      std::min(holdfast::blocks_for(bytes, kThreads * sizeof(Chunk)), kMostBlocks);
  holdfast::launch(stream, dim3(blocks), dim3(kThreads), copy_bytes,
                   static_cast<unsigned char*>(to), static_cast<const unsigned char*>(from), bytes);
}

}  // namespace workload
