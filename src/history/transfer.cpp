#include "history/transfer.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "core/checksum.hpp"
#include "core/parallel.hpp"

namespace holdfast::history {

using detail::concat;

namespace {

bool is_aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % kAlignment == 0;
}

// The bytes of the largest chunk.
std::uint64_t most_of(const Front& front) {
  return std::min<std::uint64_t>(front.chunk_bytes, front.info.bytes);
}

}  // namespace

// Memory for one chunk, or for its last page, lent to one thread at a time.
class BlobTransfer::Buffers {
 public:
  // REQUIRES: at most `threads` are lent at a time.
  Buffers(std::uint64_t bytes, unsigned threads) : bytes_(bytes) { idle_.reserve(threads); }

  class Lent {
   public:
    explicit Lent(Buffers& owner) : owner_(owner), memory_(owner.take()) {}
    ~Lent() { owner_.give_back(std::move(memory_)); }
    Lent(const Lent&) = delete;
    Lent& operator=(const Lent&) = delete;
    std::byte* data() const { return memory_->data(); }
    std::span<std::byte> first(std::uint64_t bytes) const { return memory_->span().first(bytes); }

   private:
    Buffers& owner_;
    std::unique_ptr<AlignedBytes> memory_;
  };

 private:
  std::unique_ptr<AlignedBytes> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<AlignedBytes> taken = std::move(idle_.back());
        idle_.pop_back();
        return taken;
      }
    }
    return std::make_unique<AlignedBytes>(bytes_);
  }
  void give_back(std::unique_ptr<AlignedBytes> memory) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(memory));
  }

  const std::uint64_t bytes_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<AlignedBytes>> idle_;
};

BlobTransfer::BlobTransfer(FolderFile& file, std::string path, unsigned threads,
                           const StepStore::Pace& pace)
    : file_(file), path_(std::move(path)), threads_(threads), pace_(pace) {}

// Who has given up has done so for all threads. The pace may wait, and the other threads wait with
// it once their chunks are done.
bool BlobTransfer::keep_pace(std::uint64_t bytes_done) {
  const std::lock_guard lock(mutex_);
  bytes_done_ += bytes_done;
  if (!gave_up_ && pace_ && !pace_(bytes_done_)) gave_up_ = true;
  return !gave_up_;
}

template <class Body>
bool BlobTransfer::for_each_chunk(const Front& front, Body&& body) {
  if (!keep_pace(0)) return false;
  core::parallel_for(front.chunks(), threads_, [&](std::size_t chunk) {
    {
      const std::lock_guard lock(mutex_);
      if (gave_up_) return;
    }
    body(chunk);
    keep_pace(front.bytes_of(chunk));
  });
  return !gave_up_;
}

bool BlobTransfer::write(Front& front, std::span<const std::byte> blob) {
  front.hashes.assign(front.chunks(), 0);
  Buffers buffers(is_aligned(blob.data()) ? kAlignment : most_of(front), threads_);
  return for_each_chunk(front, [&](std::uint64_t chunk) {
    write_chunk(front, chunk, blob.subspan(front.begin_of(chunk), front.bytes_of(chunk)), buffers);
  });
}

bool BlobTransfer::write(Front& front, const StepStore::Fill& fill) {
  front.hashes.assign(front.chunks(), 0);
  Buffers buffers(front.chunk_bytes, threads_);
  return for_each_chunk(front, [&](std::uint64_t chunk) {
    write_chunk(front, chunk, fill(front.begin_of(chunk), front.bytes_of(chunk)), buffers);
  });
}

bool BlobTransfer::read(const Front& front, const StepStore::Room& room,
                        const StepStore::Take& take) {
  Buffers buffers(front.chunk_bytes, threads_);
  return for_each_chunk(front, [&](std::uint64_t chunk) {
    const std::uint64_t begin = front.begin_of(chunk);
    const std::span<std::byte> into = room(begin, front.bytes_of(chunk));
    read_chunk(front, chunk, into, buffers);
    take(begin, into.first(front.bytes_of(chunk)));
  });
}

