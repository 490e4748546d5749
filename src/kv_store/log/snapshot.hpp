// Snapshots: which records of a segment are live. Opening then needs none of the others, and no
// header of the segment but the first.
//
// A record that is dead stays so. So a snapshot stays sound, whatever happens beside it, as long as
// its segment is not made free; and none depends on another. docs/kv-log.md.
#pragma once

#include <cstdint>

#include "kv_store/log/batch.hpp"

namespace holdfast::kv::log {

// Of which segments snapshots are taken, in one launch.
struct SnapshotList {
  static constexpr std::uint32_t kMost = 96;  // a kernel's arguments take no more
  struct Entry {
    std::uint64_t oldest;  // run in it
    std::uint64_t newest;
    std::uint32_t oldest_piece;
    std::uint32_t segment;
  };
  std::uint64_t run;  // the last one; the index is as it left it
  std::uint32_t count;
  Entry entries[kMost];
};

// Bytes that one stores.
inline std::uint64_t snapshot_bytes(std::uint32_t segment_records) {
  return snapshot_words(segment_records) * sizeof(SnapshotWord) + sizeof(SnapshotHeader::check);
}

// Takes them, each by one block. A crash leaves the old one, the new one or none. Stream-ordered.
// REQUIRES: the segments are not free, and no run will reach into them.
template <class Form>
void launch_snapshots(Stream& stream, const Medium& medium, const Form& index,
                      SnapshotWord* snapshots, const SnapshotList& list);

// Makes those of all segments count no longer. Stream-ordered.
void launch_forget(Stream& stream, const Medium& medium, SnapshotWord* snapshots,
                   const LogParameters& shape);

// How many live records are not, or not as they are, in the snapshots of their segments. `taken`:
// by segment, not 0 where there is one that counts. Waits for the stream.
template <class Form>
std::uint64_t count_missing(Stream& stream, const Form& index, const SnapshotWord* snapshots,
                            const std::vector<std::uint64_t>& taken);

}  // namespace holdfast::kv::log
