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

// A log that a transaction owns, as Transaction::log() gives it. The transaction's epoch says which
// entries count. Copyable; a copy keeps what kernels need alive, for as long as the region is open.
// Thread safety: one thread at a time on the host.
class UndoLog {
 public:
  // Bytes that the object of such a log takes in its region. Throws invalid_argument.
  static std::uint64_t object_bytes(const LogShape& shape);

  const std::string& name() const;
  // Rounded up to whole warps and an even number of words.
  const LogShape& shape() const;

  // Calls body(ref) with the view that kernels take by value, a CoalescedLogRef or a
  // ConventionalLogRef.
  template <class Body>
  void visit(Body&& body) const {
    if (shape().layout == LogLayout::coalesced) {
      body(coalesced());
    } else {
      body(conventional());
    }
  }
  // For logs that are of one layout always. Throws invalid_argument if it is the other one. As
  // visit(), they throw closed where the transaction would: a log of one that another has taken
  // over takes nothing that counts.
  CoalescedLogRef coalesced() const;
  ConventionalLogRef conventional() const;

  struct Impl;

 private:
  friend class Transaction;
  UndoLog(std::shared_ptr<const Impl> impl, std::shared_ptr<const Transaction::Impl> transaction)
      : impl_(std::move(impl), "undo log"), transaction_(std::move(transaction)) {}
  detail::Shared<const Impl> impl_;
  std::shared_ptr<const Transaction::Impl> transaction_;
};

}  // namespace holdfast
