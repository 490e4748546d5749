#include "history/bounce.hpp"

#include <algorithm>
#include <cstring>
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
  int next = 0;             // slot of the next copy
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
  int current = -1;
  std::uint64_t slot_begin = 0;  // of the current slot, in the blob
  return store.write_chunks(
      info,
      [&](std::uint64_t offset, std::uint64_t bytes) {
        check_chunk(bytes);
        if (current >= 0 && offset < slot_begin) {  // a store that wants everything again
          begun = offset;
          current = -1;
          begin_copy();
        }
        if (current < 0 || offset >= slot_begin + kChunkBytes) {
          current = 1 - next;
          slot_begin = offset;
          begin_copy();  // storage is done with that slot
          copied_[current].synchronize();
        }
        return std::span<const std::byte>(slot(current) + (offset - slot_begin), bytes);
      },
      pace, {});
}

bool Bounce::read(StepStore& store, Step step, const std::vector<Piece>& pieces, Stream& stream,
                  const StepStore::Pace& pace) {
  const std::lock_guard lock(mutex_);
  const EndsCopies end(stream);
  int current = 0;
  bool busy[2] = {};
  return store.read_chunks(
      step,
      [&](std::uint64_t, std::uint64_t bytes) {
        check_chunk(bytes);
        if (busy[current]) copied_[current].synchronize();
        return std::span<std::byte>(slot(current), kChunkBytes);
      },
      [&](std::uint64_t offset, std::span<const std::byte> chunk) {
        for_each_overlap(pieces, offset, chunk.size(),
                         [&](std::uint64_t at, std::byte* data, std::uint64_t count) {
                           copy_async(stream, data, chunk.data() + at, count);
                         });
        copied_[current].record(stream);
        busy[current] = true;
        current = 1 - current;
      },
      pace);
}

}  // namespace holdfast::history
