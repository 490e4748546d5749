// Which operation of a batch is the last of its key: a table of operations by key, in device
// memory, which never has to be cleared, since its entries carry a number of the batch.
#pragma once

#include <bit>
#include <cstdint>

#include "holdfast/kernel.hpp"
#include "holdfast/kv_store_ref.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::kv {

// Entries are the batch's tag above an operation's number and 1. Those of other tags are free.
struct Claims {
  unsigned long long* entries;
  std::uint32_t mask;  // entries - 1
  std::uint32_t tag;
};

// At most half of the entries are taken.
inline std::uint64_t claims_for(std::uint64_t max_batch) { return std::bit_ceil(max_batch * 2); }

// Tags that start over are no others.
inline std::uint32_t next_tag(Stream& stream, std::uint32_t last,
                              const DeviceBuffer<unsigned long long>& claims) {
  if (last != ~0u) return last + 1;
  fill_async(stream, claims.data(), 0, claims.bytes());
  return 1;
}

__device__ inline unsigned long long claim_at(const Claims& claims, std::uint32_t entry) {
  return *const_cast<const volatile unsigned long long*>(&claims.entries[entry]);
}

// Enters operation `op`, of that key; returns the key's entry. `is_of(other)`: whether the key of
// operation `other`, which has entered, is the same one.
template <class Key, class IsOf>
__device__ std::uint32_t enter_claim(const Claims& claims, Key key, std::uint32_t op,
                                     const IsOf& is_of) {
  const unsigned long long mine = static_cast<unsigned long long>(claims.tag) << 32 | (op + 1);
  std::uint32_t entry = static_cast<std::uint32_t>(detail::kv_hash(key) >> 20) & claims.mask;
  for (;; entry = (entry + 1) & claims.mask) {
    unsigned long long held = claim_at(claims, entry);
    if (held >> 32 != claims.tag) {
      const unsigned long long before = atomicCAS(&claims.entries[entry], held, mine);
      if (before == held) break;
      held = before;  // another operation of this batch came first
    }
    if (!is_of(static_cast<std::uint32_t>(held) - 1)) continue;
    if (held < mine) atomicMax(&claims.entries[entry], mine);
    break;
  }
  return entry;
}

// Where all keys are there before any enters.
template <class Key>
__device__ std::uint32_t enter_claim(const Claims& claims, const Key* keys, std::uint32_t op) {
  const Key key = keys[op];
  return enter_claim(claims, key, op, [&](std::uint32_t other) { return keys[other] == key; });
}

// Once all have entered.
__device__ inline bool is_last_claim(const Claims& claims, std::uint32_t entry, std::uint32_t op) {
  return static_cast<std::uint32_t>(claim_at(claims, entry)) == op + 1;
}

}  // namespace holdfast::kv
