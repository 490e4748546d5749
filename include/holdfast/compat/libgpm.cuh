// The interface of libGPM as its artifact has it (github.com/csl-iisc/GPM-ASPLOS22, both copies:
// LibGPM and GPMBench/libgpm), on Holdfast's regions, undo logs and checkpoints. Compile an
// application of the artifact with include/holdfast/compat/gpm in front of its include paths.
// Where the artifact differs from the paper, libgpm.h has the paper's; a file includes one of them.
//
// Host functions say on stderr why they fail and return what the artifact's do: null, -1, or an
// error's number. Paths that do not begin with / lie in the folder $HOLDFAST_GPM_FOLDER (the
// artifact: /pmem), or in the current one.
//
// What differs from the artifact, and why:
// - gpmlog_insert() writes an entry whole or, where the slot is full, not at all, and returns 0;
// the
//   artifact writes what fits. An entry has at most 4 KiB, and takes whole words of 4 bytes, which
//   gpmlog_get_size() counts.
// - Every insert is durable on return: PMEMLOG_UNSTRICT is taken and changes nothing.
// - gpmlog_remove(log, size, partition) of a managed log means that partition; the artifact's means
//   the calling thread's.
// - gpmlog_read_remove() of a managed log reads; the artifact's copies the other way.
// - gpmcp_register() past the limits of gpmcp_create() is refused; the artifact writes past its
// end.
// - A group is saved whole by gpmcp_checkpoint(): the device functions gpmcp_checkpoint_start(),
//   _value() and _finish(), which no application of the artifact calls, are not here.
// - gpm_is_pmem() in a kernel is true for everything, as the artifact's is on real memory.
//
// Thread safety: as libgpm.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "holdfast/compat/gpm/change-ddio.h"
#include "holdfast/compat/gpm_host.hpp"
#include "holdfast/compat/gpmlog.hpp"
#if defined(HOLDFAST_BACKEND_CPU)
#include "holdfast/cpu/executor.hpp"
#endif

#if !HOLDFAST_DEVICE_CODE
#error "libgpm.cuh is for files with kernels: name the file in holdfast_kernels(), or use libgpm.h"
#endif

#if defined(HOLDFAST_BACKEND_CPU)
// What of CUDA's runtime the interface speaks of.
using cudaError_t = int;
inline constexpr cudaError_t cudaSuccess = 0, cudaErrorInvalidValue = 1, cudaErrorUnknown = 999;
enum cudaMemcpyKind {
  cudaMemcpyHostToHost,
  cudaMemcpyHostToDevice,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaMemcpyDefault
};
#endif

enum gpmlog_flags {
  PMEMLOG_UNMANAGED = 1,  // partitions under a lock, which the caller chooses
  PMEMLOG_UNSTRICT = 2,
};

namespace holdfast::gpm {

// Stores as a kernel does, in the widest units that both addresses allow.
template <class Word>
__device__ inline void store_words(char*& to, const char*& from, std::size_t& bytes) {
  const std::uintptr_t both =
      reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from);
  while (bytes >= sizeof(Word) && both % sizeof(Word) == 0) {
    *reinterpret_cast<volatile Word*>(to) = *reinterpret_cast<const Word*>(from);
    to += sizeof(Word);
    from += sizeof(Word);
    bytes -= sizeof(Word);
  }
}

__device__ inline void store(void* to, const void* from, std::size_t bytes) {
  auto* t = static_cast<char*>(to);
  const auto* f = static_cast<const char*>(from);
  store_words<std::uint64_t>(t, f, bytes);
  store_words<std::uint32_t>(t, f, bytes);
  store_words<std::uint8_t>(t, f, bytes);
}

__device__ inline void fill(void* to, unsigned char value, std::size_t bytes) {
  const std::uint64_t word = 0x0101010101010101u * value;
  auto* t = static_cast<char*>(to);
  while (bytes > 0) {
    const std::size_t most = reinterpret_cast<std::uintptr_t>(t) % 8 == 0 ? 8 : 1;
    const std::size_t now = bytes < most ? 1 : most;
    store(t, &word, now);
    t += now;
    bytes -= now;
  }
}

// Of a log's answer: the bytes, 0 (full, or empty), or -1 (no such partition, or no such size).
__device__ inline int answer(LogStatus status, std::size_t bytes) {
  if (status == LogStatus::ok) return static_cast<int>(bytes);
  return status == LogStatus::full || status == LogStatus::empty ? 0 : -1;
}

// Partitions under a lock are the caller's to choose.
__device__ inline bool names_slot(const gpmlog* log, int partition) {
  return partition >= 0 || (partition == -1 && log->layout == LogLayout::coalesced);
}

}  // namespace holdfast::gpm

// ---- Memory ---------------------------------------------------------------------------------

