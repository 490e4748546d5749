// What keeps the snapshots of a shot: a history, or a baseline. One interface, so that every one of
// them goes through the very same loop and clocks.
//
// The array that is saved and restored is one, in device memory; a snapshot is its first `bytes`.
// A call may return before its copies have ended, as long as they are in the stream's order.
//
// Thread safety: one thread calls. Errors: holdfast::Error, from any call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "holdfast/stream.hpp"

namespace score {

using Step = std::uint64_t;

struct StoreOptions {
  std::byte* array = nullptr;             // in device memory
  std::vector<std::uint64_t> step_bytes;  // of the shot's snapshots
  std::uint64_t gpu_bytes = 0;            // of caches
  std::uint64_t host_bytes = 0;
  std::uint64_t page_bytes = 0;  // of the pager
  std::string folder;            // an empty one
  // What was restored is not wanted again, on disk neither (section 2, condition 5).
  bool discard_consumed = false;
};

struct StoreCounts {
  std::uint64_t restored_bytes[3] = {};  // from the GPU, the host, the disk
  std::uint64_t fetched_bytes[2] = {};   // ahead, to the GPU and to the host; of a history
  std::uint64_t waits = 0;               // of saves and restores, for room or for a transfer
  std::uint64_t pinned_bytes = 0;
};

class Store {
 public:
  virtual ~Store() = default;
  virtual void save(Step step, holdfast::Stream& stream) = 0;
  virtual void restore(Step step, holdfast::Stream& stream) = 0;
  // The program will restore these next, behind those of earlier calls.
  virtual void hint(std::span<const Step> steps) = 0;
  virtual void prefetch_start() = 0;
  // Returns once everything saved is on disk, and synced.
  virtual void flush() = 0;
  // How many of the next restores, in a row, the GPU has ready.
  virtual std::uint64_t ready(std::span<const Step> next) = 0;
  virtual StoreCounts counts() = 0;
};

std::unique_ptr<Store> open_history(const StoreOptions& options);
// A bounded cache of pages with demand copies and prefetch (pager.hpp).
std::unique_ptr<Store> open_pager(const StoreOptions& options);
// Two pinned buffers and a file for each snapshot (buffers.cpp).
std::unique_ptr<Store> open_buffers(const StoreOptions& options);

}  // namespace score
