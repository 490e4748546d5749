// The image: a region's last commit in a file. Table entries say in which block of the file each
// page is; a commit writes what changed into free blocks, in long runs, so the previous commit
// stays whole until the record of the new one is on the disk.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/block_map.hpp"
#include "core/block_reader.hpp"
#include "core/block_store.hpp"
#include "core/checksum.hpp"
#include "core/format.hpp"

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
// - The store holds exactly the commit that record() describes, or that one and its successor.
// - Entries and the owners in the block map are those of record(); blocks that are pending there
//   belong to a commit under way or to one that failed.
// - Nothing that the record in force refers to, or that one on the disk may refer to, is written
//   over: settle() comes first.
//
// Thread safety: const functions and write_ahead() from any thread while nothing else runs.
class Image {
 public:
  // Writes the header of a new, empty image. It has no commit until the first write().
  static Image format(std::unique_ptr<BlockStore> store, const Uuid& uuid);

  // Checks header, records, root and tables. Throws foreign, newer_version, damaged. An image of
  // version 1 can be read, and not written.
  static Image open(std::unique_ptr<BlockStore> store);

  // Reads the header alone, for those that only need the uuid. Throws as open().
  static ImageHeader read_header(const BlockStore& store);

  // Reads and verifies all pages into zeroed memory. Throws damaged, with `describe(page)` in
  // the message, called once everything that can be read has been read.
  using Describe = std::function<std::string(std::uint64_t page)>;
  void load(std::byte* region, const Describe& describe) const;
  // The region's header and directory alone.
  void load_metadata(std::byte* metadata) const;
  // As load(), into no memory at all.
  void verify(const Describe& describe) const;

  // The last whole note, if there is one.
  const std::optional<ArenaNote>& note() const { return note_; }
  // Notes which arena is in use, or that none is. Fills in what all notes have. Not synced.
  void write_note(const ArenaNote& note);
  // The same bytes to the same place, so that the next sync makes them durable whatever became of
  // them. REQUIRES: there is a note.
  void rewrite_note() { store_->write(kNoteOffset[note_slot_], &*note_, sizeof *note_); }

  // Opening read the commit in force, but not whether it is on the disk. Before anything is written
  // over, call one of these:
  // Makes it and the image's name durable, by writing its record again: a sync alone does not bring
  // back what an earlier one failed to write.
  void make_durable();
  // REQUIRES: it is known to be durable.
  void is_durable();
  void sync();
  // A new image's name, once it has one.
  void sync_name() { store_->sync_name(); }

  // Throws in_use if another process has committed since, not_found or damaged if the file is not
  // where it was or has been cut. Takes back what a failed commit may have left of its record, and
  // then the blocks that it took. REQUIRES: called before the first write_ahead() of a commit.
  void settle();
  // Places a segment's changed pages and writes them, ahead of write(). Returns the bytes.
  std::uint64_t write_ahead(SegmentChange& change, const std::byte* content) const;
  // Makes the changes durable. Throws no_space, io or no_memory; the message says which commit the
  // image then holds.
  WriteResult write(ChangeSet changes, const Uuid& commit_id);
  // Throws not_found or damaged if the file was removed, replaced or cut from outside.
  void check_in_place() const;

  bool has_commit() const { return record_.generation_plus_one != 0; }
  std::uint64_t generation() const { return record_.generation_plus_one - 1; }
  std::uint64_t region_bytes() const { return record_.region_bytes; }
  std::uint64_t pages_stored() const { return record_.pages_stored; }
  std::uint64_t commit_unix_ns() const { return record_.unix_ns; }
  const Uuid& commit_id() const { return written_.commit_id; }
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
  const PageHash& hash() const { return hash_; }
  const BlockStore& store() const { return *store_; }
  const std::string& path() const { return store_->path(); }

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
  struct Prepared;
  class Cleaning;
  // What a commit takes from the block map.
  struct Places {
    std::vector<BlockRun> content;
    std::vector<BlockRun> moved;
    std::vector<BlockRun> tables;
  };

  explicit Image(std::unique_ptr<BlockStore> store) : store_(std::move(store)) {}
  void read_notes();
  void read_records(std::uint64_t file_bytes);
  void read_root();
  void read_tables();
  void claim_pages();
  void claim(std::uint64_t block, BlockMap::Owner owner, const char* who);
  void read_chunk(std::uint64_t first, std::byte* region, const BlockReader& reader,
                  std::vector<std::uint64_t>& bad) const;
  void read_all(std::byte* region, const Describe& describe) const;

  Tally examine(const ChangeSet& changes) const;
  Prepared prepare(ChangeSet& changes);
  CommitRecord record_of(const InForce& next, const Uuid& commit_id) const;
  std::vector<Move> clean(ChangeSet& changes, const Tally& tally);
  Places take_places(const Tally& tally, std::uint64_t moves, std::uint64_t tables);
  std::uint64_t write_content(ChangeSet& changes, const std::vector<BlockRun>& runs,
                              std::vector<Move>& moves, const std::vector<BlockRun>& moved) const;
  bool move_pages(const BlockReader& reader, std::span<Move> moves, std::uint64_t to) const;
  std::vector<TableEntry> write_tables(const ChangeSet& changes,
                                       const std::vector<BlockRun>& runs) const;
  void write_root(const std::vector<TableEntry>& root, unsigned slot) const;
  void write_record(const CommitRecord& record, unsigned page) const;
  void clear_record(unsigned page) const;
  void check_no_one_else_wrote() const;
  void put_in_force(ChangeSet& changes, const std::vector<Move>& moves,
                    std::vector<TableEntry> root);

  std::unique_ptr<BlockStore> store_;
  ImageHeader header_{};
  PageHash hash_;
  InForce record_;
  CommitRecord written_{};  // the record in force, byte by byte
  std::optional<ArenaNote> note_;
  unsigned note_slot_ = 1;  // where it stands
  // It is on the disk. The next one then goes into the other slot, and until then over it: were two
  // on their way at once, a disk that fails could leave none.
  bool note_synced_ = true;
  std::vector<TableEntry> root_;                    // an entry per segment
  std::vector<std::unique_ptr<TablePage>> tables_;  // by segment; null: all pages are zero
  std::unique_ptr<BlockMap> map_;
  std::uint64_t file_bytes_ = 0;  // the file has as many at least
  // On the disk the record page not in force may hold a record that counts.
  bool unsettled_ = false;
};

}  // namespace holdfast::core
