// The device side of a log map: lookups. See log_map.hpp for the host side.
#pragma once

#include <cstddef>
#include <cstdint>

#include "holdfast/kv_store_ref.hpp"

namespace holdfast {

// A LogMap as kernels see it, for lookups; LogMap::ref() gives it. Trivially copyable. One that is
// made by default finds nothing.
//
// Behind a batch (launched, on whichever stream, when its call has returned; or ordered behind it
// in LogMap::stream()): exactly the state that it left, which is committed. Beside batches (not
// ordered with them) whether a key is there is as of KvStoreRef; a value that is found stays its
// key's until the next batch begins: its place may be another pair's then.
//
// kReservedKey is never found. Lookups write nothing and never wait.
//
// A ref is good as long as its map, wherever that is moved, is the last of its process to have been
// opened, until reserve(), and as the region is open. REQUIRES: kernels that use it were waited for
// before its map ends or grows, or the region is closed.
// Thread safety: any threads of any kernels, on any streams, launched by any threads of the host.
class LogMapRef {
 public:
  static constexpr std::uint64_t kReservedKey = KvStoreRef::kReservedKey;

  LogMapRef() = default;

  std::uint32_t value_bytes() const { return value_bytes_; }

#if HOLDFAST_DEVICE_CODE
  // The value of `key`, value_bytes() on the medium, aligned to 16 bytes; null: it is not there.
  __device__ const std::byte* find(std::uint64_t key) const {
    std::uint64_t place = 0;
    return index_.find(key, &place) ? at(place) : nullptr;
  }
  // The same for the keys of a warp, as KvStoreRef::find_by_warp().
  __device__ const std::byte* find_by_warp(std::uint64_t key) const {
    std::uint64_t place = 0;
    return index_.find_by_warp(key, &place) ? at(place) : nullptr;
  }
  __device__ bool contains(std::uint64_t key) const { return find(key) != nullptr; }
#endif

 private:
  friend class detail::LogMapHost;
  LogMapRef(const KvStoreRef& index, const std::byte* values, std::uint32_t stride,
            std::uint32_t value_bytes)
      : index_(index), values_(values), stride_(stride), value_bytes_(value_bytes) {}

#if HOLDFAST_DEVICE_CODE
  __device__ const std::byte* at(std::uint64_t place) const { return values_ + place * stride_; }
#endif

  KvStoreRef index_;
  const std::byte* values_ = nullptr;
  std::uint32_t stride_ = 0;
  std::uint32_t value_bytes_ = 0;
};

}  // namespace holdfast