// With `create`: `len` bytes, zero; a file that is there with as many bytes is opened as it is, and
// one whose creation was cut off is made anew.
// Without: `len` is 0 before, and the file's bytes behind.
[[maybe_unused]] static inline void* gpm_map_file(const char* path, std::size_t& len, bool create) {
  return holdfast::gpm::map_file(path, &len, create);
}
// The address alone says what; the path is for messages.
[[maybe_unused]] static inline cudaError_t gpm_unmap(const char* path, void* address, std::size_t) {
  return holdfast::gpm::unmap(path, address) ? cudaSuccess : cudaErrorInvalidValue;
}
[[maybe_unused]] static inline cudaError_t gpm_unmap(void* address, std::size_t) {
  return holdfast::gpm::unmap("", address) ? cudaSuccess : cudaErrorInvalidValue;
}

// What kernels persist between these by-passes the processor's caches (DDIO is off).
[[maybe_unused]] static inline void gpm_persist_begin() { ddio_off(); }
[[maybe_unused]] static inline void gpm_persist_end() { ddio_on(); }

// The calling thread's stores so far are durable when it returns.
#if defined(HOLDFAST_BACKEND_CPU)
inline void gpm_drain(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
  holdfast::persist(file, line);
}
#else
__device__ inline void gpm_drain() { holdfast::persist(); }
#endif
__device__ inline void gpm_persist() { gpm_drain(); }
__device__ inline void gpm_persist(const void*, std::size_t) { gpm_drain(); }
// The caches of a GPU keep nothing back from a fence: there is nothing to do.
__device__ inline void gpm_flush(const void*, std::size_t) {}

// By the calling thread of a kernel; not yet durable.
__device__ inline cudaError_t gpm_memcpy_nodrain(void* to, const void* from, std::size_t len,
                                                 cudaMemcpyKind) {
  holdfast::gpm::store(to, from, len);
  return cudaSuccess;
}
__device__ inline cudaError_t gpm_memset_nodrain(void* to, unsigned char value, std::size_t len) {
  holdfast::gpm::fill(to, value, len);
  return cudaSuccess;
}

namespace holdfast::gpm {

__host__ __device__ inline bool in_kernel() {
#if defined(__CUDA_ARCH__)
  return true;
#elif defined(HOLDFAST_BACKEND_CPU)
  return cpu::in_kernel();
#else
  return false;
#endif
}

}  // namespace holdfast::gpm

// In a kernel by the calling thread, elsewhere by the host's copies; durable on return. `from` may
// be any memory that the caller can read.
__host__ __device__ inline cudaError_t gpm_memcpy(void* to, const void* from, std::size_t len,
                                                  [[maybe_unused]] cudaMemcpyKind kind) {
#if !defined(__CUDA_ARCH__)
  if (!holdfast::gpm::in_kernel()) {
    return holdfast::gpm::copy(to, from, len) ? cudaSuccess : cudaErrorInvalidValue;
  }
#endif
#if defined(__CUDA_ARCH__) || defined(HOLDFAST_BACKEND_CPU)
  gpm_memcpy_nodrain(to, from, len, kind);
  gpm_drain();
#endif
  return cudaSuccess;
}

__host__ __device__ inline cudaError_t gpm_memset(void* to, unsigned char value, std::size_t len) {
#if !defined(__CUDA_ARCH__)
  if (!holdfast::gpm::in_kernel()) {
    return holdfast::gpm::set_bytes(to, value, len) ? cudaSuccess : cudaErrorInvalidValue;
  }
#endif
#if defined(__CUDA_ARCH__) || defined(HOLDFAST_BACKEND_CPU)
  gpm_memset_nodrain(to, value, len);
  gpm_drain();
#endif
  return cudaSuccess;
}

// Whether all of it lies in what gpm_map_file() gave; in a kernel always.
__host__ __device__ inline int gpm_is_pmem([[maybe_unused]] const void* address,
                                           [[maybe_unused]] std::size_t len) {
#if !defined(__CUDA_ARCH__)
  if (!holdfast::gpm::in_kernel()) return holdfast::gpm::is_mapped(address, len) ? 1 : 0;
#endif
  return 1;
}

// What the host stored there is durable when it returns.
[[maybe_unused]] static inline void pmem_mt_persist(void* address, std::size_t size) {
  holdfast::gpm::persist_by_host(address, size);
}

// ---- Logs -----------------------------------------------------------------------------------

// A new log, in place of one that is there: `len` bytes in partitions under a lock. What cannot be
// a log, or is open, is refused with the one that is there untouched; where memory or space is
// wanting that one is gone.
[[maybe_unused]] static inline gpmlog* gpmlog_create(const char* path, std::size_t len,
                                                     int partitions, int = 0) {
  return holdfast::gpm::create_log(path, &len, partitions, 1, false);
}
// A coalesced log with a slot for each thread; `len` is what it takes, behind.
[[maybe_unused]] static inline gpmlog* gpmlog_create_managed(const char* path, std::size_t& len,
                                                             int blocks, int threads, int = 0) {
  return holdfast::gpm::create_log(path, &len, blocks, threads, true);
}
// Their names in LibGPM.
[[maybe_unused]] static inline gpmlog* gpmlog_create_conv(const char* path, std::size_t len,
                                                          int partitions, int flags = 0) {
  return gpmlog_create(path, len, partitions, flags);
}
[[maybe_unused]] static inline gpmlog* gpmlog_create_hcl(const char* path, std::size_t& len,
                                                         int blocks, int threads, int flags = 0) {
  return gpmlog_create_managed(path, len, blocks, threads, flags);
}
[[maybe_unused]] static inline gpmlog* gpmlog_open(const char* path) {
  return holdfast::gpm::open_log(path);
}
[[maybe_unused]] static inline void gpmlog_close(gpmlog* log) { holdfast::gpm::close_log(log); }

