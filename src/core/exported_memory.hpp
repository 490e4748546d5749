// Device memory that another process can map, as the history's partner copies need it. On a GPU
// CUDA's own handles between processes; on the CPU backend a file in memory without a name, which
// behaves alike: nobody can map it any more once its maker has ended, and who has mapped it keeps
// the bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace holdfast::backend {

// By which another process finds the memory. What it says is the backend's own.
struct MemoryHandle {
  std::uint8_t bytes[64];
};

// Memory of the current device, zeroed. Throws no_memory, unsupported (this device shares none).
void* allocate_exported(std::size_t bytes, MemoryHandle& handle);
// REQUIRES: no other process has it mapped, which CUDA forbids.
void free_exported(void* address, std::size_t bytes, const MemoryHandle& handle) noexcept;

// Maps memory of a process that has not ended, to be used by the current device. REQUIRES: it is
// another process, with as many bytes. Throws unsupported, in words: it cannot be mapped here.
void* import_memory(const MemoryHandle& handle, std::uint64_t process, std::size_t bytes);
// REQUIRES: no work that uses it is left.
void release_imported(void* address, std::size_t bytes) noexcept;

}  // namespace holdfast::backend
