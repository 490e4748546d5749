// Moves the blob of a step between memory and its file, chunk by chunk over a few threads, each of
// which hashes a chunk and moves it: so the hashing of one goes on beside the moving of the others.
//
// Threads and pwrite() rather than io_uring: docs/format.md ("Histories") says why.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "history/folder.hpp"
#include "history/step_file.hpp"
#include "history/step_store.hpp"

namespace holdfast::history {

// How steps are moved; what others than the defaults are for is tests and measurements.
struct TransferOptions {
  std::uint32_t chunk_bytes = kChunkBytes;  // a power of two, at least a page
  unsigned threads = 4;                     // with one a transfer is a fixed sequence of operations
};

// One transfer. Aligned memory is moved as it stands, all but the last page; other memory goes
// through a buffer of a chunk for each thread.
class BlobTransfer {
 public:
  BlobTransfer(FolderFile& file, std::string path, unsigned threads, const StepStore::Pace& pace);

  // Writes all chunks and zeroes up to the end of the last page, and notes the hashes in `front`.
  // False: the pace gave up. Throws no_space (without what is needed: the caller knows), io.
  bool write(Front& front, std::span<const std::byte> blob);
  // The same of chunks that `fill` gives. REQUIRES: one thread.
  bool write(Front& front, const StepStore::Fill& fill);
  // Reads and checks all chunks; into nowhere if `into` is empty. False: the pace gave up. Throws
  // damaged, io.
  bool read(const Front& front, std::span<std::byte> into);
  // The same into what `room` gives. REQUIRES: one thread.
  bool read(const Front& front, const StepStore::Room& room, const StepStore::Take& take);
  // Bytes of the blob from `offset` on, through memory of its own where they are no whole chunks.
  // REQUIRES: they are within the blob. Throws as read().
  void read_range(const Front& front, std::uint64_t offset, std::span<std::byte> into);

 private:
  class Buffers;
  template <class Body>
  bool for_each_chunk(const Front& front, Body&& body);
  bool keep_pace(std::uint64_t bytes_done);
  void write_chunk(Front& front, std::uint64_t chunk, std::span<const std::byte> from,
                   Buffers& buffers);
  // Into nowhere if `to` is empty; it may be larger than the chunk, up to a page for the last one's
  // padding.
  void read_chunk(const Front& front, std::uint64_t chunk, std::span<std::byte> to,
                  Buffers& buffers);

  FolderFile& file_;
  const std::string path_;
  const unsigned threads_;
  const StepStore::Pace& pace_;
  std::mutex mutex_;  // over the pace
  std::uint64_t bytes_done_ = 0;
  bool gave_up_ = false;
};

}  // namespace holdfast::history
