#include "fuzz/image_bytes.hpp"

#include <algorithm>
#include <set>

#include "core/checksum.hpp"

namespace holdfast::fuzz {

using core::CommitRecord;
using core::ImageHeader;
using core::kPage;
using core::PageHash;
using core::TableEntry;
using core::TablePage;

namespace {

// Where the first places begin; the others are blocks.
constexpr std::uint64_t kPlaces[] = {
    0,
    core::kRecordOffset[0],
    core::kRecordOffset[1],
    core::kRootOffset[0],
    core::kRootOffset[1],
    core::kNoteOffset[0],
    core::kNoteOffset[1],
    core::kRootOffset[0] + core::kRootBytes / 2,
};
constexpr std::size_t kNamed = std::size(kPlaces);

std::uint64_t place_offset(std::uint8_t place) {
  if (place < kNamed) return kPlaces[place];
  return (core::kFirstBlock + place - kNamed) * kPage;
}

// Larger ones are left as they are: their roots take long to hash.
constexpr std::uint64_t kMostRepaired = std::uint64_t{1} << 32;

class ImageRepair {
 public:
  ImageRepair(MemoryFile& file, std::uint8_t repairs) : file_(file), repairs_(repairs) {
    header_ = file_.get<ImageHeader>(0);
    if (header_.version > 1) hash_ = PageHash(header_.secret);
  }

  void run() {
    for (const std::uint64_t offset : core::kRecordOffset) {
      auto record = file_.get<CommitRecord>(offset);
      if (!counts(record)) continue;
      repair(record);
      file_.put(offset, record);
    }
    if (!has(kRepairChecksums)) return;
    header_.checksum = core::hash_bytes(&header_, offsetof(ImageHeader, checksum));
    if (header_.version == 1) {
      const std::uint64_t checksum = core::hash_bytes(&header_, core::kHeaderV1Checksum);
      std::memcpy(reinterpret_cast<char*>(&header_) + core::kHeaderV1Checksum, &checksum, 8);
    }
    file_.put(0, header_);
    for (const std::uint64_t offset : core::kNoteOffset) {
      auto note = file_.get<core::ArenaNote>(offset);
      if (note.magic[0] == 0) continue;
      note.checksum = core::hash_bytes(&note, offsetof(core::ArenaNote, checksum));
      file_.put(offset, note);
    }
  }

 private:
  bool has(Repair what) const { return (repairs_ & what) != 0; }

  // Whether the file could have such a block.
  bool there(std::uint64_t block) const {
    return block >= core::kFirstBlock && block < file_.bytes / kPage;
  }

  void repair(CommitRecord& record) {
    if (has(kRepairIds)) record.uuid = header_.uuid;
    if (record.region_bytes <= kMostRepaired) {
      if (has(kRepairDirectory)) directory(record);
      if (has(kRepairTables)) tables(record);
    }
    if (has(kRepairChecksums)) {
      record.checksum = core::hash_bytes(&record, offsetof(CommitRecord, checksum));
    }
  }

  std::vector<TableEntry> root(const CommitRecord& record) const {
    std::vector<TableEntry> entries(core::segments_of(record.region_bytes));
    file_.read(core::kRootOffset[record.root_slot & 1], entries.data(),
               entries.size() * sizeof(TableEntry));
    return entries;
  }

  void directory(const CommitRecord& record) {
    const auto entries = root(record);
    if (entries.empty() || !there(entries[0].block)) return;
    const auto table = file_.get<TablePage>(entries[0].block * kPage);
    std::vector<std::byte> metadata(core::kMetadataBytes);
    for (std::uint64_t page = 0; page < core::kMetadataPages; ++page) {
      if (there(table[page].block)) {
        file_.read(table[page].block * kPage, &metadata[page * kPage], kPage);
      }
    }
    core::Uuid uuid;
    std::memcpy(&uuid, &metadata[offsetof(core::RegionHeader, uuid)], sizeof uuid);
    repair_metadata(metadata.data(), has(kRepairIds) ? header_.uuid : uuid);
    for (std::uint64_t page = 0; page < core::kMetadataPages; ++page) {
      if (there(table[page].block)) {
        file_.write(table[page].block * kPage, &metadata[page * kPage], kPage);
      }
    }
  }

