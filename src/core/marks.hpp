// Which pages have been written since the last commit, as far as the writers say so.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "holdfast/page_marks.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::core {

// A byte per page twice: in device memory, set by kernels, and on the host.
//
// Thread safety: mark() and take() under the region's mutex; fetch() one thread at a time.
class MarkMap {
 public:
  // Throws no_memory.
  MarkMap(std::uint64_t max_pages, const std::byte* base);
  ~MarkMap();
  MarkMap(const MarkMap&) = delete;
  MarkMap& operator=(const MarkMap&) = delete;

  PageMarks device_view() const { return {map_, base_}; }
  void mark(std::uint64_t first_page, std::uint64_t last_page);

  // Queues a copy of the device's marks to the host and clears them. It waits for the previous
  // fetch's taken() mark, on whatever stream that was.
  void fetch(Stream& stream, std::uint64_t pages);
  // Queues, behind the host function that calls take(), what the next fetch() waits for.
  void taken(Stream& stream);
  // The marks of both sides; the host's are cleared. REQUIRES: behind fetch() in its stream.
  std::vector<std::uint8_t> take(std::uint64_t pages, bool with_device);

 private:
  std::uint8_t* map_ = nullptr;      // device memory
  std::uint8_t* fetched_ = nullptr;  // pinned
  const std::byte* base_ = nullptr;
  std::vector<std::uint8_t> host_;
  std::unique_ptr<Event> taken_;
};

}  // namespace holdfast::core
