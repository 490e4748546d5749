// The image: a region's last commit in a file. Table entries say in which block of the file each
// page is; a commit writes what changed into free blocks, in long runs, so the previous commit
// stays whole until the record of the new one is on the disk.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/block_map.hpp"
#include "core/block_reader.hpp"
#include "core/files.hpp"
#include "core/format.hpp"
#include "core/image_io.hpp"

namespace holdfast::core {

// The block of a page that has no place yet.
inline constexpr std::uint64_t kUnplaced = ~std::uint64_t{0};

// The pages of one segment that a commit changes.
struct SegmentChange {
  std::uint64_t segment = 0;
  std::unique_ptr<TablePage> table;    // as it will be
  std::vector<std::uint16_t> pages;    // with new content, ascending, none of them zero
  std::vector<std::uint16_t> zeroed;   // that have become zero
  const std::byte* content = nullptr;  // of these pages, one behind the other; null: written
};

// What a commit writes, by segment. REQUIRES: the region is no smaller than at the previous one.
struct ChangeSet {
  std::uint64_t region_bytes = 0;
  std::vector<SegmentChange> segments;
};

struct WriteResult {
  std::uint64_t generation = 0;
  std::uint64_t pages_written = 0;
  std::uint64_t pages_moved = 0;
  std::uint64_t bytes_written = 0;
};

// Invariants:
// - The file holds exactly the commit that record() describes, or that one and its successor.
// - Entries and the owners in the block map are those of record(); blocks that are pending there
//   belong to a commit under way or to one that failed.
//
// Thread safety: const functions and write_ahead() from any thread while nothing else runs.
class Image {
 public:
  // Writes the header of a new, empty image. It has no commit until the first write().
  static Image format(UniqueFd fd, const std::string& path, const Uuid& uuid);

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

  // Takes back what a failed commit may have left of its record, and then the blocks that it
  // took. REQUIRES: called before the first write_ahead() of a commit.
  void settle();
  // Places a segment's changed pages and writes them, ahead of write(). Returns the bytes.
  std::uint64_t write_ahead(SegmentChange& change, const std::byte* content) const;
  // Makes the changes durable. Throws no_space, io or no_memory: the image is then as it was.
  WriteResult write(ChangeSet changes);

  bool has_commit() const { return record_.generation_plus_one != 0; }
  std::uint64_t generation() const { return record_.generation_plus_one - 1; }
  std::uint64_t region_bytes() const { return record_.region_bytes; }
  std::uint64_t pages_stored() const { return record_.pages_stored; }
  std::uint64_t commit_unix_ns() const { return record_.unix_ns; }
  TableEntry entry(std::uint64_t page) const {
    const std::uint64_t segment = page / kSegmentPages;
    if (segment >= tables_.size() || !tables_[segment]) return {};
    return (*tables_[segment])[page % kSegmentPages];
  }
  // Where a segment's table page is.
  TableEntry root_entry(std::uint64_t segment) const { return root_[segment]; }
  const BlockMap& blocks() const { return *map_; }
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
    std::uint64_t blocks = kFirstBlock;
    unsigned root_slot = 1;
    unsigned page = 1;  // which record page
  };
  struct Tally;
  struct Move;
  class Cleaning;
  // What a commit takes from the block map.
  struct Places {
    std::vector<BlockRun> content;
    std::vector<BlockRun> moved;
    std::vector<BlockRun> tables;
  };

  Image(UniqueFd fd, const std::string& path);
  void read_records(std::uint64_t file_bytes);
  void read_root();
  void read_tables();
  void claim_pages();
  void claim(std::uint64_t block, BlockMap::Owner owner, const char* who);
  void read_chunk(std::uint64_t first, std::byte* region, const BlockReader& reader,
                  std::vector<std::uint64_t>& bad) const;
  void read_all(std::byte* region, const Describe& describe) const;

  Tally examine(const ChangeSet& changes) const;
  std::vector<Move> clean(ChangeSet& changes, const Tally& tally);
  Places take_places(const Tally& tally, std::uint64_t moves, std::uint64_t tables);
  std::uint64_t write_content(ChangeSet& changes, const std::vector<BlockRun>& runs,
                              std::vector<Move>& moves, const std::vector<BlockRun>& moved) const;
  bool move_pages(const BlockReader& reader, std::span<Move> moves, std::uint64_t to) const;
  std::vector<TableEntry> write_tables(const ChangeSet& changes,
                                       const std::vector<BlockRun>& runs) const;
  void write_root(const std::vector<TableEntry>& root, unsigned slot) const;
  void write_record(const InForce& next) const;
  void put_in_force(ChangeSet& changes, const std::vector<Move>& moves,
                    std::vector<TableEntry> root);

  UniqueFd fd_;
  ImageIo io_;
  ImageHeader header_{};
  InForce record_;
  std::vector<TableEntry> root_;                    // an entry per segment
  std::vector<std::unique_ptr<TablePage>> tables_;  // by segment; null: all pages are zero
  std::unique_ptr<BlockMap> map_;
  std::uint64_t file_bytes_ = 0;  // the file has as many at least
  // The record page not in force may hold more than an unmarked record.
  bool unsettled_ = false;
};

}  // namespace holdfast::core
