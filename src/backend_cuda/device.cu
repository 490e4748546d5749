#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "backend_cuda/check.hpp"
#include "core/kernel_memory.hpp"
#include "core/persist_delay.hpp"
#include "holdfast/stream.hpp"

namespace holdfast {
namespace detail {
namespace {

Errc classify(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return Errc::no_memory;
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorHardwareStackError:
    case cudaErrorLaunchTimeout:
      return Errc::kernel_fault;
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
      return Errc::unsupported;
    case cudaErrorInvalidConfiguration:
    case cudaErrorLaunchOutOfResources:
      return Errc::invalid_argument;
    default:
      return Errc::device;
  }
}

}  // namespace

Error cuda_error(cudaError_t status, const char* call, const char* file, int line) {
  const char* slash = std::strrchr(file, '/');
  return Error(classify(status),
               concat("CUDA: ", cudaGetErrorString(status), " (", cudaGetErrorName(status),
                      ") from ", call, " at ", slash ? slash + 1 : file, ":", line));
}

}  // namespace detail

namespace backend {

const char* name() noexcept { return "cuda"; }

bool usable(std::string* why) noexcept {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaSuccess && count > 0) return true;
  if (why) {
    *why = status == cudaSuccess ? "no GPU is visible" : cudaGetErrorString(status);
  }
  return false;
}

namespace {

cudaDeviceProp properties() {
  cudaDeviceProp found;
  HOLDFAST_CUDA(cudaGetDeviceProperties(&found, device_number()));
  return found;
}

}  // namespace

std::string device_name() { return properties().name; }

int device_number() {
  int device = 0;
  HOLDFAST_CUDA(cudaGetDevice(&device));
  return device;
}

void set_device(int number) { HOLDFAST_CUDA(cudaSetDevice(number)); }

std::string device_pci_address() {
  const int device = device_number();
  char address[32] = {};
  HOLDFAST_CUDA(cudaDeviceGetPCIBusId(address, sizeof(address), device));
  std::string text = address;
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::size_t free_device_memory() {
  std::size_t free = 0;
  std::size_t total = 0;
  HOLDFAST_CUDA(cudaMemGetInfo(&free, &total));
  return free;
}

void synchronize(void* native_stream) {
  if (native_stream == nullptr) {
    HOLDFAST_CUDA(cudaDeviceSynchronize());
  } else {
    HOLDFAST_CUDA(cudaStreamSynchronize(static_cast<cudaStream_t>(native_stream)));
  }
}

void* allocate_device(std::size_t bytes) {
  void* address = nullptr;
  HOLDFAST_CUDA(cudaMalloc(&address, bytes));
  const cudaError_t status = cudaMemset(address, 0, bytes);
  if (status != cudaSuccess) {
    cudaFree(address);
    HOLDFAST_CUDA(status);
  }
  HOLDFAST_CUDA(cudaDeviceSynchronize());
  return address;
}

// After a fault the context is gone and freeing fails; there is nothing left to free.
void free_device(void* address) noexcept { cudaFree(address); }

namespace {

// Ranges that are registered, by their first byte: one call may not copy across two of them.
struct Registered {
  std::mutex mutex;
  std::map<std::uintptr_t, std::size_t> ranges;
};
Registered& registered() {
  static Registered* const instance = new Registered;  // never destroyed: regions may outlive it
  return *instance;
}

}  // namespace

std::size_t bytes_before_boundary(const void* address, std::size_t bytes) {
  Registered& all = registered();
  const std::lock_guard lock(all.mutex);
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  auto range = all.ranges.upper_bound(at);
  if (range == all.ranges.begin()) return bytes;
  --range;
  if (at - range->first >= range->second) return bytes;
  return std::min(bytes, range->second - (at - range->first));
}

void register_host(void* address, std::size_t bytes, const std::string& what) {
  const cudaError_t status =
      cudaHostRegister(address, bytes, cudaHostRegisterMapped | cudaHostRegisterPortable);
  if (status == cudaSuccess) {
    void* seen = nullptr;
    HOLDFAST_CUDA(cudaHostGetDevicePointer(&seen, address, 0));
    if (seen == address) {
      const std::lock_guard lock(registered().mutex);
      registered().ranges[reinterpret_cast<std::uintptr_t>(address)] = bytes;
      return;
    }
    cudaHostUnregister(address);
    throw Error(Errc::unsupported,
                detail::concat(what,
                               ": this GPU sees pinned memory at another address than the "
                               "host; Holdfast needs a 64-bit system with unified addressing"));
  }
  cudaGetLastError();  // not sticky: the next call must not report it
  const Error cause = detail::cuda_error(status, "cudaHostRegister", __FILE__, __LINE__);
  throw Error(cause.code(), detail::concat("cannot pin ", bytes, " bytes of ", what,
                                           " for the GPU: ", cause.what(),
                                           "; use a smaller region, or a folder on tmpfs"));
}

void unregister_host(void* address, std::size_t) noexcept {
  {
    const std::lock_guard lock(registered().mutex);
    registered().ranges.erase(reinterpret_cast<std::uintptr_t>(address));
  }
  if (cudaHostUnregister(address) != cudaSuccess) cudaGetLastError();
}

void set_persist_delay_ns(double) noexcept {}

}  // namespace backend

namespace {

enum class Memory { other, pinned, of_device };

Memory memory_of(const void* address) {
  cudaPointerAttributes found{};
  if (cudaPointerGetAttributes(&found, address) != cudaSuccess) {
    cudaGetLastError();
    return Memory::other;
  }
  // Memory that is registered may be at another address for the GPU.
  if (found.type == cudaMemoryTypeHost && found.devicePointer == address) return Memory::pinned;
  int device = 0;
  const bool here = found.type == cudaMemoryTypeDevice && cudaGetDevice(&device) == cudaSuccess &&
                    found.device == device;
  return here ? Memory::of_device : Memory::other;
}

const void* last_of(const void* address, std::size_t bytes) {
  return static_cast<const char*>(address) + bytes - 1;
}

}  // namespace

// The last byte, too: pinned memory may end before pageable memory goes on. Memory is pinned by
// whole pages, so that of a few words one is asked for: each question takes a good part of a
// microsecond.
bool core::readable_by_kernels(const void* address, std::size_t bytes) noexcept {
  constexpr std::uintptr_t kPage = 4096;
  if (bytes == 0) return false;
  const void* const last = last_of(address, bytes);
  const bool in_a_page = reinterpret_cast<std::uintptr_t>(address) / kPage ==
                         reinterpret_cast<std::uintptr_t>(last) / kPage;
  return memory_of(last) != Memory::other && (in_a_page || memory_of(address) != Memory::other);
}

bool core::in_device_memory(const void* address, std::size_t bytes) noexcept {
  return bytes != 0 && memory_of(address) == Memory::of_device &&
         memory_of(last_of(address, bytes)) == Memory::of_device;
}

}  // namespace holdfast
