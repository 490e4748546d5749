// The image: a region's last commit in a file. Every page has two slots; a commit writes the one
// that the previous commit does not refer to, so the previous one stays whole until the record
// of the new one is on the disk.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/files.hpp"
#include "core/format.hpp"
#include "core/image_io.hpp"

namespace holdfast::core {

using TablePage = std::array<std::uint64_t, kSegmentPages>;
static_assert(sizeof(TablePage) == kPage);

// The pages of one segment that a commit changes.
struct SegmentChange {
  std::uint64_t segment = 0;
  std::unique_ptr<TablePage> table;    // as it will be
  std::vector<std::uint16_t> pages;    // with new content, ascending, none of them zero
  const std::byte* content = nullptr;  // of these pages, one behind the other; null: written
};

// What a commit writes. REQUIRES: the region is no smaller than at the previous commit.
struct ChangeSet {
  std::uint64_t region_bytes = 0;
  std::vector<SegmentChange> segments;
};

struct WriteResult {
  std::uint64_t generation = 0;
  std::uint64_t pages_written = 0;
  std::uint64_t bytes_written = 0;
};

// Invariants:
// - The file holds exactly the commit that record() describes, or that one and its successor.
// - entries are those of record().
//
// Thread safety: const functions and write_pages() from any thread while nothing else runs.
class Image {
 public:
  // Writes the header of a new, empty image. It has no commit until the first write().
  static Image format(UniqueFd fd, const std::string& path, const Uuid& uuid,
                      std::uint64_t region_bytes);

  // Checks header, records, root and tables. Throws foreign, newer_version, damaged.
  static Image open(UniqueFd fd, const std::string& path);

  // Reads the header alone, for those that only need the uuid. Throws as open().
  static ImageHeader read_header(int fd, const std::string& path);

  // Reads and verifies all pages into zeroed memory. Throws damaged, with `describe(page)` in
  // the message, called once everything that can be read has been read.
  using Describe = std::function<std::string(std::uint64_t page)>;
  void load(std::byte* region, const Describe& describe) const;
  // The region's header and directory alone.
  void load_metadata(std::byte* metadata) const;
  // As load(), into no memory at all.
  void verify(const Describe& describe) const;

  // Takes back what a failed commit may have left of its record, before the slots that this
  // record refers to are written again. REQUIRES: called before the first write_pages().
  void settle();
  // Writes a segment's changed pages into their free slots, ahead of write(). Returns the bytes.
  std::uint64_t write_pages(const SegmentChange& change, const std::byte* content) const;
  // Makes the changes durable. Throws no_space or io: the image is then as it was.
  WriteResult write(const ChangeSet& changes);

  bool has_commit() const { return record_.generation_plus_one != 0; }
  std::uint64_t generation() const { return record_.generation_plus_one - 1; }
  std::uint64_t region_bytes() const { return record_.region_bytes; }
  std::uint64_t pages_stored() const { return record_.pages_stored; }
  std::uint64_t commit_unix_ns() const { return record_.unix_ns; }
  std::uint64_t entry(std::uint64_t page) const { return page < table_.size() ? table_[page] : 0; }
  const ImageHeader& header() const { return header_; }
  const Uuid& uuid() const { return header_.uuid; }
  int fd() const { return fd_.get(); }
  const std::string& path() const { return io_.path(); }

 private:
  // The commit in force.
  struct InForce {
    std::uint64_t generation_plus_one = 0;
    std::uint64_t region_bytes = 0;
    std::uint64_t root_hash = 0;
    std::uint64_t pages_stored = 0;
    std::uint64_t unix_ns = 0;
    unsigned root_slot = 1;
    unsigned page = 1;  // which record page
  };
  struct Pending;

  Image(UniqueFd fd, const std::string& path);
  void read_records(std::uint64_t file_bytes);
  void read_tables();
  void read_group(std::uint64_t group);
  void read_segment(std::uint64_t segment, std::byte* to, int direct_fd,
                    std::vector<std::uint64_t>& bad) const;
  void read_all(std::byte* region, const Describe& describe) const;
  Pending prepare(const ChangeSet& changes) const;
  void write_root(const Pending& pending);
  void write_record(const Pending& pending);

  UniqueFd fd_;
  ImageIo io_;
  ImageHeader header_{};
  InForce record_;
  std::vector<std::uint64_t> root_;   // an entry per segment
  std::vector<std::uint64_t> table_;  // an entry per page, whole segments
  std::uint64_t file_bytes_ = 0;
  // The record page not in force may hold more than an unmarked record.
  bool unsettled_ = false;
};

}  // namespace holdfast::core
