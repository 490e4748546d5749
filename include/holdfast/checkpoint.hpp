// Checkpoints: groups of buffers, saved whole or not at all, two copies of each group in a region.
//
// Source: GPM (ASPLOS '22) section 5.3. Where GPM tells buffers by the order in which they are
// registered, here they have names; copies are checksummed; and a save may drain behind its stream.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/config.hpp"
#include "holdfast/region.hpp"
#include "holdfast/stream.hpp"

namespace holdfast {

namespace checkpoint {
struct Access;
}

// Where a buffer lives.
enum class BufferMemory {
  device,  // memory that kernels can read: of the device, pinned, or of a region
  host,    // any other host memory; it is copied while the caller waits
};

// A save on its way. Copyable; all copies speak of the same save. Use of one that was moved from
// throws Errc::closed.
class PendingSave {
 public:
  // Returns once the save is durable on the region's rung. Throws what the work met.
  void wait();
  bool done() const;

  struct State;
  explicit PendingSave(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  State& state() const;
  std::shared_ptr<State> state_;
};

struct CheckpointBuffer {
  std::string name;  // at most 47 bytes, none of them zero
  std::string type;  // see TypeName; at most 23 bytes, none of them zero
  std::uint64_t count = 0;
  std::uint32_t element_bytes = 0;
  std::uint64_t bytes() const { return count * element_bytes; }
};

// Life of a group:
//   Checkpoint checkpoint(region, "training");
//   checkpoint.add("model", "weights", weights, count);
//   std::uint64_t step = checkpoint.restore(stream, "model").value_or(0);
//   for (...) { ...; checkpoint.save(stream, "model", step); }
//
// Invariants:
// - After any crash, restore() gives the last save that was durable, or one that was under way at
//   the crash, whole. Groups do not touch one another.
// - The object of a group is "<checkpoint>/<group>" of the region; it is made by the first save or
//   restore, after which no buffer can be added to the group. REQUIRES: no save of a group is under
//   way when its object is removed.
// - REQUIRES: one object at a time saves a group; it knows which of the two copies is the older.
//
// Thread safety: one thread at a time. The region and the buffers outlive it. Use of one that was
// moved from throws Errc::closed.
class Checkpoint {
 public:
  Checkpoint(Region& region, std::string_view name);
  ~Checkpoint();  // waits for saves under way
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;  // the old one waits, as its destructor does

  // Adds a buffer of `count` elements to a group. Throws invalid_argument: a name that is empty,
  // too long, has a zero byte, or is there already; nothing to save, or more than a region can
  // have; an unknown memory; the group was saved or restored before.
  template <class T>
  void add(std::string_view group, std::string_view buffer, T* data, std::uint64_t count,
           BufferMemory memory = BufferMemory::device) {
    add_raw(group, {std::string(buffer), type_name<T>(), count, sizeof(T)}, data, memory);
  }
  void add_raw(std::string_view group, const CheckpointBuffer& buffer, void* data,
               BufferMemory memory = BufferMemory::device);

  // Saves all buffers of a group as the stream leaves them, with a number of the caller's.
  // Stream-ordered: durable on the region's rung once the stream has come so far (and on disk after
  // a commit() behind it). Throws not_found (no such group, or its object was removed since this
  // Checkpoint first used it), no_space, and invalid_argument if the region holds this group with
  // other buffers; the message names the difference. Where the stream's work fails the last save
  // stays, and saves that were queued behind it fail with it, whatever their stream; the next one
  // can succeed on another stream (on a GPU, in a new process). The first saves of a group make
  // what they need, and may wait for all of the device.
  void save(Stream& stream, std::string_view group, std::uint64_t tag = 0);

  // The same, but the stream is held only while the buffers are copied aside, in device memory
  // (as much as the group has). The region's commits, on whichever stream, and its close() come
  // after the save (Region::pending()), so no PendingSave has to be waited for on their account.
  // Throws no_memory where the copy does not fit: use save().
  PendingSave save_async(Stream& stream, std::string_view group, std::uint64_t tag = 0);

  // Loads the last save of a group and returns its number; nothing, with the buffers untouched, if
  // there is none. Waits. Throws as save() does, and damaged if the copy's checksum does not hold
  // (the buffers are then undefined).
  std::optional<std::uint64_t> restore(Stream& stream, std::string_view group);

  // Forgets the buffers of a group, once its saves are over; what the region holds of it stays.
  // Others can then be added, at other addresses. No such group: nothing happens.
  void forget(std::string_view group);

  // The buffers of each group that the region holds, whoever saved them. Throws damaged.
  std::vector<CheckpointBuffer> stored(std::string_view group) const;
  std::vector<std::string> stored_groups() const;

  // What a group takes in its region. Throws no_space if no region can be so large.
  static std::uint64_t region_bytes(std::uint64_t buffer_bytes, std::uint64_t buffers);

  struct Impl;

 private:
  friend struct checkpoint::Access;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast
