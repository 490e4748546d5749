// Implementation of LogRef. Included by undo_log_ref.hpp alone.
#pragma once

#include <cstring>

namespace holdfast {
namespace detail {

inline constexpr std::uint32_t kTailTagShift = 16;
inline constexpr std::uint32_t kTailWordsMask = 0xffff;

__device__ __forceinline__ std::uint32_t words_of(std::uint32_t bytes) { return (bytes + 3) / 4; }

__device__ __forceinline__ std::uint32_t thread_in_grid() {
  const std::uint32_t block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const std::uint32_t thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  return block * (blockDim.x * blockDim.y * blockDim.z) + thread;
}

// Where word `k` of a slot stands. Coalesced: the words k of the 32 slots of a warp make one
// 128-byte line.
template <LogLayout L>
__device__ __forceinline__ std::uint64_t word_index(std::uint32_t slot, std::uint32_t k,
                                                    std::uint32_t slot_words) {
  if constexpr (L == LogLayout::coalesced) {
    return (static_cast<std::uint64_t>(slot / 32) * slot_words + k) * 32 + slot % 32;
  } else {
    return static_cast<std::uint64_t>(slot) * slot_words + k;
  }
}

__device__ __forceinline__ std::uint32_t load_word(const void* entry, std::uint32_t k,
                                                   std::uint32_t bytes) {
  std::uint32_t word = 0;
  const std::uint32_t left = bytes - k * 4;
  memcpy(&word, static_cast<const char*>(entry) + k * 4, left < 4 ? left : 4);
  return word;
}

// Stores an entry's words. A partition is contiguous, so wide stores serve it best where
// alignment allows; a stripe takes a word a lane.
template <LogLayout L>
__device__ __forceinline__ void store_entry(std::uint32_t* words, std::uint32_t slot,
                                            std::uint32_t slot_words, std::uint32_t at,
                                            const void* entry, std::uint32_t bytes) {
  std::uint32_t* const first = words + word_index<L>(slot, at, slot_words);
  if constexpr (L == LogLayout::conventional) {
    if (bytes % 8 == 0 && (reinterpret_cast<std::uintptr_t>(first) & 7) == 0) {
#pragma unroll
      for (std::uint32_t k = 0; k < bytes / 8; ++k) {
        std::uint64_t pair;
        memcpy(&pair, static_cast<const char*>(entry) + k * 8, 8);
        reinterpret_cast<std::uint64_t*>(first)[k] = pair;
      }
      return;
    }
  }
  constexpr std::uint32_t kStride = L == LogLayout::coalesced ? 32 : 1;
  const std::uint32_t count = words_of(bytes);
#pragma unroll
  for (std::uint32_t k = 0; k < count; ++k) first[k * kStride] = load_word(entry, k, bytes);
}

}  // namespace detail

template <LogLayout L>
__device__ std::uint32_t LogRef<L>::own_slot() const {
  return slot_for(detail::thread_in_grid());
}

template <LogLayout L>
__device__ __forceinline__ std::uint32_t LogRef<L>::used(std::uint32_t slot) const {
  const std::uint32_t tail = *const_cast<volatile std::uint32_t*>(&tails_cached[slot]);
  if (tail >> detail::kTailTagShift != *tag) return 0;
  // A damaged tail may say anything; it must not lead outside the slot.
  const std::uint32_t count = tail & detail::kTailWordsMask;
  return count <= slot_words ? count : slot_words;
}

template <LogLayout L>
__device__ __forceinline__ void LogRef<L>::set_tail(std::uint32_t slot,
                                                    std::uint32_t used_words) const {
  const std::uint32_t tail = *tag << detail::kTailTagShift | used_words;
  tails[slot] = tail;
  *const_cast<volatile std::uint32_t*>(&tails_cached[slot]) = tail;
  marks.mark(&tails[slot], sizeof(std::uint32_t));
}

template <LogLayout L>
__device__ void LogRef<L>::lock([[maybe_unused]] std::uint32_t slot) const {
  if constexpr (L == LogLayout::conventional) {
    if (locks == nullptr) return;
    while (atomicCAS(&locks[slot], 0u, 1u) != 0u) {
    }
    __threadfence();
  }
}

template <LogLayout L>
__device__ void LogRef<L>::unlock([[maybe_unused]] std::uint32_t slot) const {
  if constexpr (L == LogLayout::conventional) {
    if (locks == nullptr) return;
    __threadfence();
    atomicExch(&locks[slot], 0u);
  }
}

template <LogLayout L>
__device__ __forceinline__ LogStatus LogRef<L>::insert_locked(const void* entry,
                                                              std::uint32_t bytes,
                                                              std::uint32_t slot) const {
  const std::uint32_t at = used(slot);
  const std::uint32_t count = detail::words_of(bytes);
  if (count > slot_words - at) return LogStatus::full;
  detail::store_entry<L>(words, slot, slot_words, at, entry, bytes);
  const std::uint64_t first = detail::word_index<L>(slot, at, slot_words);
  const std::uint64_t last = detail::word_index<L>(slot, at + count - 1, slot_words);
  if constexpr (L == LogLayout::coalesced) {  // a stripe leaps over pages
    marks.mark(words + first, (last - first + 1) * sizeof(std::uint32_t));
  } else {  // two pages at most; without a loop, since others wait for the lock
    static_assert(kMaxEntryBytes <= kPageBytes);
    marks.mark(words + first, sizeof(std::uint32_t));
    marks.mark(words + last, sizeof(std::uint32_t));
  }
  persist();
  set_tail(slot, at + count);
  persist();
  return LogStatus::ok;
}

template <LogLayout L>
__device__ __forceinline__ LogStatus LogRef<L>::insert_bytes(const void* entry, std::uint32_t bytes,
                                                             std::uint32_t slot) const {
  const LogStatus status = insert_checked(entry, bytes, slot);
  if (status != LogStatus::ok && failures != nullptr) atomicAdd(failures, 1u);
  return status;
}

template <LogLayout L>
__device__ __forceinline__ LogStatus LogRef<L>::insert_checked(const void* entry,
                                                               std::uint32_t bytes,
                                                               std::uint32_t slot) const {
  if (bytes == 0 || bytes > kMaxEntryBytes) return LogStatus::bad_size;
  if (slot >= slots) return LogStatus::bad_slot;
  lock(slot);
  const LogStatus status = insert_locked(entry, bytes, slot);
  unlock(slot);
  return status;
}

template <LogLayout L>
__device__ LogStatus LogRef<L>::read_bytes(void* entry, std::uint32_t bytes,
                                           std::uint32_t slot) const {
  if (bytes == 0 || bytes > kMaxEntryBytes) return LogStatus::bad_size;
  if (slot >= slots) return LogStatus::bad_slot;
  lock(slot);
  const std::uint32_t end = used(slot);
  const std::uint32_t count = detail::words_of(bytes);
  const bool there = count <= end;
  for (std::uint32_t k = 0; there && k < count; ++k) {
    const std::uint32_t word = words[detail::word_index<L>(slot, end - count + k, slot_words)];
    const std::uint32_t left = bytes - k * 4;
    memcpy(static_cast<char*>(entry) + k * 4, &word, left < 4 ? left : 4);
  }
  unlock(slot);
  return there ? LogStatus::ok : LogStatus::empty;
}

template <LogLayout L>
__device__ LogStatus LogRef<L>::remove(std::uint32_t bytes, std::uint32_t slot) const {
  if (bytes == 0 || bytes > kMaxEntryBytes) return LogStatus::bad_size;
  if (slot >= slots) return LogStatus::bad_slot;
  lock(slot);
  const std::uint32_t end = used(slot);
  const std::uint32_t count = detail::words_of(bytes);
  const bool there = count <= end;
  if (there) {
    set_tail(slot, end - count);
    persist();
  }
  unlock(slot);
  return there ? LogStatus::ok : LogStatus::empty;
}

template <LogLayout L>
__device__ void LogRef<L>::clear(std::uint32_t slot) const {
  if (slot >= slots) return;
  lock(slot);
  set_tail(slot, 0);
  persist();
  unlock(slot);
}

}  // namespace holdfast
