// The device side of a map of byte strings: operations that groups of threads make as kernels run.
// See bytes_map.hpp for the host side, docs/bytes-map.md for why it is so.
#pragma once

#include <cstddef>
#include <cstdint>

#include "holdfast/bytes_map_record.hpp"
#include "holdfast/hash_map_ref.hpp"
#include "holdfast/page_marks.hpp"

namespace holdfast {

// What a lookup found of a key.
enum class BytesFound : std::uint8_t {
  absent = 0,
  present = 1,
  damaged = 2,  // it is there, and its record is not as it was written: no bytes are given
};

// Bytes of a kernel's: a key, or a value. In memory of the device or in a thread's own, at any
// address. Does not own them.
struct ByteSpan {
  const void* bytes = nullptr;
  std::uint64_t count = 0;
};

// What find() has found. `value` points into the region, to `bytes` bytes at a multiple of 16,
// which stay as they are until BytesMap::quiesce().
struct BytesHit {
  BytesFound found = BytesFound::absent;
  const std::byte* value = nullptr;  // null: the key is absent or damaged
  std::uint32_t bytes = 0;
  std::uint32_t key_bytes = 0;
  std::uint64_t place = 0;  // of the record
};

// A map of byte strings as kernels see it; BytesMap::ref() gives it. Trivially copyable: pass it by
// value. REQUIRES: it is not used behind BytesMap::quiesce(), nor when its map has ended.
//
// Contract: that of HashMapRef (hash_map_ref.hpp), per key: linearisable beside one another,
// lock-free, durable on return, whole or not at all after a crash. Two keys of one digest are never
// taken for each other: while one is there, the other one is `refused`, and absent.
//
// Room. A ref has the bytes for records that ref() was asked for, and a new or replaced value takes
// record_bytes_of() of them; what an operation did not use after all (it was `full`, or another
// group inserted the key meanwhile), what is replaced and what is erased comes free at quiesce().
//
// A key whose record is damaged counts as there, as in batches: insert() keeps it,
// insert_or_assign() and erase() replace and remove it. (If it is the key in the record that is
// damaged, nobody knows which key of its digest it was: that is so of each of them.) A key of more
// than kMostBytesOfKey, or a value of more than kMostBytesOfValue bytes is `refused`, and never
// found.
class BytesMapRef {
 public:
  using Index = HashMapRef<Bytes<16>>;
  static constexpr unsigned kWidth = Index::kWidth;

  // Of the map's host side: BytesMap::ref().
  struct Parts {
    bytes_map::Chunks records;
    bytes_map::Extent room;     // of records to come ...
    unsigned long long* taken;  // ... so many grains are taken
    PageMarks marks;
    unsigned digest_bits;
  };
  BytesMapRef(const Index& index, const Parts& parts) : index_(index), parts_(parts) {}

#if HOLDFAST_DEVICE_CODE
  using Group = Index::Group;

  // inserted, kept, full, no_value (the ref's room is used up) or refused.
  __device__ MapStatus insert(const Group& group, const ByteSpan& key, const ByteSpan& value) const;
  // inserted, assigned, full, no_value or refused.
  __device__ MapStatus insert_or_assign(const Group& group, const ByteSpan& key,
                                        const ByteSpan& value) const;
  // erased or absent.
  __device__ MapStatus erase(const Group& group, const ByteSpan& key) const;
  // Where the value of a key is. Reads the record's lengths and key, not the value: bits of that
  // may have flipped (read()).
  __device__ BytesHit find(const Group& group, const ByteSpan& key) const;
  // Copies the value that was found to `out`, of hit.bytes bytes at any address, and returns
  // whether it is as it was written: present, damaged (and zeros), or what `hit` says.
  __device__ BytesFound read(const Group& group, const BytesHit& hit, void* out) const;
#endif

 private:
#if HOLDFAST_DEVICE_CODE
  struct Look;
  using Digest = Bytes<16>;

  __device__ Digest digest(const Group& group, const ByteSpan& key) const;
  __device__ Look look(const Group& group, const ByteSpan& key, const Digest& digest) const;
  __device__ std::uint64_t write(const Group& group, const ByteSpan& key,
                                 const ByteSpan& value) const;
  __device__ std::uint64_t take(const Group& group, std::uint64_t grains) const;
  __device__ bool change(const Group& group, const Digest& digest, std::uint64_t before,
                         std::uint64_t after) const;
  __device__ MapStatus put(const Group& group, const ByteSpan& key, const ByteSpan& value,
                           bool keeps) const;
#endif

  Index index_;
  Parts parts_;
};

}  // namespace holdfast

#if HOLDFAST_DEVICE_CODE
#include "holdfast/bytes_map_ref.inl"
#endif
