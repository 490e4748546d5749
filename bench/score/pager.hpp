// Demand paging: a bounded cache of 2 MiB pages in device memory, over a bounded one in pinned
// memory, over a file. It stands for unified memory, which is not used (oversubscribed, it can hang
// a GPU that others share), and is tuned as the paper tunes that (section 5.2.2):
// - what was written is copied to the host behind the program's back, so that an eviction seldom
//   has to wait for its copy (the preferred location of a saved checkpoint is the host);
// - what was restored is evicted first; then the least recently used;
// - hinted checkpoints are prefetched in their order, and what was prefetched and not restored
// stays;
//   the prefetching waits while that fills the cache.
// It is given what unified memory lacks: a miss goes straight from pinned memory to the program's
// array, without a fault for each page; neighbours move by one copy; the disk is read ahead, too,
// and written only as far as the host part is exceeded, or a flush() asks for it.
//
// What it does not have is what it is compared for: it evicts pages by age, not by the restore
// order, and does not know which window would be free first.
//
// Invariants: a page that was saved and not discarded is in a frame or in the file; a frame that a
// copy uses is pinned and stays; a page leaves the GPU only if the host or the file has it, and the
// host only if the file has it.
//
// Threads: the program's; the write-back to the host; the writer to the file; prefetch to the host
// and to the GPU. One mutex over all tables; no bytes move under it.
//
// Tested: every restored snapshot's words are compared on the device by whoever runs a shot.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "files.hpp"
#include "frames.hpp"
#include "store.hpp"

namespace score {

class Pager final : public Store {
 public:
  // Throws invalid_argument: a memory of less than four pages.
  explicit Pager(const StoreOptions& options);
  ~Pager() override;

  void save(Step step, holdfast::Stream& stream) override;
  void restore(Step step, holdfast::Stream& stream) override;
  void hint(std::span<const Step> steps) override;
  void prefetch_start() override;
  void flush() override;
  std::uint64_t ready(std::span<const Step> next) override;
  StoreCounts counts() override;

 private:
  using Lock = std::unique_lock<std::mutex>;
  enum Memory : int { kGpu, kHost };
  static constexpr std::uint32_t kNone = Frames::kNone;

  struct Copy {  // of a page in one memory
    std::uint32_t frame = kNone;
    std::uint16_t pins = 0;  // copies under way that use the frame
    bool coming = false;     // its bytes are not there yet
    bool ahead = false;      // prefetched, and not restored yet
    bool whole() const { return frame != kNone && !coming; }
  };
  struct Page {
    Copy in[2];
    bool in_file = false;
    bool consumed = false;
    std::uint64_t used = 0;  // by a clock
  };
  struct Extent {  // the pages of a step
    std::uint32_t first, count;
  };
  using Pinned = std::vector<std::pair<Memory, std::uint32_t>>;  // pages
  struct Move {  // bytes that stand side by side at both ends
    std::byte* to;
    const std::byte* from;
    std::uint64_t bytes;
  };

  // --- Under the mutex
  std::byte* address(Memory memory, std::uint32_t frame) const;
  std::uint64_t bytes_of(Step step, std::uint32_t page) const;
  // Frames for these pages, from the first on, as many as there can be now: free ones, or evicted
  // ones. Their pages are pinned, and `coming`.
  std::uint32_t take_frames(Memory memory, const std::vector<std::uint32_t>& pages, bool demand);
  void evict(Memory memory, std::uint64_t wanted, bool demand);
  void drop(Memory memory, std::uint32_t page);
  void arrived(Memory memory, std::uint32_t page);
  void unpin(Memory memory, std::uint32_t page) { --pages_[page].in[memory].pins; }
  void set_ahead(Memory memory, std::uint32_t page, bool ahead);
  std::vector<std::uint32_t> missing(Memory memory, Step step) const;
  void fail(std::exception_ptr error);
  void check() const;

  // --- Without it
  static void add(std::vector<Move>& moves, std::byte* to, const std::byte* from,
                  std::uint64_t bytes);
  static void queue(holdfast::Stream& stream, const std::vector<Move>& moves);
  void read_file(const std::vector<std::uint32_t>& pages);

  void release(Lock& lock, Pinned& pinned, holdfast::Stream& stream);
  void restore_missing(Lock& lock, Step step, std::vector<std::uint32_t> pages, Pinned& pinned,
                       holdfast::Stream& stream);
  void consume(Step step);

  template <class Body>
  void start(Body body);
  bool write_back(Lock& lock, holdfast::Stream& stream);
  bool write_file(Lock& lock);
  bool prefetch_to_host(Lock& lock);
  bool prefetch_to_gpu(Lock& lock, holdfast::Stream& stream);

  const StoreOptions options_;
  const std::uint64_t page_bytes_;
  std::vector<Extent> extents_;
  holdfast::DeviceBuffer<std::byte> gpu_;
  holdfast::PinnedBuffer<std::byte> host_;
  DirectFile file_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Page> pages_;
  std::vector<Step> steps_;  // of each page
  Frames frames_[2];
  std::uint64_t ahead_[2] = {};          // pages
  std::deque<std::uint32_t> unsaved_;    // pages that the host has not got yet, by age
  std::deque<std::uint32_t> unwritten_;  // pages that the host has and the file has not, by age
  std::uint64_t saving_ = 0;             // pages on their way to the host or to the file
  std::vector<Step> hints_;
  std::size_t next_[2] = {};  // hint that is to be prefetched next
  std::uint64_t clock_ = 0;
  StoreCounts counts_;
  std::exception_ptr error_;
  bool prefetching_ = false, flushing_ = false, stopping_ = false;
  bool save_waits_ = false;  // for the host, which may be full of what was read ahead
  Step restoring_ = ~Step{0};
  std::vector<std::thread> threads_;
};

}  // namespace score
