// Where a region's bytes stand: memory that the host and kernels reach at one address.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/format.hpp"
#include "holdfast/region.hpp"

namespace holdfast::core {

// Invariants: base() never changes; [base(), base() + size()) is usable by kernels, and by the
// host unless the domain is `device`.
class Medium {
 public:
  virtual ~Medium() = default;

  virtual std::byte* base() const = 0;
  virtual std::uint64_t size() const = 0;
  virtual std::uint64_t max_size() const = 0;
  // The region's first kMetadataBytes as the host sees them. On the device domain they are kept
  // in host memory; everywhere else this is base().
  virtual std::byte* metadata() const { return base(); }

  // Enlarges to `size`, a multiple of the page; new bytes are zero. REQUIRES: more than size()
  // and at most max_size(). On an exception the medium is as before.
  virtual void grow(std::uint64_t size) = 0;

  // Fills with zero on behalf of the host, durably on the domain's rung for persist().
  virtual void zero(std::uint64_t offset, std::uint64_t bytes);

  // Host stores to [address, address + bytes) survive what the domain's persist() survives.
  // Stores to shared memory do so as they are made.
  virtual void flush(const void* address, std::size_t bytes);

  virtual Guarantee guarantee() const = 0;
};

// Address space of max_size bytes at a fixed place, filled piece by piece, pinned for kernels.
// Shared by the media that can grow.
class AddressSpace {
 public:
  // Reserves space without memory behind it. Throws no_memory.
  AddressSpace(std::uint64_t max_bytes, std::string what);
  ~AddressSpace();
  AddressSpace(const AddressSpace&) = delete;
  AddressSpace& operator=(const AddressSpace&) = delete;

  std::byte* base() const { return base_; }
  // Maps bytes [from, to) of the space: of the file, whose offset 0 lies at base(), or anonymous
  // shared memory if fd is -1. With Sharing::none stores stay in this process. On an exception the
  // space is as before.
  enum class Sharing { all, none };
  void map(int fd, std::uint64_t from, std::uint64_t to, Sharing sharing = Sharing::all);
  // Takes [from, to) out of the space again.
  void unmap(std::uint64_t from, std::uint64_t to) noexcept;
  // Makes [from, to) usable by kernels. Throws what the backend throws.
  void pin(std::uint64_t from, std::uint64_t to);
  void unpin() noexcept;

 private:
  struct Pinned;
  std::byte* reserved_ = nullptr;
  std::uint64_t reserved_bytes_ = 0;
  std::byte* base_ = nullptr;
  std::unique_ptr<Pinned> pinned_;
  std::string what_;
};

}  // namespace holdfast::core
