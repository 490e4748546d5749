// Undo logs that kernels write: the coalesced layout (GPM's hierarchical coalesced logging), where
// every thread has a slot of its own and no lock, and the conventional one with locked partitions,
// for small metadata. Source: GPM (ASPLOS '22) section 5.2.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "holdfast/config.hpp"
#include "holdfast/region.hpp"
#include "holdfast/stream.hpp"
#include "holdfast/transaction.hpp"
#include "holdfast/undo_log_ref.hpp"

namespace holdfast {

struct LogShape {
  LogLayout layout = LogLayout::coalesced;
  std::uint32_t slots = 0;           // coalesced: threads; conventional: partitions
  std::uint32_t bytes_per_slot = 0;  // of entries, at most kMaxSlotBytes

  static constexpr std::uint32_t kMaxSlots = 1u << 27;
  static constexpr std::uint32_t kMaxSlotBytes = 65532 * 4;

  static LogShape coalesced(std::uint32_t threads, std::uint32_t bytes_per_thread) {
    return {LogLayout::coalesced, threads, bytes_per_thread};
  }
  static LogShape conventional(std::uint32_t partitions, std::uint32_t bytes_per_partition) {
    return {LogLayout::conventional, partitions, bytes_per_partition};
  }
};

// A log in a region, as one object. The log belongs to a transaction, whose epoch says which
// entries count; several logs may share one. Thread safety: one thread at a time on the host.
class UndoLog {
 public:
  // Bytes that the object takes in its region.
  static std::uint64_t object_bytes(const LogShape& shape);

  // Throws invalid_argument (shape), already_exists, no_space.
  static UndoLog create(Region& region, std::string_view name, const Transaction& transaction,
                        const LogShape& shape);
  // Throws not_found, damaged, invalid_argument (another transaction's log).
  static UndoLog open(Region& region, std::string_view name, const Transaction& transaction);

  const LogShape& shape() const;

  // For kernels, by value. Throws invalid_argument if the log has the other layout.
  CoalescedLogRef coalesced() const;
  ConventionalLogRef conventional() const;

  struct Impl;

 private:
  explicit UndoLog(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

}  // namespace holdfast
