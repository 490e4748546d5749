// What Transaction and UndoLog share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "holdfast/transaction.hpp"
#include "undo_log/log_kind.hpp"

namespace holdfast {

// Tags run from 1 to kTags and then start over; 0 marks a tail that was never written.
inline constexpr std::uint64_t kTags = 65535;
constexpr std::uint32_t tag_of(std::uint64_t epoch) {
  return static_cast<std::uint32_t>(epoch % kTags) + 1;
}

// What a commit found, in memory that the host reads once the stream is through.
struct CommitVerdict {
  std::uint64_t failures;  // 0: it did commit
  std::uint64_t state;     // on the medium, if it did not
};

// What a change of the state is part of.
enum class Step : std::uint32_t {
  begin,   // forgets failures of inserts that no transaction held
  commit,  // nothing moves if there are failures
  end,     // of what was taken back: forgets them
};

struct Transaction::Impl {
  std::string name;
  std::string where;           // for messages: "transaction 'tx' of region 'x'"
  const void* base = nullptr;  // of its region
  TransactionHeader* header = nullptr;
  PageMarks marks;
  // The state that the stream will have reached: the host never reads it back from the device,
  // unless a commit did not commit.
  std::uint64_t epoch = 0;
  bool active = false;
  bool interrupted = false;
  bool sweep_pending = false;  // found on open: tails must be zeroed before anything is logged
  bool unfinished = false;     // commit() was called since finish()
  bool in_part = false;        // open, and taken back but for entries that are damaged
  DeviceBuffer<TransactionWords> words{1};
  PinnedBuffer<CommitVerdict> verdict{1};
  DeviceBuffer<detail::UndoTally> tallies;
  std::vector<std::shared_ptr<OwnedLog>> logs;

  Impl(Region& region, std::string_view name, TransactionHeader* header);
  void start(Stream& stream);  // REQUIRES: the state is known
  void set_state(Stream& stream, std::uint64_t flags, Step step);
  void advance(Stream& stream, Step step);
  void sweep(Stream& stream, Step step);
  void open_logs(Region& region);
  std::shared_ptr<OwnedLog> find(std::string_view log) const;  // may be null
  void check_region(Region& region) const;
};

}  // namespace holdfast
