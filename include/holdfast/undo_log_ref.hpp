// The device side of an undo log. See undo_log.hpp for the host side and docs/format.md for the
// bytes.
#pragma once

#include <cstdint>

#include "holdfast/config.hpp"
#include "holdfast/page_marks.hpp"

#if HOLDFAST_DEVICE_CODE
#include "holdfast/kernel.hpp"
#endif

namespace holdfast {

enum class LogLayout : std::uint32_t {
  coalesced = 1,     // striped over a warp in 4-byte words; a slot per thread, no locks
  conventional = 2,  // contiguous; a slot per partition, under a lock
};

enum class LogStatus {
  ok,
  full,      // no room in the slot: nothing was written
  empty,     // no entry of that size in the slot
  bad_size,  // 0 bytes, or over kMaxEntryBytes
  bad_slot,  // the slot number is past the log's end
};

inline constexpr std::uint32_t kMaxEntryBytes = 4096;

// Trivially copyable. A slot is a stack of entries; its tail holds how many words are in use and
// the tag of the epoch in which that is true.
//
// Invariant: an entry is durable before the tail that counts it, and the tail is durable before
// insert() returns; so after a crash every counted entry is whole.
//
// Thread safety: coalesced: one thread per slot. Conventional: any number of threads.
template <LogLayout L>
struct LogRef {
  std::uint32_t* words = nullptr;         // persistent: the entries
  std::uint32_t* tails = nullptr;         // persistent: tag << 16 | words in use, one per slot
  std::uint32_t* tails_cached = nullptr;  // volatile copy, so that no insert waits for a read
  std::uint32_t* locks = nullptr;         // volatile, conventional only; null: one thread per slot
  const std::uint32_t* tag = nullptr;     // volatile: the current epoch's tag
  std::uint32_t* failures = nullptr;      // volatile: inserts of the transaction that failed
  std::uint32_t slots = 0;
  std::uint32_t slot_words = 0;
  PageMarks marks;

#if HOLDFAST_DEVICE_CODE
  // The slot for the `number`-th of those who log: one of its own (coalesced), or a partition, in
  // turn (conventional).
  __device__ std::uint32_t slot_for(std::uint32_t number) const {
    return L == LogLayout::coalesced ? number : number % slots;
  }
  // The slot that a call without one uses: slot_for() the thread's number in the grid.
  __device__ std::uint32_t own_slot() const;

  // Appends an entry and makes it durable. Where the answer is not `ok`, nothing was written, the
  // change must not be made, and the transaction will not commit (transaction.hpp).
  template <class T>
  [[nodiscard]] __device__ LogStatus insert(const T& entry) const {
    return insert(entry, own_slot());
  }
  template <class T>
  [[nodiscard]] __device__ LogStatus insert(const T& entry, std::uint32_t slot) const {
    static_assert(sizeof(T) <= kMaxEntryBytes, "undo log: an entry of at most 4 KiB");
    return insert_bytes(&entry, sizeof(T), slot);
  }
  [[nodiscard]] __device__ LogStatus insert_bytes(const void* entry, std::uint32_t bytes,
                                                  std::uint32_t slot) const;

  // Copies the newest entry out, without removing it.
  template <class T>
  [[nodiscard]] __device__ LogStatus read(T* entry) const {
    return read_bytes(entry, sizeof(T), own_slot());
  }
  [[nodiscard]] __device__ LogStatus read_bytes(void* entry, std::uint32_t bytes,
                                                std::uint32_t slot) const;

  // Drops the newest entry, durably.
  [[nodiscard]] __device__ LogStatus remove(std::uint32_t bytes) const {
    return remove(bytes, own_slot());
  }
  [[nodiscard]] __device__ LogStatus remove(std::uint32_t bytes, std::uint32_t slot) const;

  // Empties the slot, durably.
  __device__ void clear() const { clear(own_slot()); }
  __device__ void clear(std::uint32_t slot) const;

  __device__ bool is_empty() const { return is_empty(own_slot()); }
  __device__ bool is_empty(std::uint32_t slot) const { return slot >= slots || used(slot) == 0; }
  // Bytes that the slot's entries take: each takes whole words of 4.
  __device__ std::uint32_t bytes(std::uint32_t slot) const {
    return slot >= slots ? 0 : 4 * used(slot);
  }

 private:
  __device__ std::uint32_t used(std::uint32_t slot) const;
  __device__ void set_tail(std::uint32_t slot, std::uint32_t used_words) const;
  __device__ void lock(std::uint32_t slot) const;
  __device__ void unlock(std::uint32_t slot) const;
  __device__ LogStatus insert_checked(const void* entry, std::uint32_t bytes,
                                      std::uint32_t slot) const;
  __device__ LogStatus insert_locked(const void* entry, std::uint32_t bytes,
                                     std::uint32_t slot) const;
#endif
};

using CoalescedLogRef = LogRef<LogLayout::coalesced>;
using ConventionalLogRef = LogRef<LogLayout::conventional>;

}  // namespace holdfast

#if HOLDFAST_DEVICE_CODE
#include "holdfast/undo_log_ref.inl"
#endif
