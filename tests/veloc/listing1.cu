#include "veloc/listing1.hpp"

#include "holdfast/compat/veloc.h"
#include "holdfast/kernel.hpp"
#include "holdfast/stream.hpp"

namespace listing1 {
namespace {

__device__ std::uint32_t value_of(int version, std::uint32_t i) {
  return static_cast<std::uint32_t>(version) * 2654435761u + i * 40503u;
}

__global__ void compute_and_compress(std::uint32_t* data, int version, std::uint32_t elements) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < elements) data[i] = value_of(version, i);
}

__global__ void uncompress_and_compute(const std::uint32_t* data, int version,
                                       std::uint32_t elements, unsigned long long* wrong) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < elements && data[i] != value_of(version, i)) atomicAdd(wrong, 1ull);
}

}  // namespace

long long run(const char* config, int versions) {
  holdfast::Stream stream;  // where the paper has the default stream
  holdfast::DeviceBuffer<std::uint32_t> data(kMost);
  holdfast::PinnedBuffer<unsigned long long> wrong(1);
  if (VELOC_Init_single(0, config) != VELOC_SUCCESS) return -1;
  int failed = 0;
  for (int version = versions - 1; version >= 0; --version) {
    failed += VELOC_Prefetch_enqueue(version) != VELOC_SUCCESS;
  }
  for (int version = 0; version < versions; ++version) {
    const std::uint32_t elements = elements_of(version);
    failed += VELOC_Mem_protect(1, data.data(), elements * sizeof(std::uint32_t)) != VELOC_SUCCESS;
    holdfast::launch(stream, holdfast::blocks_for(elements, 128), 128, compute_and_compress,
                     data.data(), version, elements);
    failed += VELOC_Checkpoint("listing", version) != VELOC_SUCCESS;
  }
  failed += VELOC_Prefetch_start() != VELOC_SUCCESS;
  for (int version = versions - 1; version >= 0; --version) {
    const long long bytes = VELOC_Recover_size(version, 1);
    failed += bytes != static_cast<long long>(elements_of(version) * sizeof(std::uint32_t));
    failed += VELOC_Mem_protect(1, data.data(), static_cast<std::size_t>(bytes)) != VELOC_SUCCESS;
    failed += VELOC_Restart(version) != VELOC_SUCCESS;
    holdfast::launch(stream, holdfast::blocks_for(elements_of(version), 128), 128,
                     uncompress_and_compute, data.data(), version, elements_of(version),
                     wrong.data());
  }
  stream.synchronize();
  failed += VELOC_Finalize(1) != VELOC_SUCCESS;
  return failed > 0 ? -1 : static_cast<long long>(wrong[0]);
}

}  // namespace listing1
