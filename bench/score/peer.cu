#include "peer.hpp"

#include "holdfast/stream.hpp"

namespace score {

#if defined(HOLDFAST_BACKEND_CPU)

unsigned gpus_in_sight() { return 1; }

PeerMemory::PeerMemory(std::size_t bytes) : data_(holdfast::backend::allocate_device(bytes)) {}
PeerMemory::~PeerMemory() { holdfast::backend::free_device(data_); }

#else

namespace {

void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  throw holdfast::Error(holdfast::Errc::device,
                        holdfast::detail::concat(call, ": ", cudaGetErrorString(status)));
}

}  // namespace

unsigned gpus_in_sight() {
  int count = 0;
  check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  return static_cast<unsigned>(count);
}

PeerMemory::PeerMemory(std::size_t bytes) {
  if (gpus_in_sight() < 2) {
    check(cudaMalloc(&data_, bytes), "cudaMalloc");
    return;
  }
  int own = 0;
  check(cudaGetDevice(&own), "cudaGetDevice");
  const int other = own == 1 ? 0 : 1;
  const cudaError_t enabled = cudaDeviceEnablePeerAccess(other, 0);
  if (enabled != cudaErrorPeerAccessAlreadyEnabled) check(enabled, "cudaDeviceEnablePeerAccess");
  cudaGetLastError();
  check(cudaSetDevice(other), "cudaSetDevice");
  const cudaError_t allocated = cudaMalloc(&data_, bytes);
  check(cudaSetDevice(own), "cudaSetDevice");
  check(allocated, "cudaMalloc on the second GPU");
}

PeerMemory::~PeerMemory() { cudaFree(data_); }

#endif

}  // namespace score
