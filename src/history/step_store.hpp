// Where the checkpoints of a history stand for good: the tier below all caches (SCORE, HPDC '23,
// section 4.1: the slowest tier, to which everything is flushed).
//
// A checkpoint is a *step*: a number, and a blob of bytes that is made of named parts. A step is
// written whole and never changed; it is removed whole.
//
// Invariants: a step that is listed is complete and durable. What was reported durable stays until
// it is removed. A crash at any point leaves each step whole or absent.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/format.hpp"
#include "holdfast/error.hpp"

namespace holdfast::history {

using Step = std::uint64_t;

// Where a protected array stands in the blob, in bytes.
struct Part {
  std::string name;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const Part&, const Part&) = default;
};

// Tells the saves of one number apart: ranks that have the same stamp have parts of one whole.
struct Stamp {
  std::uint64_t run = 0;   // that the ranks agreed on when they opened it; 0: a process alone
  std::uint64_t save = 0;  // the first, second, ... of this number in that run
  friend auto operator<=>(const Stamp&, const Stamp&) = default;
};

struct StepInfo {
  Step step = 0;
  std::uint64_t bytes = 0;  // of the blob
  std::vector<Part> parts;
  // CLOCK_REALTIME, or more than any other that the history had: it grows from save to save.
  std::uint64_t saved_at_ns = 0;
  Stamp stamp{};
  friend bool operator==(const StepInfo&, const StepInfo&) = default;
};

inline bool is_saved_before(const StepInfo& a, const StepInfo& b) {
  return std::pair(a.saved_at_ns, a.step) < std::pair(b.saved_at_ns, b.step);
}

// How the parts of a step differ from those that a program protects, in words, beginning with the
// first difference; empty if names and bytes are the same. Order and offsets do not matter: a part
// is found by its name.
std::string difference(std::span<const Part> stored, std::span<const Part> wanted);
// Throws invalid_argument with the difference: other code wrote the step, or for other sizes.
void check_parts(const StepInfo& stored, std::span<const Part> wanted, const std::string& where);

// A file that stands where a step would, and is not offered.
struct DamagedFile {
  std::string path;
  Step step = 0;  // by its name
  Errc code{};  // damaged, newer_version, foreign (of another history, or no step at all), io, ...
  std::string reason;
};

// The checksums of a step's chunks, where they are known.
struct ChunkHashes {
  std::uint32_t chunk_bytes = 0;
  std::span<const std::uint64_t> hashes;
};

// Reads a step piece by piece. Thread safety: none.
class StepReader {
 public:
  virtual ~StepReader() = default;
  // As long as the reader lives.
  virtual ChunkHashes hashes() const = 0;
  // Fills `into` with what the blob has from `offset` on, checked chunk by chunk. Throws damaged,
  // io, invalid_argument (beyond the blob). Whole chunks into memory at multiples of a page are
  // fastest.
  virtual void read(std::uint64_t offset, std::span<std::byte> into) = 0;
};

// Thread safety: all functions from any number of threads, but each step by one at a time.
class StepStore {
 public:
  virtual ~StepStore() = default;

  // Called between pieces of a transfer, so that it waits while something more urgent has the
  // device; false gives the transfer up. Never by two threads at once, but on threads that are not
  // the caller's. May throw: then the transfer ends with that exception.
  using Pace = std::function<bool(std::uint64_t bytes_so_far)>;

  // Durable under the step's name when it returns true. False: `pace` gave up, and nothing remains.
  // Throws invalid_argument (parts outside the blob, names), already_exists, no_space, io,
  // not_found (the place went away), permission. After a throw nothing is listed under the step's
  // name, and a new attempt writes everything again. REQUIRES: `blob` does not change meanwhile.
  virtual bool write(const StepInfo& info, std::span<const std::byte> blob, const Pace& pace) = 0;
  // Fills `into` and checks every chunk's checksum. False: `pace` gave up, and what `into` holds is
  // of no use; so it is after a throw. Throws not_found, damaged (names file and chunk), io,
  // invalid_argument (`into` is not info.bytes long).
  virtual bool read(Step step, std::span<std::byte> into, const Pace& pace) = 0;

  // The same for a blob that is nowhere in one piece: chunk after chunk, in order, on the caller's
  // thread. `fill` gives the next chunk, in memory that keeps it until `fill` is called again;
  // `room` gives memory for the next one, and `take` gets it once it is whole and checked. With
  // more `threads` than one they are called by up to so many at once, in any order: each asks for
  // room and has its chunk taken before it asks again. What they throw ends the transfer. Chunks
  // have at most chunk_bytes(); memory at multiples of a page is fastest, and room for whole pages,
  // more than was asked for, saves a read of the last one.
  // A store that must know all checksums before it writes a byte has `fill` give every chunk twice,
  // from the first one again, unless `hashes` has them.
  using Fill = std::function<std::span<const std::byte>(std::uint64_t offset, std::uint64_t bytes)>;
  using Room = std::function<std::span<std::byte>(std::uint64_t offset, std::uint64_t bytes)>;
  using Take = std::function<void(std::uint64_t offset, std::span<const std::byte> chunk)>;
  virtual bool write_chunks(const StepInfo& info, const Fill& fill, const Pace& pace,
                            const ChunkHashes& hashes) = 0;
  virtual bool read_chunks(Step step, const Room& room, const Take& take, const Pace& pace,
                           unsigned threads = 1) = 0;

  // Throws not_found, damaged, io. A reader of a file keeps the step as it is, though it be
  // removed; that of an object throws not_found then.
  virtual std::unique_ptr<StepReader> open_reader(Step step) const = 0;

  virtual std::optional<StepInfo> find(Step step) const = 0;
  virtual std::vector<StepInfo> steps() const = 0;  // ascending
  // The step that was completed last, of those that are there; not the largest number.
  virtual std::optional<Step> latest() const = 0;
  // Gone for good when it returns; a crash leaves it whole or gone. Throws not_found, io.
  virtual void remove(Step step) = 0;
  // Reads all of a step, and throws as read() does. False: `pace` gave up.
  virtual bool verify(Step step, const Pace& pace) = 0;
  // Of the complete steps, with what describes them.
  virtual std::uint64_t bytes_used() const = 0;

  // What opening found, and has left alone, and what a write that failed could not take back.
  // write() refuses such a step (already_exists). remove() removes it if its code is damaged or io,
  // and throws that code otherwise: what is another's, or of a newer build, is for people to
  // remove.
  virtual std::vector<DamagedFile> damaged() const = 0;
  // Every step is gone for good, though they are listed still. From then on all of them are
  // not_found, and writing throws io, until begin_anew(): nothing is listed then, and the next
  // write makes the place anew. REQUIRES of begin_anew(): no step is read or written meanwhile.
  virtual bool is_lost() const { return false; }
  virtual void begin_anew() {}
  // is_lost() knows behind it. Throws io where that cannot be known now, in_use.
  virtual void confirm() {}
  // Of the history whose steps these are.
  virtual std::string name() const = 0;
  virtual core::Uuid uuid() const = 0;
  // Where it stands, for messages.
  virtual const std::string& path() const = 0;
};

}  // namespace holdfast::history
