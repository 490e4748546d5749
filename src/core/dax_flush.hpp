// Flushing the processor's caches to persistent memory, by libpmem2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace holdfast::core {

// What a host flush must do for a store to be in the persistence domain.
enum class FlushUnit {
  fence,       // eADR: the caches are in the domain
  cache_line,  // ADR: every line must be written back
  page,        // the page cache: msync()
};

// Makes ranges of one mapping durable. Thread safety: persist() from any thread.
class DaxFlush {
 public:
  // Whether this build has libpmem2, without which only FlushUnit::page works.
  static bool available() noexcept;

  DaxFlush() = default;
  // [address, address + bytes) is mapped from `fd` and outlives this object. Throws unsupported,
  // io.
  DaxFlush(int fd, void* address, std::uint64_t bytes, FlushUnit unit, const std::string& path);

  // Returns once the bytes are durable. Throws io.
  void persist(const void* address, std::size_t bytes) const;

 private:
  struct Pmem2Map;
  std::shared_ptr<Pmem2Map> map_;  // none for FlushUnit::page
  std::string path_;
};

}  // namespace holdfast::core