void BlobTransfer::read_range(const Front& front, std::uint64_t offset, std::span<std::byte> into) {
  Buffers buffers(front.chunk_bytes, 1);
  while (!into.empty()) {
    const std::uint64_t chunk = offset / front.chunk_bytes;
    const std::uint64_t skipped = offset - front.begin_of(chunk);
    const std::uint64_t bytes =
        std::min<std::uint64_t>(front.bytes_of(chunk) - skipped, into.size());
    if (bytes == front.bytes_of(chunk)) {
      read_chunk(front, chunk, into.first(bytes), buffers);
    } else {
      AlignedBytes whole(front.bytes_of(chunk));
      read_chunk(front, chunk, whole.span(), buffers);
      std::memcpy(into.data(), whole.data() + skipped, bytes);
    }
    offset += bytes;
    into = into.subspan(bytes);
  }
}

void BlobTransfer::write_chunk(Front& front, std::uint64_t chunk, std::span<const std::byte> from,
                               Buffers& buffers) {
  const std::uint64_t offset = front.front_bytes() + front.begin_of(chunk);
  const std::uint64_t in_place =
      is_aligned(from.data()) ? from.size() / kAlignment * kAlignment : 0;
  front.hashes[chunk] = core::hash_bytes(from.data(), from.size());
  int error = write_all(file_, from.first(in_place), offset);
  if (error == 0 && in_place < from.size()) {
    const Buffers::Lent buffer(buffers);
    const std::uint64_t rest = from.size() - in_place;
    std::memcpy(buffer.data(), from.data() + in_place, rest);
    std::memset(buffer.data() + rest, 0, round_up(rest) - rest);
    error = write_all(file_, buffer.first(round_up(rest)), offset + in_place);
  }
  if (error != 0) {
    throw core::system_error(error, concat("write ", front.describe(chunk), " of"), path_);
  }
}

bool BlobTransfer::read(const Front& front, std::span<std::byte> into) {
  const bool in_place = !into.empty() && is_aligned(into.data());
  Buffers buffers(in_place ? kAlignment : most_of(front), threads_);
  return for_each_chunk(front, [&](std::uint64_t chunk) {
    const bool nowhere = into.empty();
    read_chunk(front, chunk,
               nowhere ? into : into.subspan(front.begin_of(chunk), front.bytes_of(chunk)),
               buffers);
  });
}

void BlobTransfer::read_chunk(const Front& front, std::uint64_t chunk, std::span<std::byte> to,
                              Buffers& buffers) {
  const std::uint64_t offset = front.front_bytes() + front.begin_of(chunk);
  const std::uint64_t bytes = front.bytes_of(chunk);
  const auto is_zero = [](std::span<const std::byte> padding) {
    return std::all_of(padding.begin(), padding.end(),
                       [](std::byte value) { return value == std::byte{0}; });
  };
  const bool aligned = !to.empty() && is_aligned(to.data());
  // With room for the last page, too, the disk is asked once.
  const bool whole = aligned && to.size() >= round_up(bytes);
  std::uint64_t in_place = aligned ? bytes / kAlignment * kAlignment : 0;
  if (whole) in_place = round_up(bytes);
  const std::uint64_t rest = whole ? 0 : bytes - in_place;
  int error = read_all(file_, to.first(in_place), offset);
  bool padding_is_zero = !whole || error != 0 || is_zero(to.first(in_place).subspan(bytes));
  std::uint64_t hash = 0;
  if (rest > 0 && error == 0) {
    const Buffers::Lent buffer(buffers);
    error = read_all(file_, buffer.first(round_up(rest)), offset + in_place);
    const auto padding = buffer.first(round_up(rest)).subspan(rest);
    padding_is_zero = is_zero(padding);
    if (!to.empty()) std::memcpy(to.data() + in_place, buffer.data(), rest);
    if (to.empty()) hash = core::hash_bytes(buffer.data(), bytes);
  }
  const auto damaged = [&](const char* why) {
    return Error(Errc::damaged, concat(front.describe(chunk), " of '", path_, "' is damaged: ", why,
                                       "; take the step from another copy, or remove it"));
  };
  if (error == ENODATA) throw damaged("the file was cut off");
  if (error != 0) {
    throw core::system_error(error, concat("read ", front.describe(chunk), " of"), path_);
  }
  if (!to.empty()) hash = core::hash_bytes(to.data(), bytes);
  if (hash != front.hashes[chunk]) throw damaged("its checksum does not hold");
  if (!padding_is_zero) throw damaged("what fills its last page is not zero");
}

}  // namespace holdfast::history
