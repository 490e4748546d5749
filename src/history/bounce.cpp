#include "history/bounce.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <optional>
#include <string>

namespace holdfast::history {

namespace {

// body(in the chunk, in a piece's memory, bytes) for what pieces have of [offset, offset + bytes).
template <class Body>
void for_each_overlap(const std::vector<Piece>& pieces, std::uint64_t offset, std::uint64_t bytes,
                      Body&& body) {
  for (const Piece& piece : pieces) {
    const std::uint64_t begin = std::max(offset, piece.offset);
    const std::uint64_t end = std::min(offset + bytes, piece.offset + piece.bytes);
    if (begin < end) body(begin - offset, piece.data + (begin - piece.offset), end - begin);
  }
}

// A store may have smaller chunks than a slot, and a file may claim larger ones.
void check_chunk(std::uint64_t bytes) {
  if (bytes <= kChunkBytes) return;
  throw Error(Errc::unsupported,
              holdfast::detail::concat("a file with chunks of ", bytes, " bytes: this library has ",
                                       kChunkBytes, "; read it by way of a cache in host memory"));
}

// Copies that were queued read and write memory of others: whatever happens, they end first.
class EndsCopies {
 public:
  explicit EndsCopies(Stream& stream) : stream_(stream) {}
  ~EndsCopies() {
    try {
      stream_.synchronize();
    } catch (...) {  // who uses the stream next hears of it
    }
  }
  EndsCopies(const EndsCopies&) = delete;
  EndsCopies& operator=(const EndsCopies&) = delete;

 private:
  Stream& stream_;
};

}  // namespace

bool Bounce::write(StepStore& store, const StepInfo& info, const std::vector<Piece>& pieces,
                   Stream& stream, const StepStore::Pace& pace) {
  const std::lock_guard lock(mutex_);
  const EndsCopies end(stream);
  std::uint64_t begun = 0;  // bytes of the blob whose copies are queued
  std::size_t next = 0;     // slot of the next copy, of the first two
  const auto begin_copy = [&] {
    if (begun >= info.bytes) return;
    const std::uint64_t bytes = std::min<std::uint64_t>(kChunkBytes, info.bytes - begun);
    std::uint64_t covered = 0;
    for_each_overlap(pieces, begun, bytes,
                     [&](std::uint64_t, std::byte*, std::uint64_t count) { covered += count; });
    if (covered < bytes) std::memset(slot(next), 0, bytes);
    for_each_overlap(pieces, begun, bytes,
                     [&](std::uint64_t at, std::byte* data, std::uint64_t count) {
                       copy_async(stream, slot(next) + at, data, count);
                     });
    copied_[next].record(stream);
    begun += bytes;
    next = 1 - next;
  };
  begin_copy();
  std::optional<std::size_t> current;
  std::uint64_t slot_begin = 0;  // of the current slot, in the blob
  return store.write_chunks(
      info,
      [&](std::uint64_t offset, std::uint64_t bytes) {
        check_chunk(bytes);
        if (current && offset < slot_begin) {  // a store that wants everything again
          begun = offset;
          current.reset();
          begin_copy();
        }
        if (!current || offset >= slot_begin + kChunkBytes) {
          current = 1 - next;
          slot_begin = offset;
          begin_copy();  // storage is done with that slot
          copied_[*current].synchronize();
        }
        return std::span<const std::byte>(slot(*current) + (offset - slot_begin), bytes);
      },
      pace, {});
}

bool Bounce::read(StepStore& store, Step step, const std::vector<Piece>& pieces, Stream& stream,
                  const StepStore::Pace& pace) {
  const std::lock_guard lock(mutex_);
  const EndsCopies end(stream);
  std::mutex of_slots;              // and of the stream
  std::deque<std::size_t> resting;  // those whose copies were queued first in front
  bool busy[kMostSlots] = {};
  for (std::size_t i = 0; i < count_; ++i) resting.push_back(i);
  return store.read_chunks(
      step,
      [&](std::uint64_t, std::uint64_t bytes) {
        check_chunk(bytes);
        std::unique_lock turn(of_slots);
        const std::size_t own = resting.front();  // each thread has one at a time
        resting.pop_front();
        turn.unlock();
        if (busy[own]) copied_[own].synchronize();
        return std::span<std::byte>(slot(own), kChunkBytes);
      },
      [&](std::uint64_t offset, std::span<const std::byte> chunk) {
        const auto own = static_cast<std::size_t>(chunk.data() - slots_.data()) / kChunkBytes;
        const std::lock_guard turn(of_slots);
        for_each_overlap(pieces, offset, chunk.size(),
                         [&](std::uint64_t at, std::byte* data, std::uint64_t count) {
                           copy_async(stream, data, chunk.data() + at, count);
                         });
        copied_[own].record(stream);
        busy[own] = true;
        resting.push_back(own);
      },
      pace, static_cast<unsigned>(count_));
}

}  // namespace holdfast::history
