// The batches of SETs themselves, as CPU threads bring them to the medium: mode cap_log.
#pragma once

#include <cstdint>

#include "workload/backing.hpp"

namespace gpkvs {

// A step's batch is in the log once append() returned, and counts once the backing's progress says
// so. The table on the medium has the steps before first(), or some of the later ones' pairs, too.
//
// Invariant, after any crash: first() is at most the steps that progress tells of, and the batches
// from there on are whole.
// Thread safety: one thread. The backing outlives it.
class InputLog {
 public:
  struct Batch {
    const std::uint64_t* keys;  // on the medium
    const std::uint64_t* values;
    std::uint64_t count;
  };

  // For `batches` batches of up to `max_sets` SETs.
  InputLog(workload::Backing& backing, std::uint64_t batches, std::uint32_t max_sets);
  // What it takes of the backing's capacity.
  static std::uint64_t medium_bytes(std::uint64_t batches, std::uint32_t max_sets);

  std::uint64_t first() const;
  // Whether there is no room for that step's batch before begin_at().
  bool full(std::uint64_t step) const { return step - first() >= batches_; }
  // Durable on return. `on_device`: where keys and values are; then the copy engine brings them.
  // REQUIRES: !full(step); the steps before it are in.
  void append(std::uint64_t step, const std::uint64_t* keys, const std::uint64_t* values,
              std::uint64_t count, bool on_device);
  // Forgets the batches of steps before `step`. REQUIRES: they are in the table on the medium.
  void begin_at(std::uint64_t step);

  // Throws damaged: the log does not reach from first() to `steps`, the steps that are in.
  void check(std::uint64_t steps) const;
  // REQUIRES: check(). Throws damaged: a batch of another size than there is room for.
  Batch batch(std::uint64_t step) const;

 private:
  struct alignas(64) Head {
    std::uint64_t first;
  };
  // Of a batch's place: what comes before the keys.
  struct alignas(64) BatchHead {
    std::uint64_t count;
  };
  std::uint64_t slot_bytes() const;
  std::uint64_t slot_of(std::uint64_t step) const;

  workload::Backing& backing_;
  std::uint64_t batches_;
  std::uint32_t max_sets_;
  std::uint32_t id_;
};

}  // namespace gpkvs
