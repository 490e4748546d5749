// Writing a commit into an image. docs/format.md, "A commit", has the order and why.
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstring>

#include "core/checksum.hpp"
#include "core/image.hpp"
#include "core/parallel.hpp"

namespace holdfast::core {

// What the image will be.
struct Image::Pending {
  InForce record;
  std::vector<std::uint64_t> root;
  bool root_changed = false;
};

std::uint64_t Image::write_pages(const SegmentChange& change, const std::byte* content) const {
  const std::uint64_t first = change.segment * kSegmentPages;
  const auto& pages = change.pages;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < pages.size();) {
    const unsigned slot = entry_slot((*change.table)[pages[i]]);
    std::size_t end = i + 1;
    while (end < pages.size() && pages[end] == pages[i] + (end - i) &&
           entry_slot((*change.table)[pages[end]]) == slot) {
      ++end;
    }
    io_.write(page_offset(first + pages[i], slot), content + i * kPage, (end - i) * kPage);
    bytes += (end - i) * kPage;
    i = end;
  }
  return bytes;
}

Image::Pending Image::prepare(const ChangeSet& changes) const {
  Pending pending;
  pending.root = root_;
  pending.root.resize(segments_of(changes.region_bytes), 0);
  pending.record = record_;
  for (const SegmentChange& change : changes.segments) {
    std::uint64_t& entry = pending.root[change.segment];
    const std::uint64_t plain = page_entry(change.table->data());
    entry = plain == 0 ? 0 : plain | free_slot(entry);
    for (std::uint64_t i = 0; i < kSegmentPages; ++i) {
      const std::uint64_t before = this->entry(change.segment * kSegmentPages + i);
      pending.record.pages_stored += ((*change.table)[i] != 0) - (before != 0);
    }
  }
  pending.root_changed = !has_commit() || pending.root != root_;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  InForce& record = pending.record;
  record.generation_plus_one += 1;
  record.region_bytes = changes.region_bytes;
  record.root_hash = hash_bytes(pending.root.data(), pending.root.size() * 8);
  record.root_slot = pending.root_changed ? 1 - record_.root_slot : record_.root_slot;
  record.unix_ns = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
                   static_cast<std::uint64_t>(now.tv_nsec);
  record.page = 1 - record_.page;
  return pending;
}

void Image::write_root(const Pending& pending) {
  if (!pending.root_changed) return;
  std::vector<std::uint64_t> padded = pending.root;
  padded.resize(pages_of(padded.size() * 8) * kPage / 8, 0);
  io_.write(kRootOffset[pending.record.root_slot], padded.data(), padded.size() * 8);
}

void Image::write_record(const Pending& pending) {
  CommitRecord record{};
  std::memcpy(record.magic, kRecordMagic, 8);
  record.uuid = uuid();
  record.generation = pending.record.generation_plus_one - 1;
  record.region_bytes = pending.record.region_bytes;
  record.root_hash = pending.record.root_hash;
  record.root_slot = pending.record.root_slot;
  record.pages_stored = pending.record.pages_stored;
  record.unix_ns = pending.record.unix_ns;
  record.checksum = hash_bytes(&record, offsetof(CommitRecord, checksum));
  record.end_marker = kEndMarker;
  io_.write(kRecordOffset[pending.record.page], &record, sizeof record);
}

namespace {

constexpr std::uint8_t kNoMarker = 0;

std::uint64_t marker_offset(unsigned page) {
  return kRecordOffset[page] + offsetof(CommitRecord, end_marker);
}

}  // namespace

void Image::settle() {
  if (!unsettled_) return;
  io_.write(marker_offset(1 - record_.page), &kNoMarker, 1);
  io_.sync();
  unsettled_ = false;
}

WriteResult Image::write(const ChangeSet& changes) {
  settle();
  if (image_bytes(changes.region_bytes) > file_bytes_) {
    io_.resize(image_bytes(changes.region_bytes));
    file_bytes_ = image_bytes(changes.region_bytes);
  }
  std::atomic<std::uint64_t> bytes{0};
  WriteResult result;
  std::uint64_t staged = 0;
  for (const SegmentChange& change : changes.segments) {
    result.pages_written += change.pages.size();
    if (change.content != nullptr) staged += change.pages.size();
  }
  const Pending pending = prepare(changes);
  // Few pages are written faster than threads are started.
  const unsigned threads =
      staged < 1024 || ImageIo::tap.load() != nullptr ? 1 : std::min(4u, worker_count());
  parallel_for(changes.segments.size(), threads, [&](std::size_t i) {
    const SegmentChange& change = changes.segments[i];
    if (change.content != nullptr) bytes += write_pages(change, change.content);
    const std::uint64_t entry = pending.root[change.segment];
    if (entry == 0) return;
    io_.write(table_offset(change.segment, entry_slot(entry)), change.table->data(), kPage);
    bytes += kPage;
  });
  write_root(pending);
  io_.sync();
  unsettled_ = true;
  write_record(pending);
  io_.sync();
  unsettled_ = false;

  // In force from here on. The older record goes, so that damage to the new one can never
  // quietly bring back old content. This needs no sync of its own: the next commit's first one
  // covers it, and a crash before that leaves two records, of which the newer wins.
  const bool had_commit = has_commit();
  const unsigned older = record_.page;
  record_ = pending.record;
  root_ = pending.root;
  table_.resize(root_.size() * kSegmentPages, 0);
  for (const SegmentChange& change : changes.segments) {
    std::copy(change.table->begin(), change.table->end(),
              table_.begin() + static_cast<std::ptrdiff_t>(change.segment * kSegmentPages));
  }
  result.generation = generation();
  result.bytes_written = bytes + sizeof(CommitRecord) + (had_commit ? 1 : 0) +
                         (pending.root_changed ? pages_of(root_.size() * 8) * kPage : 0);
  if (had_commit) {
    try {
      io_.write(marker_offset(older), &kNoMarker, 1);
    } catch (const Error&) {
      unsettled_ = true;  // this commit stands; the next one tries again before all else
    }
  }
  return result;
}

}  // namespace holdfast::core
