#include "core/image.hpp"

#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <new>

#include "core/parallel.hpp"

namespace holdfast::core {

using detail::concat;

namespace {

[[noreturn]] void damaged(const std::string& path, const std::string& what) {
  throw Error(Errc::damaged,
              concat("the region '", path, "' is damaged: ", what, "; restore it from a copy"));
}

std::uint64_t unix_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

// What a foreign file is, as far as its first bytes tell.
const char* known_kind(const char* magic) {
  static constexpr struct {
    const char* bytes;
    std::size_t length;
    const char* name;
  } kKinds[] = {
      {"\x89PNG", 4, "a PNG picture"},
      {"\x7f"
       "ELF",
       4, "an ELF program"},
      {"PK\x03\x04", 4, "a zip archive"},
      {"\x1f\x8b", 2, "a gzip file"},
      {"\x28\xb5\x2f\xfd", 4, "a zstd file"},
      {"SQLite f", 8, "an SQLite database"},
      {"%PDF", 4, "a PDF document"},
      {"\x89HDF", 4, "an HDF5 file"},
      {"\x93NUMPY", 6, "a NumPy array"},
      {"\0\0\0\0\0\0\0\0", 8, "a file that begins with zeroes"},
  };
  for (const auto& kind : kKinds) {
    if (std::memcmp(magic, kind.bytes, kind.length) == 0) return kind.name;
  }
  return "a file of another kind";
}

}  // namespace

Image Image::format(std::unique_ptr<BlockStore> store, const Uuid& uuid) {
  Image image(std::move(store));
  ImageHeader& header = image.header_;
  std::memcpy(header.magic, kImageMagic, 8);
  header.version = kFormatVersion;
  header.page_bytes = kPageBytes;
  header.uuid = uuid;
  header.segment_pages = kSegmentPages;
  header.entry_bytes = sizeof(TableEntry);
  header.root_offset[0] = kRootOffset[0];
  header.root_offset[1] = kRootOffset[1];
  header.root_bytes = kRootBytes;
  header.first_block = kFirstBlock;
  header.created_unix_ns = unix_ns();
  random_bytes(header.secret, sizeof header.secret);
  header.note_offset[0] = kNoteOffset[0];
  header.note_offset[1] = kNoteOffset[1];
  header.checksum = hash_bytes(&header, offsetof(ImageHeader, checksum));
  image.hash_ = PageHash(header.secret);
  image.map_ = std::make_unique<BlockMap>(kFirstBlock);
  image.store_->write(0, &header, sizeof header);
  // What is written in place later must not find the disk full then.
  const std::vector<std::byte> zeroes(kPage);
  for (const auto& offsets : {kRecordOffset, kNoteOffset}) {
    for (const std::uint64_t offset : offsets) image.store_->write(offset, zeroes.data(), kPage);
  }
  return image;
}

namespace {

bool is_sound(const ImageHeader& header) {
  if (header.version != 1) {
    return header.checksum == hash_bytes(&header, offsetof(ImageHeader, checksum));
  }
  std::uint64_t checksum;
  std::memcpy(&checksum, reinterpret_cast<const char*>(&header) + kHeaderV1Checksum, 8);
  return checksum == hash_bytes(&header, kHeaderV1Checksum);
}

bool has_possible_values(const ImageHeader& header) {
  return header.version >= 1 && header.page_bytes == kPage &&
         header.segment_pages == kSegmentPages && header.root_offset[0] == kRootOffset[0] &&
         header.root_offset[1] == kRootOffset[1] && header.root_bytes == kRootBytes &&
         header.entry_bytes == sizeof(TableEntry) && header.first_block == kFirstBlock &&
         (header.version == 1 ||
          (header.note_offset[0] == kNoteOffset[0] && header.note_offset[1] == kNoteOffset[1]));
}

}  // namespace

ImageHeader Image::read_header(const BlockStore& store) {
  const std::string& path = store.path();
  ImageHeader header{};
  char magic[8] = {};
  if (!store.read(0, magic, sizeof magic)) {
    throw Error(Errc::foreign, concat("'", path, "' is no region: it is empty or too short"));
  }
  if (std::memcmp(magic, kImageMagic, 8) != 0) {
    throw Error(Errc::foreign, concat("'", path, "' is no region, but ", known_kind(magic),
                                      "; check the path, or create() a region elsewhere"));
  }
  if (!store.read(0, &header, sizeof header)) damaged(path, "its header is cut off");
  const bool sound = is_sound(header);
  if (header.version > kFormatVersion) {
    throw Error(Errc::newer_version,
                concat("'", path, "' was written in format version ", header.version,
                       sound ? "" : " (or its header is damaged)", ", and this build reads up to ",
                       kFormatVersion, "; use a newer build"));
  }
  if (!sound) damaged(path, "its header does not match its checksum");
  if (!has_possible_values(header)) damaged(path, "its header has impossible values");
  return header;
}

Image Image::open(std::unique_ptr<BlockStore> store) {
  Image image(std::move(store));
  image.header_ = read_header(*image.store_);
  if (image.header_.version > 1) image.hash_ = PageHash(image.header_.secret);
  image.file_bytes_ = image.store_->size();
  image.read_records(image.file_bytes_);
  if (image.header_.version > 1) image.read_notes();
  try {
    image.read_tables();
  } catch (const std::bad_alloc&) {
    throw Error(Errc::no_memory, concat("no memory for the tables of '", image.path(), "'"));
  }
  return image;
}

// A note that is not whole does not count: a power cut can tear one, and then none is needed.
void Image::read_notes() {
  for (unsigned slot = 0; slot < 2; ++slot) {
    ArenaNote note;
    if (!store_->read(kNoteOffset[slot], &note, sizeof note)) continue;
    if (std::memcmp(note.magic, kNoteMagic, 8) != 0 || note.closed > 1 ||
        note.sequence > kMaxGeneration ||
        note.checksum != hash_bytes(&note, offsetof(ArenaNote, checksum)) ||
        std::memchr(note.arena_path, 0, sizeof note.arena_path) == nullptr) {
      continue;
    }
    if (note_ && note_->sequence > note.sequence) continue;
    note_ = note;
    note_slot_ = slot;
  }
}

void Image::read_records(std::uint64_t file_bytes) {
  for (unsigned page = 0; page < 2; ++page) {
    CommitRecord record;
    if (!store_->read(kRecordOffset[page], &record, sizeof record)) {
      damaged(path(), "it is cut off within its commit records");
    }
    if (!counts(record)) continue;  // never written, or not whole
    if (record.end_marker != kEndMarker || std::memcmp(record.magic, kRecordMagic, 8) != 0 ||
        record.checksum != hash_bytes(&record, offsetof(CommitRecord, checksum))) {
      damaged(path(), concat("commit record ", page, " does not match its checksum"));
    }
    if (record.uuid != uuid() || record.root_slot > 1 || record.region_bytes % kPage != 0 ||
        record.region_bytes < kMetadataBytes || record.region_bytes > kMaxRegionBytes ||
        record.blocks < kFirstBlock || record.blocks > max_blocks(record.region_bytes) ||
        record.generation > kMaxGeneration) {
      damaged(path(), concat("commit record ", page, " has impossible values"));
    }
    const std::uint64_t plus_one = record.generation + 1;
    if (has_commit() && plus_one != record_.generation_plus_one + 1 &&
        plus_one + 1 != record_.generation_plus_one) {
      damaged(path(), "its two commit records do not follow one another");
    }
    if (plus_one <= record_.generation_plus_one) continue;
    record_ = {plus_one,       record.region_bytes, record.root_hash, record.pages_stored,
               record.unix_ns, record.blocks,       record.root_slot, page};
    written_ = record;
  }
  if (!has_commit()) damaged(path(), "it holds no complete commit record");
  if (file_bytes / kPage < record_.blocks) {
    damaged(path(), concat("it is cut off: ", file_bytes, " bytes of ", record_.blocks * kPage));
  }
}

void Image::claim(std::uint64_t block, BlockMap::Owner owner, const char* who) {
  if (block < kFirstBlock || block >= record_.blocks) {
    damaged(path(), concat(who, " block ", block, ", where none can be"));
  }
  if (!map_->claim(block, owner)) {
    damaged(path(), concat(who, " block ", block, ", which is taken"));
  }
}

void Image::read_root() {
  root_.resize(segments_of(region_bytes()));
  const std::uint64_t bytes = root_.size() * sizeof(TableEntry);
  if (!store_->read(kRootOffset[record_.root_slot], root_.data(), bytes)) {
    damaged(path(), "it is cut off within its root table");
  }
  if (hash_.bytes(root_.data(), bytes) != record_.root_hash) {
    damaged(path(), concat("root table ", record_.root_slot, " does not match its hash"));
  }
  const std::uint64_t empty = hash_(std::make_unique<TablePage>().get());
  for (std::uint64_t segment = 0; segment < root_.size(); ++segment) {
    const TableEntry& entry = root_[segment];
    if (entry == TableEntry{}) continue;
    // None is ever stored; a hole in the file could be a million of them.
    if (entry.hash == empty) damaged(path(), "its root table names an empty table");
    claim(entry.block, BlockMap::table(segment), "its root table names");
    tables_[segment] = std::make_unique<TablePage>();
  }
}

// Reads the table pages in the order of the file.
void Image::read_tables() {
  map_ = std::make_unique<BlockMap>(record_.blocks);
  tables_.resize(segments_of(region_bytes()));
  read_root();
  std::vector<BlockTarget> targets;
  for (std::uint64_t segment = 0; segment < root_.size(); ++segment) {
    if (!tables_[segment]) continue;
    targets.push_back({root_[segment].block, reinterpret_cast<std::byte*>(tables_[segment].get())});
  }
  std::sort(targets.begin(), targets.end(),
            [](const auto& a, const auto& b) { return a.block < b.block; });
  constexpr std::size_t kChunk = 256;
  const BlockReader reader(*store_);
  parallel_for((targets.size() + kChunk - 1) / kChunk, worker_count(), [&](std::size_t chunk) {
    const std::size_t first = chunk * kChunk;
    const std::size_t count = std::min(kChunk, targets.size() - first);
    if (!reader.read({&targets[first], count})) damaged(path(), "it is cut off within its tables");
  });
  parallel_for((tables_.size() + kChunk - 1) / kChunk, worker_count(), [&](std::size_t chunk) {
    const std::size_t last = std::min(tables_.size(), (chunk + 1) * kChunk);
    for (std::size_t segment = chunk * kChunk; segment < last; ++segment) {
      if (!tables_[segment]) continue;
      if (hash_(tables_[segment].get()) == root_[segment].hash) continue;
      damaged(path(), concat("the table of pages ", segment * kSegmentPages, " to ",
                             (segment + 1) * kSegmentPages - 1, " does not match its hash"));
    }
  });
  claim_pages();
}

// Gives each block that the tables name its owner.
void Image::claim_pages() {
  std::uint64_t stored = 0;
  for (std::uint64_t segment = 0; segment < tables_.size(); ++segment) {
    if (!tables_[segment]) continue;
    for (std::uint64_t i = 0; i < kSegmentPages; ++i) {
      const TableEntry& stored_at = (*tables_[segment])[i];
      if (stored_at == TableEntry{}) continue;
      const std::uint64_t page = segment * kSegmentPages + i;
      if (page >= pages_of(region_bytes())) {
        damaged(path(), "its tables name pages outside the region");
      }
      claim(stored_at.block, BlockMap::page(page), "its tables name");
      ++stored;
    }
  }
  if (stored != pages_stored()) {
    damaged(path(), concat("its tables name ", stored, " pages and its record ", pages_stored()));
  }
}

}  // namespace holdfast::core
