// How CPU threads bring what kernels gathered to the medium: modes cap_delta and cap_delta_raw.
#pragma once

#include <cstdint>
#include <optional>

#include "holdfast/stream.hpp"
#include "workload/backing.hpp"
#include "workload/delta_ref.hpp"
#include "workload/delta_sort.hpp"
#include "workload/workload.hpp"

namespace workload {

// In which order CPU threads store a step's changes.
enum class DeltaOrder {
  gathered,  // as kernels put them
  sorted,    // by address: a sort in device memory more, and fewer misses of address translation
};
// Option "changes" of a workload that gathers: gathered, or sorted. Throws invalid_argument.
DeltaOrder delta_order_option(const Settings& settings);
// What Info::options says of it.
inline constexpr const char* kDeltaOrderWords =
    "gathered (default) or sorted: the order in which CPU threads store what changed, in the modes "
    "cap-delta and cap-delta-raw";

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
  Delta(Backing& backing, const Array<T>& array, std::uint64_t most,
        DeltaOrder order = DeltaOrder::gathered)
      : Delta(backing, array.id, array.count * sizeof(T), most, order) {}

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
  Delta(Backing& backing, std::uint32_t array, std::uint64_t bytes, std::uint64_t most,
        DeltaOrder order);
  LogHeader& header() const;
  const DeltaTile* logged() const;
  const DeltaTile* in_order(std::uint64_t count);
  void commit(const DeltaTile* tiles, std::uint64_t count, std::uint64_t progress);
  void store_logged(std::uint64_t count);
  void store_raw(const DeltaTile* tiles, std::uint64_t count);
  void apply(const DeltaTile* tiles, std::uint64_t count);

  Backing& backing_;
  std::uint32_t array_;
  std::uint64_t cells_;
  std::uint64_t most_;
  std::uint32_t log_ = 0;  // mode cap_delta
  holdfast::DeviceBuffer<DeltaTile> tiles_;
  std::optional<DeltaSorter> sorter_;  // DeltaOrder::sorted
};

}  // namespace workload
