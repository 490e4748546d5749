// Memory that disks read and write in large pages. A direct transfer goes to a disk in pieces that
// are contiguous in physical memory, and pages of 4 KiB, which lie anywhere, make so many of them
// that a disk was seen to read at a third of its speed.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>

#include "core/format.hpp"

namespace holdfast::core {

inline constexpr std::size_t kLargePage = std::size_t{2} << 20;

// For memory that takes part: of less, no page is large.
constexpr std::size_t page_alignment(std::size_t bytes) {
  return bytes >= kLargePage ? kLargePage : kPage;
}

// Best effort; before the memory is touched.
inline void prefer_large_pages(void* memory, std::size_t bytes) {
  if (bytes >= kLargePage) ::madvise(memory, bytes, MADV_HUGEPAGE);
}

// At a multiple of a page, not cleared; null if there is no such memory. For std::free().
inline std::byte* allocate_pages(std::size_t bytes) {
  void* memory = nullptr;
  if (::posix_memalign(&memory, page_alignment(bytes), bytes) != 0) return nullptr;
  prefer_large_pages(memory, bytes);
  return static_cast<std::byte*>(memory);
}

}  // namespace holdfast::core
