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

__global__ void copy_bytes(unsigned char* to, const unsigned char* from, std::uint64_t bytes) {
  const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
  const std::uint64_t thread = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const bool aligned = (reinterpret_cast<std::uintptr_t>(to) % sizeof(Chunk) |
                        reinterpret_cast<std::uintptr_t>(from) % sizeof(Chunk)) == 0;
  const std::uint64_t chunks = aligned ? bytes / sizeof(Chunk) : 0;
  for (std::uint64_t i = thread; i < chunks; i += threads) {
    reinterpret_cast<Chunk*>(to)[i] = reinterpret_cast<const Chunk*>(from)[i];
  }
  for (std::uint64_t i = chunks * sizeof(Chunk) + thread; i < bytes; i += threads) to[i] = from[i];
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
