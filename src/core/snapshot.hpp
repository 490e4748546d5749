// Finding the pages that changed since the last commit, and copying them aside.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/directory.hpp"
#include "core/image.hpp"

namespace holdfast::core {

// Memory for copies of changed pages, bounded, reused from commit to commit.
class StagingBuffer {
 public:
  explicit StagingBuffer(std::uint64_t pages);
  ~StagingBuffer();
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;

  void clear() { used_.store(0); }
  // Room for that many pages, or null if there is none. Thread safety: any number of threads.
  std::byte* reserve(std::uint64_t pages);

 private:
  std::byte* memory_ = nullptr;
  std::uint64_t pages_ = 0;
  std::atomic<std::uint64_t> used_{0};
};

struct SnapshotInput {
  const std::byte* region = nullptr;
  const Directory* directory = nullptr;
  const std::vector<std::uint8_t>* marks = nullptr;  // a byte per page of the region
  bool compare_everything = false;                   // marks are not to be relied on
};

struct Snapshot {
  ChangeSet changes;
  std::uint64_t pages_examined = 0;
  std::uint64_t bytes_written = 0;  // pages that found no room and went straight to the image
};

// Compares the region with the image's tables. Pages that changed are copied into `staging`;
// what does not fit there is written to the image at once. Free space, and what commits leave out,
// counts as zero.
// Throws no_space or io. REQUIRES: no one changes the directory meanwhile. A page that is
// written meanwhile is taken in some state between.
Snapshot take_snapshot(const SnapshotInput& input, Image& image, StagingBuffer& staging);

}  // namespace holdfast::core