  void tables(CommitRecord& record) {
    auto entries = root(record);
    std::set<std::uint64_t> seen;  // a table that names itself would never come right
    std::uint64_t stored = 0;
    for (TableEntry& entry : entries) {
      if (!there(entry.block) || !seen.insert(entry.block).second) continue;
      auto table = file_.get<TablePage>(entry.block * kPage);
      for (TableEntry& page : table) {
        if (page == TableEntry{}) continue;
        ++stored;
        if (there(page.block))
          page.hash = hash_(file_.get<MemoryFile::Page>(page.block * kPage).bytes.data());
      }
      file_.put(entry.block * kPage, table);
      entry.hash = hash_(&table);
    }
    const std::size_t bytes = entries.size() * sizeof(TableEntry);
    if (bytes > 0) file_.write(core::kRootOffset[record.root_slot & 1], entries.data(), bytes);
    record.root_hash = hash_.bytes(entries.data(), bytes);
    if (has(kRepairCounts)) record.pages_stored = stored;
  }

  MemoryFile& file_;
  const std::uint8_t repairs_;
  ImageHeader header_;
  PageHash hash_;
};

}  // namespace

void repair_metadata(std::byte* metadata, const core::Uuid& uuid) {
  core::RegionHeader header;
  std::memcpy(&header, metadata, sizeof header);
  header.uuid = uuid;
  header.checksum = core::hash_bytes(&header, offsetof(core::RegionHeader, checksum));
  std::memcpy(metadata, &header, sizeof header);
  for (unsigned slot = 0; slot < 2; ++slot) {
    std::byte* const at = metadata + (1 + slot * core::kDirectoryPages) * kPage;
    constexpr std::size_t kChecked = offsetof(core::DirectorySlot, checksum);
    std::uint64_t checksum;
    std::memcpy(&checksum, at + kChecked, sizeof checksum);
    if (checksum == 0) continue;
    checksum = core::hash_bytes(at, kChecked);
    std::memcpy(at + kChecked, &checksum, sizeof checksum);
  }
}

void repair_image(MemoryFile& file, std::uint8_t repairs) { ImageRepair(file, repairs).run(); }

MemoryFile image_file(Input& input, ImageInput& head) {
  head.repairs = input.take();
  head.blocks = input.take<std::uint16_t>();
  head.cut = input.take();
  const auto plan = input.bytes(input.take());
  head.plan.assign(plan.begin(), plan.end());
  MemoryFile file;
  while (!input.empty()) {
    const std::uint64_t place = place_offset(input.take());
    const std::uint64_t offset = place + input.take<std::uint16_t>();
    const auto bytes = input.bytes(input.take<std::uint16_t>());
    file.write(offset, bytes.data(), bytes.size());
  }
  file.bytes = (core::kFirstBlock + head.blocks) * kPage - std::min<std::uint64_t>(head.cut, kPage);
  repair_image(file, head.repairs);
  return file;
}

std::vector<std::uint8_t> image_input(const ImageInput& head, const MemoryFile& file) {
  std::vector<std::uint8_t> result;
  const auto add = [&](std::size_t byte) { result.push_back(static_cast<std::uint8_t>(byte)); };
  add(head.repairs);
  add(head.blocks);
  add(head.blocks >> 8);
  add(head.cut);
  add(head.plan.size());
  for (const std::uint8_t byte : head.plan) add(byte);
  for (const auto& [page, content] : file.pages) {
    std::size_t place = 0;
    if (page >= core::kFirstBlock) {
      place = page - core::kFirstBlock + kNamed;
    } else {
      while (place < kNamed && kPlaces[place] != page * kPage) ++place;
      if (place == kNamed) continue;  // zero in small regions
    }
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(content.bytes.data());
    constexpr std::size_t kWorth = 6;  // a gap that is worth a piece of its own
    for (std::size_t at = 0; at < kPage;) {
      if (bytes[at] == 0) {
        ++at;
        continue;
      }
      std::size_t end = at;
      for (std::size_t i = at; i < kPage && i - end <= kWorth; ++i) {
        if (bytes[i] != 0) end = i + 1;
      }
      add(place);
      for (const std::size_t number : {at, end - at}) {
        add(number);
        add(number >> 8);
      }
      result.insert(result.end(), bytes + at, bytes + end);
      at = end;
    }
  }
  return result;
}

}  // namespace holdfast::fuzz
