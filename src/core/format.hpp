// The bytes of a region, of its arena and of its image. docs/format.md describes each field.
//
// Everything is little-endian and naturally aligned. No structure is trusted before the check
// that stands beside it: see directory.cpp, arena.cpp and image.cpp.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "holdfast/config.hpp"

namespace holdfast::core {

static_assert(std::endian::native == std::endian::little,
              "the format is little-endian, and so must be the machine");

// Of the image and the arena. Version 1 images are read and not written; see docs/format.md.
inline constexpr std::uint32_t kFormatVersion = 2;
// Of the region bytes. Version 2 is version 1 with objects that commits leave out: a region has it
// from the first such object on, so that a build which knows none refuses it by its version.
inline constexpr std::uint32_t kRegionVersion = 2;
inline constexpr std::uint32_t kRegionVersionAllTracked = 1;
inline constexpr std::uint64_t kPage = kPageBytes;
inline constexpr std::size_t kSecretBytes = 192;
inline constexpr std::uint64_t kMaxRegionBytes = std::uint64_t{1} << 40;
// Generations and sequences stay below: no one counts so far, and a forged one cannot overflow.
inline constexpr std::uint64_t kMaxGeneration = std::uint64_t{1} << 62;

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
  Uuid arena_id;               // random, of this arena alone
  std::uint8_t reserved[496];  // zero
  std::uint64_t checksum;      // of the bytes before it
  // Outside the checksum, because they change. Each word of 8 bytes is stored at once.
  std::uint64_t state;                // ArenaUse
  Uuid base;                          // the commit that the arena's bytes continue
  Uuid next;                          // a commit that is, or was, on its way
  std::uint64_t owner_pid;            // of the process that uses it; 0: none
  std::uint64_t owner_start;          // field 22 of /proc/PID/stat
  std::uint64_t owner_pid_namespace;  // st_ino of /proc/PID/ns/pid
};
static_assert(sizeof(ArenaHeader) == 3720);
static_assert(sizeof(ArenaHeader) <= kPage);
inline constexpr char kArenaMagic[9] = "HFARENA2";
inline constexpr char kArenaMagicV1[9] = "HFARENA1";

enum class ArenaUse : std::uint64_t {
  fresh = 0,   // its name is there, and the image does not name it yet: no one has stored anything
  in_use = 1,  // what it holds may be nowhere else
  closed = 2,  // the commit `base` holds all of it
};

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
  std::uint8_t secret[kSecretBytes];  // random: the key of all hashes of pages and tables
  std::uint64_t note_offset[2];
  std::uint8_t reserved[216];  // zero
  std::uint64_t checksum;      // of the bytes before it
};
static_assert(sizeof(ImageHeader) == 512);
inline constexpr char kImageMagic[9] = "HOLDFAST";

// Version 1: no secret (hashes have no key), no notes, no commit ids. Its fields stand where those
// of version 2 do.
inline constexpr std::uint64_t kHeaderV1Checksum = 120;

// Fits a disk sector. Where a disk cuts a sector in two, the first byte or the last is missing
// from a record that is not whole: both are zero before it is written.
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
  Uuid commit_id;             // random; version 1: zero
  std::uint8_t reserved[16];  // zero
  std::uint64_t checksum;     // of the bytes before it
  std::uint8_t padding[7];    // zero
  std::uint8_t end_marker;    // kEndMarker; 0, or a magic that begins with 0: it does not count
};
static_assert(sizeof(CommitRecord) == 128);
inline constexpr char kRecordMagic[9] = "HFCOMMIT";
inline constexpr std::uint8_t kEndMarker = 0xA5;  // no single flipped bit makes it 0
inline bool counts(const CommitRecord& record) {
  return record.magic[0] != 0 && record.end_marker != 0;
}

// Which arena the image's last user has, or had: says to the next one where persisted bytes are
// that no commit holds. Two slots; of two whole notes the one with the higher sequence counts.
struct ArenaNote {
  char magic[8];  // kNoteMagic
  std::uint64_t sequence;
  Uuid boot_id;
  Uuid arena_id;
  Uuid commit_id;              // closed: the commit that holds everything, and is durable
  std::uint64_t image_device;  // st_dev and st_ino of the image when it was written
  std::uint64_t image_inode;
  std::uint64_t closed;        // 1: closed properly, and there is no arena
  char arena_path[3072];       // absolute
  std::uint8_t reserved[432];  // zero
  std::uint64_t checksum;      // of the bytes before it
};
static_assert(sizeof(ArenaNote) == 3600);
inline constexpr char kNoteMagic[9] = "HFNOTE02";

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

inline constexpr std::array<std::uint64_t, 2> kRecordOffset = {kPage, 2 * kPage};
inline constexpr std::uint64_t kRootBytes = segments_of(kMaxRegionBytes) * sizeof(TableEntry);
inline constexpr std::uint64_t kRootOffset[2] = {3 * kPage, 3 * kPage + kRootBytes};
inline constexpr std::array<std::uint64_t, 2> kNoteOffset = {kRootOffset[1] + kRootBytes,
                                                             kRootOffset[1] + kRootBytes + kPage};
// The first page of the file that pages and tables may take: after the root slots, rounded up to
// a whole extent (block_map.hpp).
inline constexpr std::uint64_t kFirstBlock = 8224;
static_assert(kFirstBlock * kPage >= kNoteOffset[1] + kPage);

// The most blocks that an image of a region can have. Twice what it stores is what a commit can
// need; the rest is room for other writers. It bounds the memory that a hostile record can ask for.
constexpr std::uint64_t max_blocks(std::uint64_t region_bytes) {
  return kFirstBlock + 4 * (pages_of(region_bytes) + segments_of(region_bytes)) + (1u << 16);
}

}  // namespace holdfast::core
