// Reading scattered blocks of a file with few system calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <string>

#include "core/block_store.hpp"
#include "core/files.hpp"
#include "core/format.hpp"

namespace holdfast::core {

// Memory that direct reads can go to.
class PageBuffer {
 public:
  // Throws no_memory.
  explicit PageBuffer(std::uint64_t pages);
  std::byte* get() const { return memory_.get(); }

 private:
  std::unique_ptr<std::byte, void (*)(void*)> memory_;
};

struct BlockTarget {
  std::uint64_t block = 0;
  std::byte* to = nullptr;  // a page; page-aligned if the reader bypasses the cache
};

// Thread safety: read() from any thread.
class BlockReader {
 public:
  // Reads through the page cache.
  explicit BlockReader(const BlockStore& store);
  // Reads in the way that is the faster one for these blocks, which stand for all. What is not
  // cached yet is read faster without going through the cache, and what is cached from it.
  BlockReader(const BlockStore& store, std::span<const std::uint64_t> samples);

  // REQUIRES: ascending blocks. Returns false if the file ends before the last; what could not be
  // read is then left as it was. Throws io.
  bool read(std::span<const BlockTarget> targets) const;

 private:
  // What lies between two targets is read too, and thrown away, if it is no more than this.
  // A read of its own costs a disk about as much as that many blocks, and memory none.
  static constexpr std::uint64_t kDiskGap = 16;
  static constexpr std::uint64_t kCacheGap = 1;

  const BlockStore& store_;
  std::uint64_t gap_ = kDiskGap;
  UniqueFd direct_;
  PageBuffer discarded_;  // what it holds is never looked at
};

}  // namespace holdfast::core
