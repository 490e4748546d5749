// The interface of libGPM as the paper has it (GPM, ASPLOS '22, Table 2; that of its artifact is
// libgpm.cuh) on Holdfast's regions, undo logs and checkpoints, so that code written for it
// compiles with a changed include.
//
// Host functions throw holdfast::Error where they cannot do what they are asked. Device functions
// of logs return 0, or the number of a holdfast::LogStatus (a full log is 1, an empty one 2).
// Thread safety: host functions from any thread, of one checkpoint one thread at a time; device
// functions as undo_log_ref.hpp says.
#pragma once

#include <cstddef>

#include "holdfast/compat/gpmlog.hpp"

// ---- Memory ---------------------------------------------------------------------------------

// Maps the persistent memory of `path` for the host and for kernels. With `create` it is made,
// zeroed, with `size` bytes. Without, it must be there with at least `size` bytes (0: any), as
// its last user left it, a crash included. A path below /dev/dax is mapped directly.
void* gpm_map(const char* path, std::size_t size, bool create);

// Makes what was written durable on the medium and lets go of it.
// REQUIRES: `address` from gpm_map(path, ...), and no kernel uses it any more.
void gpm_unmap(const char* path, void* address, std::size_t size);

// Around kernels that persist: switches DDIO off and on again where there is a dax domain.
void gpm_persist_begin();
void gpm_persist_end();

// ---- Logs -----------------------------------------------------------------------------------

// A log of `size` bytes of entries in `partitions` locked partitions. Throws already_exists.
gpmlog* gpmlog_create_conv(const char* path, std::size_t size, int partitions);
// A coalesced log of `size` bytes of entries for `blocks` blocks of `threads` threads.
gpmlog* gpmlog_create_hcl(const char* path, std::size_t size, int blocks, int threads);
// Throws not_found, damaged, in_use.
gpmlog* gpmlog_open(const char* path);
void gpmlog_close(gpmlog* log);

// ---- Checkpoints ----------------------------------------------------------------------------

// A checkpoint file: groups of data structures, saved and restored group by group.
struct gpmcp;

// Makes the file for `groups` groups, at most 500, numbered from 0, of at most `elements` data
// structures each, which have at most `size` bytes in all groups together. Throws already_exists,
// invalid_argument.
gpmcp* gpmcp_create(const char* path, std::size_t size, int elements, int groups);
// Opens a file as its last user left it, a crash included. Throws not_found, damaged, in_use.
gpmcp* gpmcp_open(const char* path);
// Makes the last checkpoints durable on disk and lets go of the file.
void gpmcp_close(gpmcp* checkpoint);

// Adds `size` bytes at `address`, of memory that kernels can read, to a group. A program that opens
// a file registers what the file's maker did, group by group in the same order and size.
// Throws invalid_argument past the limits of gpmcp_create() (the message says which), and once the
// group was saved or restored.
void gpmcp_register(gpmcp* checkpoint, void* address, std::size_t size, int group);

// Saves what is registered in a group; on return it survives a crash of the process. Waits for all
// work that the device was given. Throws invalid_argument: nothing is registered, or the file holds
// the group with other sizes or in another order.
void gpmcp_checkpoint(gpmcp* checkpoint, int group);
// Loads what the last gpmcp_checkpoint() of the group saved. Throws as it does, not_found if there
// was none, and damaged.
void gpmcp_restore(gpmcp* checkpoint, int group);

#if HOLDFAST_DEVICE_CODE

// All earlier stores of the calling thread to persistent memory are durable when it returns.
#if defined(HOLDFAST_BACKEND_CPU)
inline void gpm_persist(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE()) {
  holdfast::persist(file, line);
}
#else
__device__ inline void gpm_persist() { holdfast::persist(); }
#endif

// Appends `size` bytes, at most 4 KiB, to the thread's slot or to a partition; durable on return.
__device__ inline int gpmlog_insert(gpmlog* log, const void* entry, std::size_t size,
                                    int partition = -1) {
  return holdfast::detail::with_gpmlog(log, partition, [&](const auto& ref, std::uint32_t slot) {
    return ref.insert_bytes(entry, holdfast::detail::entry_bytes(size), slot);
  });
}

// Copies out the newest entry, which has `size` bytes.
__device__ inline int gpmlog_read(gpmlog* log, void* entry, std::size_t size, int partition = -1) {
  return holdfast::detail::with_gpmlog(log, partition, [&](const auto& ref, std::uint32_t slot) {
    return ref.read_bytes(entry, holdfast::detail::entry_bytes(size), slot);
  });
}

// Drops the newest entry, which has `size` bytes; durable on return.
__device__ inline int gpmlog_remove(gpmlog* log, std::size_t size, int partition = -1) {
  return holdfast::detail::with_gpmlog(log, partition, [&](const auto& ref, std::uint32_t slot) {
    return ref.remove(holdfast::detail::entry_bytes(size), slot);
  });
}

// Empties the thread's slot or a partition; durable on return.
__device__ inline int gpmlog_clear(gpmlog* log, int partition = -1) {
  return holdfast::detail::with_gpmlog(log, partition, [&](const auto& ref, std::uint32_t slot) {
    ref.clear(slot);
    return holdfast::LogStatus::ok;
  });
}

// 1 if the thread's slot or a partition holds no entry. (libGPM's own code asks the tail.)
__device__ inline int gpmlog_is_empty(gpmlog* log, int partition = -1) {
  return holdfast::detail::with_gpmlog(log, partition, [&](const auto& ref, std::uint32_t slot) {
    return ref.is_empty(slot) ? 1 : 0;
  });
}

#endif  // HOLDFAST_DEVICE_CODE
