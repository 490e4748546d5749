// Reserved pinned memory through which checkpoints go past the caches: between storage and the
// program's arrays, or a cache that is not the next one.
//
// Slots of a chunk each: while storage has some, the copy engine has others. To storage two take
// turns. From storage as many threads as there are slots read: one alone leaves a disk idle.
// Thread safety: one transfer at a time; others wait.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "history/step_file.hpp"
#include "history/step_store.hpp"
#include "holdfast/stream.hpp"

namespace holdfast::history {

// A piece of a blob in memory that copies can reach.
struct Piece {
  std::uint64_t offset = 0;  // in the blob
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
};

class Bounce {
 public:
  static constexpr std::size_t kMostSlots = 4;
  // Two at least.
  explicit Bounce(std::size_t slots) : count_(slots), slots_(slots * kChunkBytes) {}

  // As StepStore::write() and read(). Pieces are in the order of their offsets and apart; what lies
  // between them is zero. The copies are on `stream`, behind what is queued there; all have ended
  // on return, after a throw, too.
  bool write(StepStore& store, const StepInfo& info, const std::vector<Piece>& pieces,
             Stream& stream, const StepStore::Pace& pace);
  bool read(StepStore& store, Step step, const std::vector<Piece>& pieces, Stream& stream,
            const StepStore::Pace& pace);

 private:
  std::byte* slot(std::size_t i) const { return slots_.data() + i * kChunkBytes; }

  std::mutex mutex_;
  const std::size_t count_;
  PinnedBuffer<std::byte> slots_;
  Event copied_[kMostSlots];
};

}  // namespace holdfast::history
