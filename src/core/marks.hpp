// Which pages have been written since the last commit, as far as the writers say so.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "holdfast/page_marks.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::core {

// Of the backend: queues the clearing of the bytes of `map` that are set in `copy`, and leaves the
// others to those who set them meanwhile. Device memory both.
void clear_copied(Stream& stream, std::uint8_t* map, const std::uint8_t* copy, std::size_t bytes);
// Makes ready what that needs, so that it does not wait for the device.
void load_clear_copied();

// A byte per page twice: in device memory, set by kernels, and on the host.
//
// Thread safety: mark() and take() under the region's mutex; fetch() one thread at a time.
class MarkMap {
 public:
  // Throws no_memory.
  MarkMap(std::uint64_t max_pages, const std::byte* base);

  PageMarks device_view() const { return {map_.data(), base_}; }
  void mark(std::uint64_t first_page, std::uint64_t last_page);

  // Queues a copy of the device's marks to the host and clears those. A mark that is set meanwhile
  // is in the copy, or stays for the next one. It waits for the previous fetch's taken() mark, on
  // whatever stream that was. If that stream has failed, `*failed` is true by then, and this one
  // goes on: one commit that fails must not take those of other streams along.
  void fetch(Stream& stream, std::uint64_t pages, const std::shared_ptr<std::atomic<bool>>& failed);
  // Queues, behind the host function that calls take(), what the next fetch() waits for.
  void taken(Stream& stream);
  // The marks of both sides; the host's are cleared. REQUIRES: behind fetch() in its stream.
  std::vector<std::uint8_t> take(std::uint64_t pages, bool with_device);

 private:
  DeviceBuffer<std::uint8_t> map_;
  DeviceBuffer<std::uint8_t> copy_;  // what the last fetch has seen, and cleared
  PinnedBuffer<std::uint8_t> fetched_;
  const std::byte* base_ = nullptr;
  std::vector<std::uint8_t> host_;
  std::unique_ptr<Event> taken_;
};

}  // namespace holdfast::core
