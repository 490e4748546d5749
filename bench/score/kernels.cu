#include "kernels.hpp"

#include <chrono>

#include "holdfast/kernel.hpp"

namespace score {

namespace {

// A device full of threads; on the CPU backend, where each is a fiber, a few.
#if defined(HOLDFAST_BACKEND_CPU)
constexpr unsigned kBlocks = 2, kThreads = 32;
#else
constexpr unsigned kBlocks = 1056, kThreads = 256;
#endif

__host__ __device__ inline std::uint64_t word(std::uint64_t key, std::uint64_t i) {
  std::uint64_t x = (i ^ key) * 0x9e3779b97f4a7c15u;
  return x ^ (x >> 29) ^ key;
}

__global__ void fill_words(std::uint64_t* words, std::uint64_t count, std::uint64_t key) {
  const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
    words[i] = word(key, i);
  }
}

__global__ void check_words(const std::uint64_t* words, std::uint64_t count, std::uint64_t key,
                            unsigned long long* wrong) {
  const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
  unsigned long long mine = 0;
  for (std::uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
    mine += words[i] != word(key, i);
  }
  if (mine > 0) atomicAdd(wrong, mine);
}

__device__ inline std::uint64_t now_ns() {
#if defined(__CUDA_ARCH__)
  std::uint64_t time;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
#elif !defined(__CUDACC__)
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#else
  return 0;  // nvcc's pass over the host's half: never called
#endif
}

__global__ void spin(std::uint64_t nanoseconds) {
  const std::uint64_t start = now_ns();
  while (now_ns() - start < nanoseconds) {
  }
}

__global__ void multiply_add(float* out, std::uint64_t rounds) {
  float a = static_cast<float>(threadIdx.x), b = a + 1, c = a + 2, d = a + 3;
  for (std::uint64_t i = 0; i < rounds; ++i) {
    a = a * 0.999f + b;
    b = b * 0.998f + c;
    c = c * 0.997f + d;
    d = d * 0.996f + a;
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = a + b + c + d;
}

__global__ void sweep_words(const std::uint64_t* from, std::uint64_t* to, std::uint64_t count) {
  const std::uint64_t threads = std::uint64_t{gridDim.x} * blockDim.x;
  for (std::uint64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += threads) {
    to[i] = from[i] + 1;
  }
}

}  // namespace

void fill(holdfast::Stream& stream, std::uint64_t* words, std::uint64_t count, std::uint64_t key) {
  holdfast::launch(stream, kBlocks, kThreads, fill_words, words, count, key);
}

void check(holdfast::Stream& stream, const std::uint64_t* words, std::uint64_t count,
           std::uint64_t key, unsigned long long* wrong) {
  holdfast::launch(stream, kBlocks, kThreads, check_words, words, count, key, wrong);
}

void busy(holdfast::Stream& stream, std::uint64_t nanoseconds) {
#if defined(HOLDFAST_BACKEND_CPU)
  holdfast::launch(stream, 1, 1, spin, nanoseconds);  // threads run in turn there
#else
  holdfast::launch(stream, kBlocks / 8, kThreads, spin, nanoseconds);  // one wave of every GPU
#endif
}

void compute(holdfast::Stream& stream, float* out, std::uint64_t rounds) {
  holdfast::launch(stream, kBlocks, kThreads, multiply_add, out, rounds);
}

std::uint64_t compute_outputs() { return std::uint64_t{kBlocks} * kThreads; }

void sweep(holdfast::Stream& stream, const std::uint64_t* from, std::uint64_t* to,
           std::uint64_t count) {
  holdfast::launch(stream, kBlocks, kThreads, sweep_words, from, to, count);
}

}  // namespace score