__device__ inline int gpmlog_insert(gpmlog* log, const void* entry, std::size_t size,
                                    int partition = -1) {
  if (!holdfast::gpm::names_slot(log, partition)) return -1;
  return holdfast::detail::with_gpmlog(log, partition, [&](const auto& ref, std::uint32_t slot) {
    return holdfast::gpm::answer(ref.insert_bytes(entry, holdfast::detail::entry_bytes(size), slot),
                                 size);
  });
}

__device__ inline int gpmlog_read(gpmlog* log, void* entry, std::size_t size, int partition = -1) {
  if (!holdfast::gpm::names_slot(log, partition)) return -1;
  return holdfast::detail::with_gpmlog(log, partition, [&](const auto& ref, std::uint32_t slot) {
    return holdfast::gpm::answer(ref.read_bytes(entry, holdfast::detail::entry_bytes(size), slot),
                                 size);
  });
}

__device__ inline int gpmlog_remove(gpmlog* log, std::size_t size, int partition = -1) {
  if (!holdfast::gpm::names_slot(log, partition)) return -1;
  return holdfast::detail::with_gpmlog(log, partition, [&](const auto& ref, std::uint32_t slot) {
    return holdfast::gpm::answer(ref.remove(holdfast::detail::entry_bytes(size), slot), size);
  });
}

// Two steps: of a partition that several threads use, one at a time may call it.
__device__ inline int gpmlog_read_remove(gpmlog* log, void* entry, std::size_t size,
                                         int partition = -1) {
  const int read = gpmlog_read(log, entry, size, partition);
  return read > 0 ? gpmlog_remove(log, size, partition) : read;
}

__device__ inline void gpmlog_clear(gpmlog* log, int partition = -1) {
  if (!holdfast::gpm::names_slot(log, partition)) return;
  holdfast::detail::with_gpmlog(log, partition, [&](const auto& ref, std::uint32_t slot) {
    ref.clear(slot);
    return 0;
  });
}

__device__ inline int gpmlog_is_empty(gpmlog* log, int partition = -1) {
  if (!holdfast::gpm::names_slot(log, partition)) return -1;
  return holdfast::detail::with_gpmlog(log, partition, [&](const auto& ref, std::uint32_t slot) {
    return ref.is_empty(slot) ? 1 : 0;
  });
}

// Bytes of the entries in the thread's slot or a partition.
__device__ inline std::size_t gpmlog_get_size(gpmlog* log, int partition = -1) {
  if (!holdfast::gpm::names_slot(log, partition)) return 0;
  return static_cast<std::size_t>(holdfast::detail::with_gpmlog(
      log, partition, [&](const auto& ref, std::uint32_t slot) { return ref.bytes(slot); }));
}

__host__ __device__ inline int gpmlog_get_partitions(gpmlog* log) {
#if !defined(__CUDA_ARCH__)
  if (!holdfast::gpm::in_kernel()) return holdfast::gpm::partitions(log);
#endif
#if defined(__CUDA_ARCH__) || defined(HOLDFAST_BACKEND_CPU)
  return static_cast<int>(log->layout == holdfast::LogLayout::coalesced ? log->coalesced.slots
                                                                        : log->conventional.slots);
#else
  return 0;
#endif
}

// ---- Checkpoints ----------------------------------------------------------------------------

// At most 500 groups. A file that is there with the same limits is opened as it is, and one whose
// creation was cut off is made anew.
[[maybe_unused]] static inline gpmcp* gpmcp_create(const char* path, std::size_t size,
                                                   long long elements, long long partitions) {
  return holdfast::gpm::create_checkpoint(path, size, elements, partitions);
}
[[maybe_unused]] static inline gpmcp* gpmcp_open(const char* path) {
  return holdfast::gpm::open_checkpoint(path);
}
[[maybe_unused]] static inline void gpmcp_close(gpmcp* checkpoint) {
  holdfast::gpm::close_checkpoint(checkpoint);
}
[[maybe_unused]] static inline long long gpmcp_register(gpmcp* checkpoint, void* address,
                                                        std::size_t size, long long partition) {
  return holdfast::gpm::register_element(checkpoint, address, size, partition) ? 0 : -1;
}
[[maybe_unused]] static inline long long gpmcp_checkpoint(gpmcp* checkpoint, long long partition) {
  return holdfast::gpm::save(checkpoint, partition) ? 0 : -1;
}
[[maybe_unused]] static inline long long gpmcp_restore(gpmcp* checkpoint, long long partition) {
  return holdfast::gpm::restore(checkpoint, partition) ? 0 : -1;
}
