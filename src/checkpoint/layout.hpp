// A group of a checkpoint on the medium. docs/format.md describes every byte.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "holdfast/checkpoint.hpp"

namespace holdfast::checkpoint {

inline constexpr const char* kTypeName = "checkpoint";
inline constexpr std::uint64_t kAlignment = 256;  // of buffers in a copy
inline constexpr std::uint32_t kMostBuffers = 1u << 20;

struct GroupHeader {
  static constexpr std::uint64_t kMagic = 0x3154504b43444c48ull;  // "HLDCKPT1"
  std::uint64_t magic;
  std::uint64_t copy_bytes;
  std::uint32_t buffers;
  std::uint32_t reserved;
  std::uint64_t checksum;  // of the fields before it, and of the entries
};
static_assert(sizeof(GroupHeader) == 32);

struct BufferEntry {
  char name[48];
  char type[24];
  std::uint64_t count;
  std::uint64_t offset;  // in a copy
  std::uint32_t element_bytes;
  std::uint32_t reserved;
};
static_assert(sizeof(BufferEntry) == 96);

// Says what copy `sequence % 2` holds. Valid if `self` fits.
struct Slot {
  std::uint64_t tag;
  std::uint64_t data;  // sum over the copy's words, see mix_at()
  std::uint64_t self;
  std::uint64_t sequence;  // 1 or more
};

// The place that a buffer takes in a copy.
constexpr std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Offsets in the object: header and entries, a page with the slots, two copies.
struct Layout {
  std::uint64_t slots = 0;
  std::uint64_t copies = 0;
  std::uint64_t copy_bytes = 0;
  std::uint64_t object_bytes = 0;
};
Layout layout_of(std::uint64_t copy_bytes, std::uint64_t buffers);
inline constexpr std::uint64_t kSlotDistance = 256;

// The header and the entries that `buffers` give.
std::vector<unsigned char> encode_header(const std::vector<CheckpointBuffer>& buffers);
std::uint64_t copy_bytes_of(const std::vector<CheckpointBuffer>& buffers);

// What `bytes` of an object hold. Empty for zeroed bytes (a crash before the header). Throws
// damaged, naming `what`.
std::vector<CheckpointBuffer> decode_header(const std::vector<unsigned char>& bytes,
                                            std::uint64_t object_bytes, const std::string& what);

// How two groups of buffers differ, in words; empty if they do not.
std::string difference(const std::vector<CheckpointBuffer>& stored,
                       const std::vector<CheckpointBuffer>& given);

}  // namespace holdfast::checkpoint
