// The bytes of a region, of its arena and of its image. docs/format.md describes each field.
//
// Everything is little-endian and naturally aligned. No structure is trusted before the check
// that stands beside it: see directory.cpp, arena.cpp and image.cpp.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "holdfast/config.hpp"

namespace holdfast::core {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian, and so must be the machine");

inline constexpr std::uint32_t kFormatVersion = 1;
inline constexpr std::uint64_t kPage = kPageBytes;
inline constexpr std::uint64_t kMaxRegionBytes = std::uint64_t{1} << 40;

using Uuid = std::array<std::uint8_t, 16>;

// ---- Region bytes -------------------------------------------------------------------------

inline constexpr std::uint32_t kMaxObjects = 512;
inline constexpr std::uint32_t kNameBytes = 56;
inline constexpr std::uint32_t kTypeBytes = 24;

struct RegionHeader {
  char magic[8];  // kRegionMagic
  std::uint32_t version;
  std::uint32_t page_bytes;
  Uuid uuid;
  std::uint32_t max_objects;
  std::uint32_t directory_pages;  // of one slot
  std::uint8_t reserved[80];      // zero
  std::uint64_t checksum;         // of the bytes before it
};
static_assert(sizeof(RegionHeader) == 128);
inline constexpr char kRegionMagic[9] = "HFREGION";

struct DirectoryEntry {
  char name[kNameBytes];
  char type[kTypeBytes];
  std::uint32_t element_bytes;
  std::uint32_t tracking;
  std::uint64_t offset;
  std::uint64_t count;
};
static_assert(sizeof(DirectoryEntry) == 104);

inline constexpr std::uint64_t kDirectoryPages = 14;

struct DirectorySlot {
  char magic[8];  // kDirectoryMagic
  std::uint64_t generation;
  std::uint64_t region_bytes;
  std::uint32_t count;
  std::uint32_t reserved;
  DirectoryEntry entries[kMaxObjects];  // sorted by offset; the unused ones are zero
  std::uint8_t padding[4056];           // zero
  std::uint64_t checksum;               // of the bytes before it; 0: being written
};
static_assert(sizeof(DirectorySlot) == kDirectoryPages * kPage);
inline constexpr char kDirectoryMagic[9] = "HFOBJDIR";

// Page 0 and the two directory slots: the pages before the first object.
inline constexpr std::uint64_t kMetadataPages = 1 + 2 * kDirectoryPages;
inline constexpr std::uint64_t kMetadataBytes = kMetadataPages * kPage;

// ---- Arena --------------------------------------------------------------------------------

struct ArenaHeader {
  char magic[8];  // kArenaMagic
  std::uint32_t version;
  std::uint32_t page_bytes;
  Uuid uuid;
  Uuid boot_id;
  std::uint64_t image_device;  // st_dev and st_ino of the image that it belongs to
  std::uint64_t image_inode;
  char image_path[3072];       // absolute, for people and tools; cut off if longer
  std::uint8_t reserved[512];  // zero
  std::uint64_t checksum;      // of the bytes before it
  // Outside the checksum, because each commit stores it anew: the generation that the image had
  // when the arena was last known to agree with it.
  std::uint64_t generation;
};
static_assert(sizeof(ArenaHeader) == 3664);
static_assert(sizeof(ArenaHeader) <= kPage);
inline constexpr char kArenaMagic[9] = "HFARENA1";

// ---- Image --------------------------------------------------------------------------------

struct ImageHeader {
  char magic[8];  // kImageMagic
  std::uint32_t version;
  std::uint32_t page_bytes;
  Uuid uuid;
  std::uint32_t segment_pages;
  std::uint32_t entry_bytes;
  std::uint64_t root_offset[2];
  std::uint64_t root_bytes;  // of one slot
  std::uint64_t first_block;
  std::uint64_t created_unix_ns;
  std::uint8_t reserved[40];  // zero
  std::uint64_t checksum;     // of the bytes before it
};
static_assert(sizeof(ImageHeader) == 128);
inline constexpr char kImageMagic[9] = "HOLDFAST";

// Fits a disk sector, which disks write whole or not at all.
struct CommitRecord {
  char magic[8];  // kRecordMagic
  Uuid uuid;
  std::uint64_t generation;
  std::uint64_t region_bytes;
  std::uint64_t root_hash;
  std::uint32_t root_slot;  // 0 or 1
  std::uint32_t reserved0;
  std::uint64_t pages_stored;
  std::uint64_t unix_ns;
  std::uint64_t blocks;       // of the file at least, the ones before the first block included
  std::uint8_t reserved[32];  // zero
  std::uint64_t checksum;     // of the bytes before it
  std::uint8_t padding[7];    // zero
  std::uint8_t end_marker;    // kEndMarker; 0: the record is not whole
};
static_assert(sizeof(CommitRecord) == 128);
inline constexpr char kRecordMagic[9] = "HFCOMMIT";
inline constexpr std::uint8_t kEndMarker = 0xA5;  // no single flipped bit makes it 0

// Where a page is stored, and what its hash is. Root entries say the same of table pages.
struct TableEntry {
  std::uint64_t hash;
  std::uint64_t block;  // of the file; 0: the page is all zero and not stored
  friend bool operator==(const TableEntry&, const TableEntry&) = default;
};
static_assert(sizeof(TableEntry) == 16);

inline constexpr std::uint64_t kSegmentPages = kPage / sizeof(TableEntry);
using TablePage = std::array<TableEntry, kSegmentPages>;
static_assert(sizeof(TablePage) == kPage);

constexpr std::uint64_t pages_of(std::uint64_t bytes) { return (bytes + kPage - 1) / kPage; }
constexpr std::uint64_t segments_of(std::uint64_t region_bytes) {
  return (pages_of(region_bytes) + kSegmentPages - 1) / kSegmentPages;
}

inline constexpr std::uint64_t kRecordOffset[2] = {kPage, 2 * kPage};
inline constexpr std::uint64_t kRootBytes = segments_of(kMaxRegionBytes) * sizeof(TableEntry);
inline constexpr std::uint64_t kRootOffset[2] = {3 * kPage, 3 * kPage + kRootBytes};
// The first page of the file that pages and tables may take: after the root slots, rounded up to
// a whole extent (block_map.hpp).
inline constexpr std::uint64_t kFirstBlock = 8224;
static_assert(kFirstBlock * kPage >= kRootOffset[1] + kRootBytes);

// The most blocks that an image of a region can have. Twice what it stores is what a commit can
// need; the rest is room for other writers. It bounds the memory that a hostile record can ask for.
constexpr std::uint64_t max_blocks(std::uint64_t region_bytes) {
  return kFirstBlock + 4 * (pages_of(region_bytes) + segments_of(region_bytes)) + (1u << 16);
}

}  // namespace holdfast::core
