// Pinned memory of the host.
//
// The driver's own allocation clears pages with one thread, some 2 GB/s, and takes small ones, to
// which disks transfer slowly (core/large_pages.hpp). Large buffers are mapped and touched here by
// several threads, in large pages where there are some, and registered then. Whatever of that does
// not work leaves it to the driver, whose error is the one that is reported.
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <mutex>
#include <new>

#include "backend_cuda/check.hpp"
#include "core/large_pages.hpp"
#include "core/shared_memory.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::backend {

namespace {

using core::kLargePage;
// From here on. Less is a few pages of one call, and seldom what disks read and write.
constexpr std::size_t kLarge = 2 * kLargePage;

// Those that were made here, and their bytes.
struct Mapped {
  std::mutex mutex;
  std::map<void*, std::size_t> buffers;
};
Mapped& mapped() {
  static Mapped* const instance = new Mapped;  // never destroyed: buffers may outlive it
  return *instance;
}

bool note(void* address, std::size_t bytes) {
  Mapped& all = mapped();
  const std::lock_guard lock(all.mutex);
  try {
    return all.buffers.emplace(address, bytes).second;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

// At a multiple of a large page; null: there is none. REQUIRES: so is `bytes`.
std::byte* map_pages(std::size_t bytes) {
  const std::size_t reserved = bytes + kLargePage;
  void* const found = ::mmap(nullptr, reserved, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) return nullptr;
  std::byte* const begin = static_cast<std::byte*>(found);
  const std::size_t skipped =
      (kLargePage - reinterpret_cast<std::uintptr_t>(begin) % kLargePage) % kLargePage;
  if (skipped > 0) ::munmap(begin, skipped);
  ::munmap(begin + skipped + bytes, kLargePage - skipped);
  core::prefer_large_pages(begin + skipped, bytes);
  // A page that a forked child shares is copied when this process writes to it, and the device
  // would go on with the old one. The driver's own memory has no child either.
  if (::madvise(begin + skipped, bytes, MADV_DONTFORK) != 0) {
    ::munmap(begin + skipped, bytes);
    return nullptr;
  }
  return begin + skipped;
}

void* allocate_mapped(std::size_t bytes) {
  const std::size_t rounded = (bytes + kLargePage - 1) / kLargePage * kLargePage;
  // Memory that is promised and not there ends in the system killing processes.
  if (rounded < bytes || core::memory_free() < rounded) return nullptr;
  std::byte* const address = map_pages(rounded);
  if (!address) return nullptr;
  constexpr unsigned kFlags = cudaHostRegisterMapped | cudaHostRegisterPortable;
  if (core::populate(address, rounded) == 0 &&
      cudaHostRegister(address, rounded, kFlags) == cudaSuccess) {
    void* seen = nullptr;
    if (cudaHostGetDevicePointer(&seen, address, 0) == cudaSuccess && seen == address &&
        note(address, rounded)) {
      return address;
    }
    cudaHostUnregister(address);
  }
  cudaGetLastError();  // not sticky: the next call must not report it
  ::munmap(address, rounded);
  return nullptr;
}

}  // namespace

void* allocate_pinned(std::size_t bytes) {
  if (bytes >= kLarge) {
    if (void* const large = allocate_mapped(bytes)) return large;
  }
  void* address = nullptr;
  HOLDFAST_CUDA(cudaHostAlloc(&address, bytes, cudaHostAllocMapped | cudaHostAllocPortable));
  std::memset(address, 0, bytes);
  return address;
}

void free_pinned(void* address) noexcept {
  std::size_t bytes = 0;
  {
    Mapped& all = mapped();
    const std::lock_guard lock(all.mutex);
    const auto found = all.buffers.find(address);
    if (found != all.buffers.end()) {
      bytes = found->second;
      all.buffers.erase(found);
    }
  }
  if (bytes == 0) {
    cudaFreeHost(address);
    return;
  }
  if (cudaHostUnregister(address) != cudaSuccess) cudaGetLastError();
  ::munmap(address, bytes);
}

}  // namespace holdfast::backend
