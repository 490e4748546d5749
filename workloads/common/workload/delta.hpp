// How CPU threads bring what kernels gathered to the medium: modes cap_delta and cap_delta_raw.
#pragma once

#include <cstdint>

#include "holdfast/stream.hpp"
#include "workload/backing.hpp"
#include "workload/delta_ref.hpp"

namespace workload {

// Brings the changes of an array to the medium, whose copy for kernels holds them already.
//
// Invariant, after any crash and recover(): once publish() returned its changes are there; in mode
// cap_delta the changes of one that was cut off are there all or not at all.
// Thread safety: one thread. The backing outlives it.
class Delta {
 public:
  // Up to `most` changes a step. REQUIRES: gathers(backing.mode()). Throws invalid_argument (an
  // array of more cells than a number of 32 bits can name), and as Backing::array() does.
  template <class T>
  Delta(Backing& backing, const Array<T>& array, std::uint64_t most)
      : Delta(backing, array.id, array.count * sizeof(T), most) {}

  DeltaRef ref() const { return {tiles_.data()}; }

  // Makes the first `count` changes and then the backing's progress durable, as `progress`, one
  // more than it is. Waits for the stream.
  void publish(std::uint64_t count, std::uint64_t progress);
  // Ends a publish() that a crash cut off behind its commit, and loads the array for kernels anew.
  // Safe to be cut off itself. Throws damaged, with the array as it was.
  void recover();

  // Of the redo log, in the backing's capacity.
  static std::uint64_t medium_bytes(Mode mode, std::uint64_t most);

 private:
  struct LogHeader;
  Delta(Backing& backing, std::uint32_t array, std::uint64_t bytes, std::uint64_t most);
  LogHeader& header() const;
  const DeltaTile* logged() const;
  void commit(std::uint64_t count, std::uint64_t progress);
  void store_logged(std::uint64_t count);
  void store_raw(std::uint64_t count);
  void apply(const DeltaTile* tiles, std::uint64_t count);

  Backing& backing_;
  std::uint32_t array_;
  std::uint64_t cells_;
  std::uint64_t most_;
  std::uint32_t log_ = 0;  // mode cap_delta
  holdfast::DeviceBuffer<DeltaTile> tiles_;
};

}  // namespace workload
