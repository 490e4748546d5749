// What Transaction and UndoLog share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/process.hpp"
#include "core/region_access.hpp"
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
  std::uint64_t commit;    // its number: what came last may have been dropped with its stream
  std::uint64_t stuck;     // 0: it did commit
  std::uint64_t failures;  // of inserts
};

// What a change of the state is part of.
enum class Step : std::uint32_t {
  begin,   // forgets failures of inserts that no transaction held
  commit,  // nothing moves if there are failures
  end,     // of what was taken back: forgets them
};

// A step from one state of the medium's word to another.
struct Move {
  Step step;
  std::uint64_t from;
  std::uint64_t to;
  std::uint64_t commit;  // the number of the last commit
};

struct Transaction::Impl : core::User {
  std::string name;
  std::string where;           // for messages: "transaction 'tx' of region 'x'"
  const void* base = nullptr;  // of its region
  TransactionHeader* header = nullptr;
  PageMarks marks;
  // The state that the stream will have reached: the host never reads it back, unless a commit did
  // not commit.
  std::uint64_t state = 0;  // of the medium's word
  std::uint64_t epoch = 0;
  bool active = false;
  bool interrupted = false;
  bool sweep_pending = false;  // found on open: tails must be zeroed before anything is logged
  bool unfinished = false;     // commit() was called since finish()
  std::uint64_t commits = 0;   // calls of commit()
  Event moved;  // behind the last of them, or a later clear_logs(), whatever its stream
  const void* stream = nullptr;  // in which the word moved last; null: it is through
  std::uint64_t failures = 0;    // inserts of what did not commit
  bool doomed = false;           // a commit() did not commit, and was not taken back yet
  bool in_part = false;          // open, and taken back but for entries that are damaged
  DeviceBuffer<TransactionWords> words{1};
  PinnedBuffer<CommitVerdict> verdict{1};
  DeviceBuffer<detail::UndoTally> tallies;
  std::vector<std::shared_ptr<OwnedLog>> logs;
  core::Use use;
  core::Maker maker;

  Impl(Region& region, std::string_view name, TransactionHeader* header);
  // Takes the state of the medium's word over, and says it to the device. REQUIRES: nothing of the
  // transaction is under way.
  void start(Stream& stream, std::uint64_t found);
  void settle() noexcept override;  // up to the last `moved`
  // Throws closed, and in_use in a forked child.
  void check_ours() const;
  // Waits for what moves the word, up to the last `moved`.
  void await_moves() noexcept;
  // Whether the last commit did commit. Waits for it.
  bool did_commit();
  // Before `what` moves the word in another stream than the last move's.
  void come_behind(Stream& next, const char* what);
  void set_state(Stream& stream, std::uint64_t flags, Step step);
  void advance(Stream& stream, Step step);
  void sweep(Stream& stream, Step step);
  void open_logs(Region& region);
  std::shared_ptr<OwnedLog> find(std::string_view log) const;  // may be null
  void check_region(Region& region) const;
};

}  // namespace holdfast
