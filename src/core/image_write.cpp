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

using detail::concat;

namespace {

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

void write_unit(BlockStore& store, const Unit& unit, const std::vector<Piece>& pieces) {
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
  store.write_parts(unit.block * kPage, {parts.data(), count});
}

// Few pages are written faster than threads are started.
unsigned threads_for(std::uint64_t pages, const BlockStore& store) {
  return pages < 1024 ? 1 : std::min(store.writers(), worker_count());
}

bool stores_pages(const TablePage& table) {
  return std::any_of(table.begin(), table.end(),
                     [](const auto& entry) { return entry.block != 0; });
}

std::uint64_t now_unix_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

// What fails from `body` leaves the image with the commit that it had.
template <class Body>
auto keeping_the_commit(Body&& body) {
  try {
    return body();
  } catch (const Error& error) {
    throw Error(error.code(), concat(error.what(), "; the image still holds the previous commit"));
  }
}

void Image::write_record(const CommitRecord& record, unsigned page) const {
  store_->write(kRecordOffset[page], &record, sizeof record);
}

void Image::clear_record(unsigned page) const { write_record(CommitRecord{}, page); }

// What a failed sync was to write may never be: the record that was taken back among it.
void Image::sync() {
  try {
    store_->sync();
    note_synced_ = true;
  } catch (...) {
    unsettled_ = true;
    note_synced_ = false;
    throw;
  }
}

void Image::write_note(const ArenaNote& note) {
  ArenaNote next = note;
  std::memcpy(next.magic, kNoteMagic, 8);
  next.sequence = note_ ? note_->sequence + 1 : 1;
  unsigned slot = note_synced_ ? 1 - note_slot_ : note_slot_;
  if (next.sequence > kMaxGeneration) {  // forged: begin anew, with the other one gone
    slot = 1 - note_slot_;
    store_->write(kNoteOffset[note_slot_], ArenaNote{}.magic, sizeof next.magic);
    next.sequence = 1;
  }
  next.checksum = hash_bytes(&next, offsetof(ArenaNote, checksum));
  note_synced_ = false;
  store_->write(kNoteOffset[slot], &next, sizeof next);
  note_ = next;
  note_slot_ = slot;
}

void Image::make_durable() {
  write_record(written_, record_.page);
  sync();
  store_->sync_name();
  // The other page follows when the next commit begins: with both on their way at once, a power cut
  // could tear both.
  unsettled_ = true;
}

void Image::is_durable() { clear_record(1 - record_.page); }

void Image::check_in_place() const { store_->check_in_place(record_.blocks * kPage); }

void Image::check_no_one_else_wrote() const {
  CommitRecord now[2];
  for (unsigned page = 0; page < 2; ++page) {
    if (store_->read(kRecordOffset[page], &now[page], sizeof now[page])) continue;
    throw Error(Errc::damaged, concat("'", path(), "' was cut off while it was open"));
  }
  if (std::memcmp(&now[record_.page], &written_, sizeof written_) == 0 &&
      (unsettled_ || !counts(now[1 - record_.page]))) {
    return;
  }
  throw Error(Errc::in_use,
              concat("another process has committed to '", path(),
                     "' since: the locks of its file system do not keep it out; nothing was "
                     "written. End one of the two, and use a local file system"));
}

void Image::settle() {
  if (has_commit()) {
    check_in_place();
    check_no_one_else_wrote();
  }
  if (unsettled_) {
    keeping_the_commit([&] {
      clear_record(1 - record_.page);
      if (note_) rewrite_note();
      sync();
    });
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
  keeping_the_commit([&] {
    for (const Unit& unit : cut(runs, pieces)) write_unit(*store_, unit, pieces);
  });
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
  const BlockReader reader(*store_);
  std::uint64_t total = 0;
  for (const BlockRun& run : runs) total += run.count;
  std::atomic<std::uint64_t> written{total};
  parallel_for(units.size() + move_units.size(), threads_for(total + moves.size(), *store_),
               [&](std::size_t i) {
                 if (i < units.size()) return write_unit(*store_, units[i], pieces);
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
  store_->write_parts(to * kPage, part);
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
    root[change.segment] = {hash_(bytes), blocks.next()};
    pieces.push_back({bytes, 1});
  }
  const std::vector<Unit> units = cut(runs, pieces);
  parallel_for(units.size(), threads_for(pieces.size(), *store_),
               [&](std::size_t i) { write_unit(*store_, units[i], pieces); });
  return root;
}

void Image::write_root(const std::vector<TableEntry>& root, unsigned slot) const {
  std::vector<TableEntry> padded = root;
  padded.resize(pages_of(padded.size() * sizeof(TableEntry)) * kPage / sizeof(TableEntry));
  store_->write(kRootOffset[slot], padded.data(), padded.size() * sizeof(TableEntry));
}

// Places for all that is left to be written, and a file that is long enough.
Image::Places Image::take_places(const Tally& tally, std::uint64_t moves, std::uint64_t tables) {
  Places places;
  map_->allocate(tally.staged, places.content);
  map_->allocate(moves, places.moved);
  map_->allocate(tables, places.tables);
  if (map_->end() * kPage > file_bytes_) {
    store_->resize(map_->end() * kPage);
    file_bytes_ = map_->end() * kPage;
  }
  return places;
}

// The steps up to the record: nothing that the commit in force refers to is touched.
Image::Prepared Image::prepare(ChangeSet& changes) {
  if (record_.generation_plus_one > kMaxGeneration) {
    throw Error(Errc::unsupported, concat("'", path(),
                                          "' has had all the commits that it can have; "
                                          "make a region of it: holdfast backup"));
  }
  const Tally tally = examine(changes);
  const std::size_t own_segments = changes.segments.size();
  Prepared ready;
  ready.moves = clean(changes, tally);
  const std::uint64_t tables = tally.tables + changes.segments.size() - own_segments;
  const Places places = take_places(tally, ready.moves.size(), tables);
  const std::uint64_t content = write_content(changes, places.content, ready.moves, places.moved);
  ready.root = write_tables(changes, places.tables);
  const bool root_changed = !has_commit() || ready.root != root_;
  const std::size_t root_bytes = ready.root.size() * sizeof(TableEntry);
  InForce& next = ready.next;
  next = record_;
  next.generation_plus_one += 1;
  next.region_bytes = changes.region_bytes;
  next.root_hash = hash_.bytes(ready.root.data(), root_bytes);
  next.root_slot = root_changed ? 1 - record_.root_slot : record_.root_slot;
  next.pages_stored = tally.pages_stored;
  next.unix_ns = now_unix_ns();
  next.blocks = map_->end();
  next.page = 1 - record_.page;
  if (root_changed) write_root(ready.root, next.root_slot);
  tables_.resize(ready.root.size());  // so that nothing fails once the record is written
  sync();
  ready.result.generation = next.generation_plus_one - 1;
  ready.result.pages_written = tally.staged + tally.ahead;
  ready.result.pages_moved = content - tally.staged;
  ready.result.bytes_written = (content + tables) * kPage + 2 * sizeof(CommitRecord) +
                               (root_changed ? pages_of(root_bytes) * kPage : 0);
  return ready;
}

CommitRecord Image::record_of(const InForce& next, const Uuid& commit_id) const {
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
  record.commit_id = commit_id;
  record.checksum = hash_bytes(&record, offsetof(CommitRecord, checksum));
  record.end_marker = kEndMarker;
  return record;
}

WriteResult Image::write(ChangeSet changes, const Uuid& commit_id) {
  assert(!unsettled_);
  Prepared ready = keeping_the_commit([&] { return prepare(changes); });
  const CommitRecord record = record_of(ready.next, commit_id);
  unsettled_ = true;
  try {
    write_record(record, ready.next.page);
    sync();
  } catch (const Error& error) {
    throw Error(error.code(), concat(error.what(),
                                     "; the image holds this commit or the previous one, which of "
                                     "them is not known. The region is as it was: commit again"));
  }
  unsettled_ = false;

  // In force from here on. The older record goes, so that damage to the new one can never
  // quietly bring back old content. This needs no sync of its own: the next commit's first one
  // covers it, and a crash before that leaves two records, of which the newer wins.
  const bool had_commit = has_commit();
  const unsigned older = record_.page;
  put_in_force(changes, ready.moves, std::move(ready.root));
  record_ = ready.next;
  written_ = record;
  if (had_commit) {
    try {
      clear_record(older);
    } catch (const Error&) {
      unsettled_ = true;  // this commit stands; the next one tries again before all else
    }
  }
  return ready.result;
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
