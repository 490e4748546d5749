// Writing a commit into an image. docs/format.md, "A commit", has the order and why.
#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstring>

#include "core/checksum.hpp"
#include "core/image.hpp"
#include "core/image_plan.hpp"
#include "core/parallel.hpp"

namespace holdfast::core {

namespace {

constexpr std::uint8_t kNoMarker = 0;
constexpr std::uint64_t kUnitPages = 512;  // written by one call, of which Linux takes 1024 parts

// Pages that lie together in memory.
struct Piece {
  const std::byte* data = nullptr;
  std::uint64_t pages = 0;
};

// Pages that are written together.
struct Unit {
  std::uint64_t block = 0;
  std::uint64_t pages = 0;
  std::uint64_t first = 0;  // of all the pages that go into the same runs
  // Where it begins: a piece, and pages of that which belong to the unit before.
  std::size_t piece = 0;
  std::uint64_t skip = 0;
};

// The blocks of runs, one after the other.
class Blocks {
 public:
  explicit Blocks(const std::vector<BlockRun>& runs) : run_(runs.begin()) {}
  std::uint64_t next() {
    const std::uint64_t block = run_->block + taken_;
    if (++taken_ == run_->count) {
      ++run_;
      taken_ = 0;
    }
    return block;
  }

 private:
  std::vector<BlockRun>::const_iterator run_;
  std::uint64_t taken_ = 0;
};

std::vector<Unit> cut(const std::vector<BlockRun>& runs, const std::vector<Piece>& pieces) {
  std::vector<Unit> units;
  Unit unit;
  for (const BlockRun& run : runs) {
    for (std::uint64_t done = 0; done < run.count; done += unit.pages) {
      unit.block = run.block + done;
      unit.first += unit.pages;
      unit.skip += unit.pages;
      unit.pages = std::min(kUnitPages, run.count - done);
      while (unit.piece < pieces.size() && unit.skip >= pieces[unit.piece].pages) {
        unit.skip -= pieces[unit.piece++].pages;
      }
      units.push_back(unit);
    }
  }
  return units;
}

void write_unit(const ImageIo& io, const Unit& unit, const std::vector<Piece>& pieces) {
  std::array<iovec, kUnitPages> parts;
  std::size_t count = 0;
  std::size_t piece = unit.piece;
  std::uint64_t skip = unit.skip;
  for (std::uint64_t done = 0; done < unit.pages; ++piece, skip = 0) {
    const std::uint64_t pages = std::min(unit.pages - done, pieces[piece].pages - skip);
    auto* const data = const_cast<std::byte*>(pieces[piece].data) + skip * kPage;
    if (count > 0 &&
        static_cast<std::byte*>(parts[count - 1].iov_base) + parts[count - 1].iov_len == data) {
      parts[count - 1].iov_len += pages * kPage;
    } else {
      parts[count++] = {data, pages * kPage};
    }
    done += pages;
  }
  io.gather(unit.block * kPage, {parts.data(), count});
}

// Few pages are written faster than threads are started.
unsigned threads_for(std::uint64_t pages) {
  return pages < 1024 || ImageIo::tap.load() != nullptr ? 1 : std::min(4u, worker_count());
}

bool stores_pages(const TablePage& table) {
  return std::any_of(table.begin(), table.end(),
                     [](const auto& entry) { return entry.block != 0; });
}

std::uint64_t marker_offset(unsigned page) {
  return kRecordOffset[page] + offsetof(CommitRecord, end_marker);
}

std::uint64_t now_unix_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

void Image::settle() {
  if (unsettled_) {
    io_.write(marker_offset(1 - record_.page), &kNoMarker, 1);
    io_.sync();
    unsettled_ = false;
  }
  map_->give_back();
}

std::uint64_t Image::write_ahead(SegmentChange& change, const std::byte* content) const {
  std::vector<BlockRun> runs;
  map_->allocate(change.pages.size(), runs);
  Blocks blocks(runs);
  for (const std::uint16_t page : change.pages) (*change.table)[page].block = blocks.next();
  const std::vector<Piece> pieces = {{content, change.pages.size()}};
  for (const Unit& unit : cut(runs, pieces)) write_unit(io_, unit, pieces);
  return change.pages.size() * kPage;
}

Image::Tally Image::examine(const ChangeSet& changes) const {
  Tally tally;
  tally.dying.assign(map_->extents(), 0);
  tally.pages_stored = record_.pages_stored;
  tally.in_force = map_->in_force();
  const auto dies = [&](const TableEntry& entry) {
    if (entry.block == 0) return false;
    ++tally.dying[BlockMap::extent_of(entry.block)];
    --tally.in_force;
    return true;
  };
  for (const SegmentChange& change : changes.segments) {
    (change.content != nullptr ? tally.staged : tally.ahead) += change.pages.size();
    tally.pages_stored += change.pages.size();
    const std::uint64_t first = change.segment * kSegmentPages;
    for (const auto* const pages : {&change.pages, &change.zeroed}) {
      for (const std::uint16_t page : *pages) tally.pages_stored -= dies(entry(first + page));
    }
    if (change.segment < root_.size()) dies(root_[change.segment]);
    tally.tables += stores_pages(*change.table);
  }
  tally.in_force += tally.staged + tally.ahead + tally.tables;
  return tally;
}

// Writes what has been copied aside, and moves what is to be moved, both into the runs given.
// Returns the number of pages.
std::uint64_t Image::write_content(ChangeSet& changes, const std::vector<BlockRun>& runs,
                                   std::vector<Move>& moves,
                                   const std::vector<BlockRun>& moved) const {
  std::vector<Piece> pieces;
  Blocks blocks(runs);
  for (SegmentChange& change : changes.segments) {
    if (change.content == nullptr || change.pages.empty()) continue;
    pieces.push_back({change.content, change.pages.size()});
    for (const std::uint16_t page : change.pages) (*change.table)[page].block = blocks.next();
  }
  const std::vector<Unit> units = cut(runs, pieces);
  const std::vector<Unit> move_units = cut(moved, {});
  const BlockReader reader(fd(), path());
  std::uint64_t total = 0;
  for (const BlockRun& run : runs) total += run.count;
  std::atomic<std::uint64_t> written{total};
  parallel_for(units.size() + move_units.size(), threads_for(total + moves.size()),
               [&](std::size_t i) {
                 if (i < units.size()) return write_unit(io_, units[i], pieces);
                 const Unit& unit = move_units[i - units.size()];
                 if (move_pages(reader, {&moves[unit.first], unit.pages}, unit.block)) {
                   written += unit.pages;
                 }
               });
  return written;
}

// Pages that cannot be read stay where they are: the commit does not need them, and who opens the
// image learns of it.
bool Image::move_pages(const BlockReader& reader, std::span<Move> moves, std::uint64_t to) const {
  const PageBuffer buffer(moves.size());
  std::vector<BlockTarget> targets;
  targets.reserve(moves.size());
  for (const Move& move : moves) {
    targets.push_back({move.from, buffer.get() + targets.size() * kPage});
  }
  try {
    if (!reader.read(targets)) return false;
  } catch (const Error&) {
    return false;
  }
  std::array<iovec, 1> part{{{buffer.get(), moves.size() * kPage}}};
  io_.gather(to * kPage, part);
  for (const Move& move : moves) move.entry->block = to++;
  return true;
}

// Writes the changed table pages, and returns the root entries that name them.
std::vector<TableEntry> Image::write_tables(const ChangeSet& changes,
                                            const std::vector<BlockRun>& runs) const {
  std::vector<TableEntry> root = root_;
  root.resize(segments_of(changes.region_bytes));
  std::vector<Piece> pieces;
  Blocks blocks(runs);
  for (const SegmentChange& change : changes.segments) {
    root[change.segment] = {};
    if (!stores_pages(*change.table)) continue;
    const auto* const bytes = reinterpret_cast<const std::byte*>(change.table->data());
    root[change.segment] = {page_hash(bytes), blocks.next()};
    pieces.push_back({bytes, 1});
  }
  const std::vector<Unit> units = cut(runs, pieces);
  parallel_for(units.size(), threads_for(pieces.size()),
               [&](std::size_t i) { write_unit(io_, units[i], pieces); });
  return root;
}

void Image::write_root(const std::vector<TableEntry>& root, unsigned slot) const {
  std::vector<TableEntry> padded = root;
  padded.resize(pages_of(padded.size() * sizeof(TableEntry)) * kPage / sizeof(TableEntry));
  io_.write(kRootOffset[slot], padded.data(), padded.size() * sizeof(TableEntry));
}

void Image::write_record(const InForce& next) const {
  CommitRecord record{};
  std::memcpy(record.magic, kRecordMagic, 8);
  record.uuid = uuid();
  record.generation = next.generation_plus_one - 1;
  record.region_bytes = next.region_bytes;
  record.root_hash = next.root_hash;
  record.root_slot = next.root_slot;
  record.pages_stored = next.pages_stored;
  record.unix_ns = next.unix_ns;
  record.blocks = next.blocks;
  record.checksum = hash_bytes(&record, offsetof(CommitRecord, checksum));
  record.end_marker = kEndMarker;
  io_.write(kRecordOffset[next.page], &record, sizeof record);
}

// Places for all that is left to be written, and a file that is long enough.
Image::Places Image::take_places(const Tally& tally, std::uint64_t moves, std::uint64_t tables) {
  Places places;
  map_->allocate(tally.staged, places.content);
  map_->allocate(moves, places.moved);
  map_->allocate(tables, places.tables);
  if (map_->end() * kPage > file_bytes_) {
    io_.resize(map_->end() * kPage);
    file_bytes_ = map_->end() * kPage;
  }
  return places;
}

WriteResult Image::write(ChangeSet changes) {
  assert(!unsettled_);
  const Tally tally = examine(changes);
  const std::size_t own_segments = changes.segments.size();
  std::vector<Move> moves = clean(changes, tally);
  const std::uint64_t tables = tally.tables + changes.segments.size() - own_segments;
  const Places places = take_places(tally, moves.size(), tables);

  WriteResult result;
  result.pages_written = tally.staged + tally.ahead;
  const std::uint64_t content = write_content(changes, places.content, moves, places.moved);
  result.pages_moved = content - tally.staged;
  std::vector<TableEntry> root = write_tables(changes, places.tables);
  const bool root_changed = !has_commit() || root != root_;
  InForce next = record_;
  next.generation_plus_one += 1;
  next.region_bytes = changes.region_bytes;
  next.root_hash = hash_bytes(root.data(), root.size() * sizeof(TableEntry));
  next.root_slot = root_changed ? 1 - record_.root_slot : record_.root_slot;
  next.pages_stored = tally.pages_stored;
  next.unix_ns = now_unix_ns();
  next.blocks = map_->end();
  next.page = 1 - record_.page;
  if (root_changed) write_root(root, next.root_slot);
  tables_.resize(root.size());  // so that nothing fails once the record is written
  io_.sync();
  unsettled_ = true;
  write_record(next);
  io_.sync();
  unsettled_ = false;

  // In force from here on. The older record goes, so that damage to the new one can never
  // quietly bring back old content. This needs no sync of its own: the next commit's first one
  // covers it, and a crash before that leaves two records, of which the newer wins.
  const bool had_commit = has_commit();
  const unsigned older = record_.page;
  put_in_force(changes, moves, std::move(root));
  record_ = next;
  result.generation = generation();
  result.bytes_written = (content + tables) * kPage + sizeof(CommitRecord) + (had_commit ? 1 : 0) +
                         (root_changed ? pages_of(root_.size() * sizeof(TableEntry)) * kPage : 0);
  if (had_commit) {
    try {
      io_.write(marker_offset(older), &kNoMarker, 1);
    } catch (const Error&) {
      unsettled_ = true;  // this commit stands; the next one tries again before all else
    }
  }
  return result;
}

// Frees what the commit replaced, and keeps what it took.
void Image::put_in_force(ChangeSet& changes, const std::vector<Move>& moves,
                         std::vector<TableEntry> root) {
  const auto replace = [&](std::uint64_t before, std::uint64_t now, BlockMap::Owner owner) {
    if (before == now) return;
    if (before != 0) map_->release(before);
    if (now != 0) map_->keep(now, owner);
  };
  for (const Move& move : moves) replace(move.from, move.entry->block, BlockMap::page(move.page));
  for (const SegmentChange& change : changes.segments) {
    const std::uint64_t first = change.segment * kSegmentPages;
    for (const auto* const pages : {&change.pages, &change.zeroed}) {
      for (const std::uint16_t page : *pages) {
        replace(entry(first + page).block, (*change.table)[page].block,
                BlockMap::page(first + page));
      }
    }
    const std::uint64_t segment = change.segment;
    replace(segment < root_.size() ? root_[segment].block : 0, root[segment].block,
            BlockMap::table(segment));
  }
  for (SegmentChange& change : changes.segments) {
    auto& table = tables_[change.segment];
    table = root[change.segment].block != 0 ? std::move(change.table) : nullptr;
  }
  root_ = std::move(root);
}

}  // namespace holdfast::core
