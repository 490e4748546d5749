// Memory of the CPU backend. "Device memory" is host memory.
#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>

#include "core/guard.hpp"
#include "core/kernel_memory.hpp"
#include "core/large_pages.hpp"
#include "core/shared_memory.hpp"
#include "holdfast/cpu/executor.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::backend {
namespace {

constexpr std::size_t kDeviceAlignment = 256;
constexpr std::size_t kPage = 4096;
// From here on memory comes from mmap: zeroed by the system, and only what is used is touched.
constexpr std::size_t kLarge = std::size_t{1} << 20;
// From here on the system is asked whether it has the memory before it is promised.
constexpr std::size_t kChecked = std::size_t{64} << 20;

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kMapLarge = false;  // the sanitizer sees overruns of the heap alone
#else
constexpr bool kMapLarge = true;
#endif

struct DeviceMemory {
  std::size_t bytes;
  std::uint64_t number;
};
struct Known {
  std::mutex mutex;
  std::unordered_map<void*, std::size_t> mapped;  // bytes of each large allocation
  std::map<std::uintptr_t, DeviceMemory> device;  // by where they start
  std::uint64_t device_allocations = 0;           // ever made
  std::map<std::uintptr_t, std::size_t> pinned;   // bytes, by where they start
};
// Never destroyed, since buffers may outlive it; and made where no memory is left, too.
Known& known() {
  alignas(Known) static std::byte storage[sizeof(Known)];
  static Known* const instance = new (storage) Known;
  return *instance;
}
std::atomic<bool> g_any_pinned{false};

[[noreturn]] void throw_no_memory(std::size_t bytes) {
  throw Error(Errc::no_memory,
              detail::concat("no room for ", bytes, " bytes: ", core::memory_free(),
                             " are available on this machine; allocate less or free some"));
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (bytes == 0) bytes = 1;
  if (bytes > std::numeric_limits<std::size_t>::max() - kPage ||
      (bytes >= kChecked && bytes > core::memory_free())) {
    throw_no_memory(bytes);
  }
  if (kMapLarge && bytes >= kLarge) {
    const std::size_t mapped = (bytes + kPage - 1) / kPage * kPage;
    void* memory =
        mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw_no_memory(bytes);
    if (alignment >= core::kLargePage) core::prefer_large_pages(memory, mapped);
    try {
      const std::lock_guard lock(known().mutex);
      known().mapped.emplace(memory, mapped);
    } catch (...) {
      munmap(memory, mapped);
      throw;
    }
    return memory;
  }
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes) != 0) throw_no_memory(bytes);
  if (alignment >= core::kLargePage) core::prefer_large_pages(memory, bytes);
  std::memset(memory, 0, bytes);
  return memory;
}

void release(void* address) noexcept {
  if (address == nullptr) return;
  std::size_t mapped = 0;
  {
    const std::lock_guard lock(known().mutex);
    if (const auto found = known().mapped.find(address); found != known().mapped.end()) {
      mapped = found->second;
      known().mapped.erase(found);
    }
  }
  if (mapped != 0) {
    munmap(address, mapped);
  } else {
    std::free(address);
  }
}

}  // namespace

const char* name() noexcept { return "cpu"; }

std::string device_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) {
      const auto colon = line.find(": ");
      if (colon != std::string::npos) return line.substr(colon + 2);
    }
  }
  return "a processor";
}

std::string device_pci_address() { return ""; }

int device_number() { return 0; }
void set_device(int /*number*/) {}

bool usable(std::string* /*why*/) noexcept { return true; }

std::size_t free_device_memory() { return core::memory_free(); }

void* allocate_device(std::size_t bytes) try {
  void* const memory = allocate(bytes, kDeviceAlignment);
  try {
    const std::lock_guard lock(known().mutex);
    known().device.emplace(reinterpret_cast<std::uintptr_t>(memory),
                           DeviceMemory{bytes, known().device_allocations + 1});
    ++known().device_allocations;
  } catch (...) {
    release(memory);
    throw;
  }
  return memory;
} catch (const std::exception&) {
  core::fail("device memory");
}
void free_device(void* address) noexcept {
  {
    const std::lock_guard lock(known().mutex);
    known().device.erase(reinterpret_cast<std::uintptr_t>(address));
  }
  release(address);
}
void* allocate_pinned(std::size_t bytes) try {
  void* const memory = allocate(bytes, core::page_alignment(bytes));
  try {
    const std::lock_guard lock(known().mutex);
    known().pinned.emplace(reinterpret_cast<std::uintptr_t>(memory), bytes);
    g_any_pinned = true;
  } catch (...) {
    release(memory);
    throw;
  }
  return memory;
} catch (const std::exception&) {
  core::fail("pinned memory");
}
void free_pinned(void* address) noexcept {
  {
    const std::lock_guard lock(known().mutex);
    known().pinned.erase(reinterpret_cast<std::uintptr_t>(address));
    g_any_pinned = !known().pinned.empty();
  }
  release(address);
}

void register_host(void* /*address*/, std::size_t /*bytes*/, const std::string& /*what*/) {}
void unregister_host(void* /*address*/, std::size_t /*bytes*/) noexcept {}

}  // namespace holdfast::backend

namespace holdfast::cpu {

std::optional<DeviceAllocation> device_allocation(const void* address) {
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const std::lock_guard lock(backend::known().mutex);
  const auto next = backend::known().device.upper_bound(at);
  if (next == backend::known().device.begin()) return std::nullopt;
  const auto& [start, memory] = *std::prev(next);
  if (at - start >= memory.bytes) return std::nullopt;
  return DeviceAllocation{start, memory.number};
}

bool is_pinned_memory(const void* address) {
  if (!backend::g_any_pinned.load(std::memory_order_relaxed)) return false;
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  const std::lock_guard lock(backend::known().mutex);
  const auto next = backend::known().pinned.upper_bound(at);
  if (next == backend::known().pinned.begin()) return false;
  const auto& [start, bytes] = *std::prev(next);
  return at - start < bytes;
}

bool is_device_memory(const void* address) { return device_allocation(address).has_value(); }

std::uint64_t device_allocations() {
  const std::lock_guard lock(backend::known().mutex);
  return backend::known().device_allocations;
}

}  // namespace holdfast::cpu

namespace holdfast::core {

// What kernels can read here is all; but on a GPU it would be these.
bool readable_by_kernels(const void* address, std::size_t bytes) noexcept {
  const auto is_readable = [](const void* at) {
    return cpu::is_device_memory(at) || cpu::is_pinned_memory(at);
  };
  return bytes != 0 && is_readable(address) &&
         is_readable(static_cast<const char*>(address) + bytes - 1);
}

bool in_device_memory(const void* address, std::size_t bytes) noexcept {
  return bytes != 0 && cpu::is_device_memory(address) &&
         cpu::is_device_memory(static_cast<const char*>(address) + bytes - 1);
}

}  // namespace holdfast::core
