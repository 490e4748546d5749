// What carries out gpKVS's batches in each mode.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "holdfast/kv_store.hpp"
#include "workload/backing.hpp"
#include "workload/delta.hpp"

namespace gpkvs {

inline constexpr unsigned kWays = 8;  // of a bucket of any of the tables

struct EngineOptions {
  std::uint64_t buckets = 0;
  std::uint32_t max_batch = 0;                                           // operations
  std::uint32_t max_sets = 0;                                            // of them
  holdfast::KvStore::Cache cache = holdfast::KvStore::Cache::automatic;  // modes gpm, eadr, ndp
  holdfast::LogLayout log = holdfast::LogLayout::coalesced;              // modes gpm, eadr
  // The same modes. Of the layout log `keys` and a batch are its capacity, and not the buckets.
  holdfast::KvStore::Layout layout = holdfast::KvStore::Layout::in_place;
  std::uint64_t keys = 0;
  std::uint64_t log_records = 0;  // of the layout log; 0: what the store takes for its capacity
  workload::DeltaOrder changes = workload::DeltaOrder::gathered;  // modes cap_delta*
  std::uint64_t log_batches = 1;  // mode cap_log: that the log of the input has room for
  bool device_input = false;      // keys and values of steps are in device memory
};

struct Pairs {
  std::vector<std::uint64_t> keys;
  std::vector<std::uint64_t> values;
};

// Set-up is over where the backing's progress is not 0. Until then load() is called with the same
// batches, in order, and end_set_up().
//
// Invariant: once set() returned, the batch survives a kill; after one, resume() says how many are
// in, and no other is there in part (modes gpm, eadr, cpu, cap_delta, cap_log) or matters once it
// is done again. Thread safety: one thread.
class Engine {
 public:
  virtual ~Engine() = default;
  // Batches of the set-up that are in.
  virtual std::uint64_t begin_set_up() { return 0; }
  virtual void load(const std::uint64_t* keys, const std::uint64_t* values,
                    std::uint64_t count) = 0;
  virtual void end_set_up() = 0;

  // Recovers. `loads`: batches of the set-up. Returns the steps that are in.
  virtual std::uint64_t resume(std::uint64_t loads) = 0;
  virtual void set(std::uint64_t step, const std::uint64_t* keys, const std::uint64_t* values,
                   std::uint64_t count) = 0;
  // values[i] and found[i] are 0 where a key is absent.
  virtual void get(const std::uint64_t* keys, std::uint64_t* values, std::uint8_t* found,
                   std::uint64_t count) = 0;
  // All that the table holds on the medium, what recovery would add included.
  virtual Pairs pairs() = 0;
  // As Workload::kernel_bytes().
  virtual std::uint64_t bytes_stored() const = 0;
  // As Workload::streamed_bytes().
  virtual std::uint64_t bytes_streamed() const { return 0; }
  // As Workload::unchanged_bytes().
  virtual std::uint64_t bytes_unchanged() const { return 0; }
  // Whether kernels read a copy of the table in device memory. REQUIRES: resume().
  virtual bool cached() const { return false; }

  // By the backing's mode.
  static std::unique_ptr<Engine> make(workload::Backing& backing, const EngineOptions& options);
  static std::uint64_t medium_bytes(workload::Mode mode, const EngineOptions& options);
};

// What kernels store around a pair that they change, where they read a copy of the table: at most,
// as two changes in one line are stored by themselves.
inline constexpr std::uint64_t kAroundPair = 48;

// Kernels on an array of the backing, without a log: ndp, gpufs, the cap modes.
std::unique_ptr<Engine> make_plain_engine(workload::Backing& backing, const EngineOptions& options);
// OpenMP threads.
std::unique_ptr<Engine> make_cpu_engine(workload::Backing& backing, const EngineOptions& options);
// Of the undo log of that one.
std::uint64_t cpu_undo_bytes(const EngineOptions& options);

}  // namespace gpkvs
