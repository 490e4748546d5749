// What bytes_map_ref.hpp declares. Included by it alone. docs/bytes-map.md, "From kernels".
#pragma once

#include <cstring>

namespace holdfast {
namespace bytes_map {

// ---- Grains ------------------------------------------------------------------------------------

struct Grain {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
};

__device__ __forceinline__ Grain grain_at(const std::byte* record, std::uint64_t i) {
  const uint4 bits = reinterpret_cast<const uint4*>(record)[i];
  return {std::uint64_t{bits.y} << 32 | bits.x, std::uint64_t{bits.w} << 32 | bits.z};
}

__device__ __forceinline__ void store_grain(std::byte* record, std::uint64_t i,
                                            const Grain& grain) {
  uint4 bits;
  bits.x = static_cast<std::uint32_t>(grain.low);
  bits.y = static_cast<std::uint32_t>(grain.low >> 32);
  bits.z = static_cast<std::uint32_t>(grain.high);
  bits.w = static_cast<std::uint32_t>(grain.high >> 32);
  reinterpret_cast<uint4*>(record)[i] = bits;
}

// The bytes of a grain of a string of `bytes` bytes at `to`, which may begin anywhere.
__device__ __forceinline__ void write_out(std::byte* to, std::uint64_t i, std::uint64_t bytes,
                                          const Grain& grain) {
  const std::uint64_t left = bytes - i * kGrain;
  std::byte* const at = to + i * kGrain;
  if (left >= kGrain && reinterpret_cast<std::uintptr_t>(at) % kGrain == 0) {
    store_grain(at, 0, grain);
    return;
  }
  const unsigned count = left < kGrain ? static_cast<unsigned>(left) : unsigned{kGrain};
  for (unsigned byte = 0; byte < count; ++byte) {
    const std::uint64_t word = byte < 8 ? grain.low : grain.high;
    at[byte] = static_cast<std::byte>(word >> byte % 8 * 8);
  }
}

// Grain `i` of bytes that may begin anywhere, none of which behind their end is read: zeros.
__device__ __forceinline__ Grain grain_of(const ByteSpan& span, std::uint64_t i) {
  const auto* const from = static_cast<const std::byte*>(span.bytes) + i * kGrain;
  const std::uint64_t left = span.count - i * kGrain;
  if (left >= kGrain && reinterpret_cast<std::uintptr_t>(from) % 8 == 0) {
    const auto* const words = reinterpret_cast<const std::uint64_t*>(from);
    return {words[0], words[1]};
  }
  Grain grain;
  const unsigned count = left < kGrain ? static_cast<unsigned>(left) : unsigned{kGrain};
  for (unsigned byte = 0; byte < count; ++byte) {
    std::uint64_t& word = byte < 8 ? grain.low : grain.high;
    word |= static_cast<std::uint64_t>(from[byte]) << byte % 8 * 8;
  }
  return grain;
}

__device__ __forceinline__ RecordHead head_of(const std::byte* record) {
  const Grain grain = grain_at(record, 0);
  return {static_cast<std::uint32_t>(grain.low), static_cast<std::uint32_t>(grain.low >> 32),
          grain.high};
}

__device__ __forceinline__ Grain grain_of(const RecordHead& head) {
  return {std::uint64_t{head.value_bytes} << 32 | head.key_bytes, head.sum};
}

template <unsigned Width>
__device__ __forceinline__ std::uint64_t sum_over(const MapGroup<Width>& group,
                                                  std::uint64_t value) {
  for (unsigned step = Width / 2; step != 0; step /= 2) {
    value += group.from(value, group.rank ^ step);
  }
  return value;
}

// The digest of a key of so many bytes, of which at(i) is grain i.
template <unsigned Width, class GrainAt>
__device__ __forceinline__ Bytes<16> digest_by(const MapGroup<Width>& group, std::uint64_t bytes,
                                               unsigned digest_bits, GrainAt&& at) {
  std::uint64_t terms[2] = {};
  for (std::uint64_t i = group.rank; i < grains_for(bytes); i += Width) {
    const Grain grain = at(i);
    for (unsigned half = 0; half < 2; ++half) {
      terms[half] += digest_term(half, i, grain.low, grain.high);
    }
  }
  std::uint64_t halves[2];
  for (unsigned half = 0; half < 2; ++half) {
    halves[half] = digest_of(half, sum_over(group, terms[half]), bytes, digest_bits);
  }
  Bytes<16> result;
  memcpy(&result, halves, sizeof(result));
  return result;
}

// The record that a word of the index names.
struct Named {
  const std::byte* record = nullptr;  // null: the word is none, or the record's lengths are not its
  RecordHead head{};
  Extent at;
};
__device__ __forceinline__ Named named_by(const Chunks& records, std::uint64_t word) {
  Named named;
  named.at = extent_of(word);
  const Chunk chunk = records.of(named.at.first);
  if (!is_word(word) || !chunk.holds(named.at)) return named;
  const std::byte* const record = chunk.at(named.at.first);
  named.head = head_of(record);
  if (is_head(named.head, named.at)) named.record = record;
  return named;
}

// What a record is to a key of so many bytes, of which at(i) is grain i: another key's, if the key
// that it has is of the same digest, and else damaged. REQUIRES: there is a record.
template <unsigned Width, class GrainAt>
__device__ __forceinline__ Seen compare(const MapGroup<Width>& group, const Named& named,
                                        std::uint64_t bytes, GrainAt&& at, unsigned digest_bits,
                                        const Bytes<16>& digest) {
  bool differs = named.head.key_bytes != bytes;
  for (std::uint64_t i = group.rank; !differs && i < grains_for(bytes); i += Width) {
    const Grain wanted = at(i);
    const Grain stored = grain_at(named.record, 1 + i);
    differs = wanted.low != stored.low || wanted.high != stored.high;
  }
  if (group.ballot(differs) == 0) return Seen::same;
  const Bytes<16> its = digest_by(group, named.head.key_bytes, digest_bits,
                                  [&](std::uint64_t i) { return grain_at(named.record, 1 + i); });
  return its == digest ? Seen::other : Seen::damaged;
}

}  // namespace bytes_map

// ---- Records -----------------------------------------------------------------------------------

// What is known of a key.
struct BytesMapRef::Look {
  bytes_map::Seen state = bytes_map::Seen::absent;
  std::uint64_t in_slot = detail::kMapNone;  // the index's word, as its slot has it
  bytes_map::Named named;
};

__device__ inline BytesMapRef::Digest BytesMapRef::digest(const Group& group,
                                                          const ByteSpan& key) const {
  return bytes_map::digest_by(group, key.count, parts_.digest_bits,
                              [&](std::uint64_t i) { return bytes_map::grain_of(key, i); });
}

// What a word of the index names was durable before the word was, and is not changed before
// quiesce(). map_find_word() has a fence behind its look: loads of the record come after it.
__device__ inline BytesMapRef::Look BytesMapRef::look(const Group& group, const ByteSpan& key,
                                                      const Digest& digest) const {
  using Config = MapConfig<>;
  const detail::MapView& view = index_.view_;
  Look seen;
  seen.in_slot = detail::map_find_word<detail::MapLongKey, Config, false>(
      view, group, detail::map_key_of<Config>(digest));
  if (seen.in_slot == detail::kMapNone) return seen;
  seen.named = bytes_map::named_by(parts_.records, seen.in_slot ^ view.empty_value);
  seen.state = bytes_map::Seen::damaged;
  if (seen.named.record == nullptr) return seen;
  seen.state = bytes_map::compare(
      group, seen.named, key.count, [&](std::uint64_t i) { return bytes_map::grain_of(key, i); },
      parts_.digest_bits, digest);
  return seen;
}

inline constexpr std::uint64_t kBytesMapNoRoom = ~std::uint64_t{0};

// The first of so many grains of the ref's room; kBytesMapNoRoom: it has not so many left.
__device__ inline std::uint64_t BytesMapRef::take(const Group& group, std::uint64_t grains) const {
  std::uint64_t first = kBytesMapNoRoom;
  if (group.rank == 0 &&
      grains <= parts_.room.grains) {  // there is no counter where there is no room
    unsigned long long taken = *const_cast<volatile unsigned long long*>(parts_.taken);
    // Added only where it fits: a record that is too large leaves room for those that are not.
    while (first == kBytesMapNoRoom && taken + grains <= parts_.room.grains) {
      const unsigned long long before = atomicCAS(parts_.taken, taken, taken + grains);
      if (before == taken) first = parts_.room.first + taken;
      taken = before;
    }
  }
  return group.from(first, 0);
}

// A record, which is durable; its word for the index, or 0: there is no room for it.
__device__ inline std::uint64_t BytesMapRef::write(const Group& group, const ByteSpan& key,
                                                   const ByteSpan& value) const {
  const bytes_map::Extent at{take(group, bytes_map::grains_of(key.count, value.count)),
                             bytes_map::grains_of(key.count, value.count)};
  if (at.first == kBytesMapNoRoom) return 0;
  std::byte* const record = parts_.records.at(at);
  const std::uint64_t of_key = bytes_map::grains_for(key.count);
  std::uint64_t terms = 0;
  for (std::uint64_t i = group.rank; i < at.grains - 1; i += kWidth) {
    const bytes_map::Grain grain =
        i < of_key ? bytes_map::grain_of(key, i) : bytes_map::grain_of(value, i - of_key);
    bytes_map::store_grain(record, 1 + i, grain);
    terms += bytes_map::sum_term(i, grain.low, grain.high);
  }
  terms = bytes_map::sum_over(group, terms);
  if (group.rank == 0) {
    bytes_map::RecordHead head{static_cast<std::uint32_t>(key.count),
                               static_cast<std::uint32_t>(value.count), 0};
    head.sum = bytes_map::sum_of(terms, head.key_bytes, head.value_bytes, at.first);
    bytes_map::store_grain(record, 0, bytes_map::grain_of(head));
    parts_.marks.mark(record, at.grains * bytes_map::kGrain);
  }
  detail::map_persist(group);
  return bytes_map::word_of(at);
}

// Whether the index's word of the key was `before`, and is `after` now.
__device__ inline bool BytesMapRef::change(const Group& group, const Digest& digest,
                                           std::uint64_t before, std::uint64_t after) const {
  using Config = MapConfig<>;
  using Key = detail::MapLongKey;
  const detail::MapView& view = index_.view_;
  const detail::MapKey<Key> key = detail::map_key_of<Config>(digest);
  const detail::MapSeen<Key> seen = detail::map_see<Key, Config, false>(
      view, group, detail::map_spot<Key, Config>(view, key, group.rank), key);
  return seen.look.holding != 0 &&
         detail::map_exchange<Key, Config>(view, group, seen, before, after);
}

// ---- Operations --------------------------------------------------------------------------------

// What is there is changed only as the word that was looked at: else another operation of the
// digest has gone on, and the key that is there may be another one.
__device__ inline MapStatus BytesMapRef::put(const Group& group, const ByteSpan& key,
                                             const ByteSpan& value, bool keeps) const {
  if (key.count > kMostBytesOfKey || value.count > kMostBytesOfValue) return MapStatus::refused;
  const Digest digest = this->digest(group, key);
  std::uint64_t word = 0;
  for (;;) {
    const Look seen = look(group, key, digest);
    if (seen.state == bytes_map::Seen::other) return MapStatus::refused;
    if (seen.state != bytes_map::Seen::absent && keeps) return MapStatus::kept;
    if (word == 0) word = write(group, key, value);
    if (word == 0) return MapStatus::no_value;
    if (seen.state == bytes_map::Seen::absent) {
      const MapStatus status = index_.insert(group, digest, &word);
      if (status != MapStatus::kept) return status;
    } else if (change(group, digest, seen.in_slot, word ^ index_.view_.empty_value)) {
      return MapStatus::assigned;
    }
  }
}

__device__ inline MapStatus BytesMapRef::insert(const Group& group, const ByteSpan& key,
                                                const ByteSpan& value) const {
  return put(group, key, value, true);
}
__device__ inline MapStatus BytesMapRef::insert_or_assign(const Group& group, const ByteSpan& key,
                                                          const ByteSpan& value) const {
  return put(group, key, value, false);
}

__device__ inline MapStatus BytesMapRef::erase(const Group& group, const ByteSpan& key) const {
  if (key.count > kMostBytesOfKey) return MapStatus::absent;
  const Digest digest = this->digest(group, key);
  for (;;) {
    const Look seen = look(group, key, digest);
    if (seen.state == bytes_map::Seen::absent || seen.state == bytes_map::Seen::other)
      return MapStatus::absent;
    if (change(group, digest, seen.in_slot, detail::kMapGone)) return MapStatus::erased;
  }
}

__device__ inline BytesHit BytesMapRef::find(const Group& group, const ByteSpan& key) const {
  BytesHit hit;
  if (key.count > kMostBytesOfKey) return hit;
  const Look seen = look(group, key, digest(group, key));
  if (seen.state == bytes_map::Seen::damaged) hit.found = BytesFound::damaged;
  if (seen.state != bytes_map::Seen::same) return hit;
  hit.found = BytesFound::present;
  hit.value = seen.named.record +
              (1 + bytes_map::grains_for(seen.named.head.key_bytes)) * bytes_map::kGrain;
  hit.bytes = seen.named.head.value_bytes;
  hit.key_bytes = seen.named.head.key_bytes;
  hit.place = seen.named.at.first;
  return hit;
}

__device__ inline BytesFound BytesMapRef::read(const Group& group, const BytesHit& hit,
                                               void* out) const {
  if (hit.found != BytesFound::present) return hit.found;
  const std::uint64_t of_key = bytes_map::grains_for(hit.key_bytes);
  const std::byte* const record = hit.value - (1 + of_key) * bytes_map::kGrain;
  auto* const to = static_cast<std::byte*>(out);
  std::uint64_t terms = 0;
  for (std::uint64_t i = group.rank; i < of_key + bytes_map::grains_for(hit.bytes); i += kWidth) {
    const bytes_map::Grain grain = bytes_map::grain_at(record, 1 + i);
    terms += bytes_map::sum_term(i, grain.low, grain.high);
    if (i >= of_key) bytes_map::write_out(to, i - of_key, hit.bytes, grain);
  }
  terms = bytes_map::sum_over(group, terms);
  if (bytes_map::sum_of(terms, hit.key_bytes, hit.bytes, hit.place) ==
      bytes_map::head_of(record).sum) {
    return BytesFound::present;
  }
  for (std::uint64_t i = group.rank; i < hit.bytes; i += kWidth) to[i] = std::byte{0};
  return BytesFound::damaged;
}

}  // namespace holdfast
