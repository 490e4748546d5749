#include "backend_cuda/check.hpp"
#include "core/exported_memory.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::backend {

static_assert(sizeof(cudaIpcMemHandle_t) == sizeof(MemoryHandle));

namespace {

// CUDA shares the whole blocks that its allocations are parts of; these are blocks of their own.
constexpr std::size_t kBlock = std::size_t{2} << 20;

cudaIpcMemHandle_t* as_cuda(MemoryHandle& handle) {
  return reinterpret_cast<cudaIpcMemHandle_t*>(handle.bytes);
}

}  // namespace

void* allocate_exported(std::size_t bytes, MemoryHandle& handle) {
  if (bytes > ~std::size_t{0} - kBlock) {
    throw Error(Errc::no_memory, detail::concat("no GPU has ", bytes, " bytes to lend"));
  }
  void* const address = allocate_device((bytes + kBlock - 1) / kBlock * kBlock);
  const cudaError_t status = cudaIpcGetMemHandle(as_cuda(handle), address);
  if (status == cudaSuccess) return address;
  cudaGetLastError();  // not sticky: the next call must not report it
  free_device(address);
  throw Error(Errc::unsupported,
              detail::concat("this GPU's memory cannot be shared with another process: ",
                             cudaGetErrorString(status),
                             "; a part of a GPU (MIG) cannot, nor can a "
                             "system without CUDA's inter-process handles"));
}

void free_exported(void* address, std::size_t, const MemoryHandle&) noexcept {
  free_device(address);
}

void* import_memory(const MemoryHandle& handle, std::uint64_t, std::size_t) {
  MemoryHandle copy = handle;
  void* address = nullptr;
  const cudaError_t status =
      cudaIpcOpenMemHandle(&address, *as_cuda(copy), cudaIpcMemLazyEnablePeerAccess);
  if (status == cudaSuccess) return address;
  cudaGetLastError();
  throw Error(Errc::unsupported, cudaGetErrorString(status));
}

void release_imported(void* address, std::size_t) noexcept {
  if (cudaIpcCloseMemHandle(address) != cudaSuccess) cudaGetLastError();
}

}  // namespace holdfast::backend
