#include "core/image.hpp"

#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "core/arena.hpp"
#include "core/checksum.hpp"
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

Image::Image(UniqueFd fd, const std::string& path) : fd_(std::move(fd)), io_(fd_.get(), path) {}

Image Image::format(UniqueFd fd, const std::string& path, const Uuid& uuid,
                    std::uint64_t region_bytes) {
  Image image(std::move(fd), path);
  ImageHeader& header = image.header_;
  std::memcpy(header.magic, kImageMagic, 8);
  header.version = kFormatVersion;
  header.page_bytes = kPageBytes;
  header.uuid = uuid;
  header.segment_pages = kSegmentPages;
  header.root_offset[0] = kRootOffset[0];
  header.root_offset[1] = kRootOffset[1];
  header.root_bytes = kRootBytes;
  header.group_segments = kGroupSegments;
  header.group_offset = kGroupOffset;
  header.group_bytes = kGroupBytes;
  header.created_unix_ns = unix_ns();
  header.checksum = hash_bytes(&header, offsetof(ImageHeader, checksum));
  image.file_bytes_ = image_bytes(region_bytes);
  image.io_.resize(image.file_bytes_);
  image.io_.write(0, &header, sizeof header);
  return image;
}

ImageHeader Image::read_header(int fd, const std::string& path) {
  ImageHeader header{};
  char magic[8] = {};
  if (!read_exactly(fd, magic, sizeof magic, 0, path)) {
    throw Error(Errc::foreign, concat("'", path, "' is no region: it is empty or too short"));
  }
  if (std::memcmp(magic, kImageMagic, 8) != 0) {
    throw Error(Errc::foreign, concat("'", path, "' is no region, but ", known_kind(magic),
                                      "; check the path, or create() a region elsewhere"));
  }
  if (!read_exactly(fd, &header, sizeof header, 0, path)) damaged(path, "its header is cut off");
  const bool sound = header.checksum == hash_bytes(&header, offsetof(ImageHeader, checksum));
  if (header.version > kFormatVersion) {
    throw Error(Errc::newer_version,
                concat("'", path, "' was written in format version ", header.version,
                       sound ? "" : " (or its header is damaged)", ", and this build reads up to ",
                       kFormatVersion, "; use a newer build"));
  }
  if (!sound) damaged(path, "its header does not match its checksum");
  if (header.version != kFormatVersion || header.page_bytes != kPage ||
      header.segment_pages != kSegmentPages || header.root_offset[0] != kRootOffset[0] ||
      header.root_offset[1] != kRootOffset[1] || header.root_bytes != kRootBytes ||
      header.group_segments != kGroupSegments || header.group_offset != kGroupOffset ||
      header.group_bytes != kGroupBytes) {
    damaged(path, "its header has impossible values");
  }
  return header;
}

Image Image::open(UniqueFd fd, const std::string& path) {
  Image image(std::move(fd), path);
  image.header_ = read_header(image.fd(), path);
  struct stat info {};
  if (::fstat(image.fd(), &info) != 0) throw system_error(errno, "look at", path);
  image.file_bytes_ = static_cast<std::uint64_t>(info.st_size);
  image.read_records(image.file_bytes_);
  image.read_tables();
  return image;
}

void Image::read_records(std::uint64_t file_bytes) {
  for (unsigned page = 0; page < 2; ++page) {
    CommitRecord record;
    if (!read_exactly(fd(), &record, sizeof record, kRecordOffset[page], path())) {
      damaged(path(), "it is cut off within its commit records");
    }
    if (record.end_marker == 0) continue;  // never written, or not to its end
    if (record.end_marker != kEndMarker || std::memcmp(record.magic, kRecordMagic, 8) != 0 ||
        record.checksum != hash_bytes(&record, offsetof(CommitRecord, checksum))) {
      damaged(path(), concat("commit record ", page, " does not match its checksum"));
    }
    if (record.uuid != uuid() || record.root_slot > 1 || record.region_bytes % kPage != 0 ||
        record.region_bytes < kMetadataBytes || record.region_bytes > kMaxRegionBytes ||
        record.generation > ~std::uint64_t{0} - 2) {
      damaged(path(), concat("commit record ", page, " has impossible values"));
    }
    const std::uint64_t plus_one = record.generation + 1;
    if (has_commit() && plus_one != record_.generation_plus_one + 1 &&
        plus_one + 1 != record_.generation_plus_one) {
      damaged(path(), "its two commit records do not follow one another");
    }
    if (plus_one <= record_.generation_plus_one) continue;
    record_ = {plus_one,
               record.region_bytes,
               record.root_hash,
               record.pages_stored,
               record.unix_ns,
               record.root_slot,
               page};
  }
  if (!has_commit()) damaged(path(), "it holds no complete commit record");
  if (file_bytes < image_bytes(region_bytes())) {
    damaged(path(),
            concat("it is cut off: ", file_bytes, " bytes of ", image_bytes(region_bytes())));
  }
}

void Image::read_tables() {
  const std::uint64_t segments = segments_of(region_bytes());
  root_.resize(segments);
  if (!read_exactly(fd(), root_.data(), segments * 8, kRootOffset[record_.root_slot], path())) {
    damaged(path(), "it is cut off within its root table");
  }
  if (hash_bytes(root_.data(), segments * 8) != record_.root_hash) {
    damaged(path(), concat("root table ", record_.root_slot, " does not match its hash"));
  }
  table_.assign(segments * kSegmentPages, 0);
  const std::uint64_t groups = (segments + kGroupSegments - 1) / kGroupSegments;
  parallel_for(groups, worker_count(), [&](std::size_t group) { read_group(group); });
  for (std::uint64_t page = pages_of(region_bytes()); page < table_.size(); ++page) {
    if (table_[page] != 0) damaged(path(), "its tables name pages outside the region");
  }
}

// Both slots of a group's table pages are read whole, then each page from the slot in force.
void Image::read_group(std::uint64_t group) {
  const std::uint64_t first = group * kGroupSegments;
  const std::uint64_t last = std::min<std::uint64_t>(first + kGroupSegments, root_.size());
  const std::uint64_t entries = (last - first) * kSegmentPages;
  std::vector<std::uint64_t> slots[2];
  for (unsigned slot = 0; slot < 2; ++slot) {
    slots[slot].resize(entries);
    if (!read_exactly(fd(), slots[slot].data(), entries * 8, table_offset(first, slot), path())) {
      damaged(path(), "it is cut off within its tables");
    }
  }
  for (std::uint64_t segment = first; segment < last; ++segment) {
    const std::uint64_t entry = root_[segment];
    if (entry == 0) continue;
    const std::uint64_t* const page = &slots[entry_slot(entry)][(segment - first) * kSegmentPages];
    if (!same_content(page_entry(page), entry)) {
      damaged(path(), concat("the table of pages ", segment * kSegmentPages, " to ",
                             (segment + 1) * kSegmentPages - 1, " does not match its hash"));
    }
    std::copy(page, page + kSegmentPages,
              table_.begin() + static_cast<std::ptrdiff_t>(segment * kSegmentPages));
  }
}

}  // namespace holdfast::core
