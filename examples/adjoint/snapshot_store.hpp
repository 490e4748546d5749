// Keeps the forward wavefields that the backward pass needs, in whichever way.
//
// Life of a shot:
//   store.plan(steps in the order in which they will be asked for);
//   store.protect("wavefield", address, bytes); store.save(0, stream);    forwards, every step
//   ...
//   store.protect("wavefield", address, bytes); store.restore(n, stream); backwards, as planned
// and the next shot begins with plan(), which forgets what was saved before it.
//
// Tested by: revolve_test (what it costs, what it holds), store_test (contents, errors),
// gradient_test (all give the same gradient, bit for bit).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "holdfast/stream.hpp"

namespace adjoint {

class ShotPoints;

// Thread safety: one thread, one stream at a time. REQUIRES, when it ends: the stream is done with
// it, as with the buffers that it holds.
class SnapshotStore {
 public:
  virtual ~SnapshotStore() = default;

  // A new shot, whose steps will be restored in this order.
  virtual void plan(std::span<const std::uint64_t> restore_order) = 0;
  // An array of every save and restore from now on: device memory. Again with the same name: at
  // another address, or of another size.
  virtual void protect(const std::string& name, void* device, std::uint64_t bytes) = 0;
  // Saves the protected arrays as the stream leaves them. Throws no_memory.
  virtual void save(std::uint64_t step, holdfast::Stream& stream) = 0;
  // Loads them as they were saved, in stream order. Throws not_found (never saved), and
  // invalid_argument: they were of other sizes then, or it is not this step's turn.
  virtual void restore(std::uint64_t step, holdfast::Stream& stream) = 0;
  // Bytes of an array at a step that was saved. Throws not_found.
  virtual std::uint64_t size(std::uint64_t step, const std::string& name) const = 0;

  // Whether it restores by going forward from an earlier step, for which all of the state has to be
  // protected rather than what the backward pass reads.
  virtual bool recomputes() const { return false; }
  // The most bytes of snapshots that it has held at a time.
  virtual std::uint64_t most_bytes() const = 0;
  // Where a killed run's shot is gone on from; nullptr: it is begun anew.
  virtual ShotPoints* points() { return nullptr; }
};

// An array that is protected.
struct Protected {
  void* device = nullptr;
  std::uint64_t bytes = 0;
};

// A copy of all protected arrays in device memory. Keeps its memory for the next save.
class Snapshot {
 public:
  // The step is for messages.
  void save(const std::map<std::string, Protected>& arrays, std::uint64_t step,
            holdfast::Stream& stream);
  void restore(const std::map<std::string, Protected>& arrays, std::uint64_t step,
               holdfast::Stream& stream) const;
  std::uint64_t size(const std::string& name, std::uint64_t step) const;
  std::uint64_t bytes() const;  // of what was saved

 private:
  struct Copy {
    holdfast::DeviceBuffer<unsigned char> memory;
    std::uint64_t bytes = 0;
  };
  std::map<std::string, Copy> copies_;
};

// Every step in device memory.
class MemoryStore : public SnapshotStore {
 public:
  void plan(std::span<const std::uint64_t> restore_order) override;
  void protect(const std::string& name, void* device, std::uint64_t bytes) override;
  void save(std::uint64_t step, holdfast::Stream& stream) override;
  void restore(std::uint64_t step, holdfast::Stream& stream) override;
  std::uint64_t size(std::uint64_t step, const std::string& name) const override;
  std::uint64_t most_bytes() const override { return most_bytes_; }

 private:
  struct Kept {
    Snapshot snapshot;
    bool saved = false;  // in this shot; if not, its memory is there for it
  };
  const Snapshot& at(std::uint64_t step) const;

  std::map<std::string, Protected> arrays_;
  std::map<std::uint64_t, Kept> kept_;
  std::uint64_t bytes_ = 0, most_bytes_ = 0;
};

// A few steps in device memory; the others are computed again from those, as often as the binomial
// schedule says (revolve_schedule.hpp), which is the least that so few snapshots allow.
//
// REQUIRES: between the last save, or a restore, and the next restore nobody changes the protected
// arrays; the last step that is saved is then restored from them, with no snapshot.
class RevolveStore : public SnapshotStore {
 public:
  // Takes the protected arrays from a step to the one behind it, in stream order.
  using Advance = std::function<void(std::uint64_t step, holdfast::Stream& stream)>;

  // Throws invalid_argument: no snapshots.
  RevolveStore(std::uint64_t snapshots, Advance advance);

  // Throws invalid_argument if the order is not from the last step down to 0.
  void plan(std::span<const std::uint64_t> restore_order) override;
  void protect(const std::string& name, void* device, std::uint64_t bytes) override;
  // Throws invalid_argument if steps are not saved one by one, from 0.
  void save(std::uint64_t step, holdfast::Stream& stream) override;
  void restore(std::uint64_t step, holdfast::Stream& stream) override;
  std::uint64_t size(std::uint64_t step, const std::string& name) const override;
  bool recomputes() const override { return true; }
  std::uint64_t most_bytes() const override { return most_bytes_; }

  std::uint64_t most_held() const { return most_held_; }    // snapshots at a time
  std::uint64_t recomputed() const { return recomputed_; }  // steps, in all shots

 private:
  void keep(std::uint64_t step, holdfast::Stream& stream);
  void choose_next(std::uint64_t last);

  std::uint64_t snapshots_;
  Advance advance_;
  std::map<std::string, Protected> arrays_;
  std::vector<Snapshot> slots_;
  std::vector<std::uint64_t> held_;  // the step in slot i; ascending
  std::uint64_t steps_ = 0;          // of the shot
  std::uint64_t saved_ = 0;          // calls of save()
  std::uint64_t left_ = 0;           // steps not restored yet
  std::uint64_t live_ = 0;           // the step that the arrays hold
  std::uint64_t next_ = 0;           // the step to keep when it is reached
  std::uint64_t most_bytes_ = 0, most_held_ = 0, recomputed_ = 0;
};

}  // namespace adjoint
