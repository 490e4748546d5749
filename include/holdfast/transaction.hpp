// The transaction flag: one persistent word that says whether a kernel's updates are under way,
// and whose single store commits them and empties every log that belongs to it.
//
// Source: GPM (ASPLOS '22) section 5.2, "Example use of logging". Where GPM clears a flag and then
// every log's tail, here tails carry the flag's epoch, so the store that commits also makes all
// tails stale.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "holdfast/config.hpp"
#include "holdfast/error.hpp"
#include "holdfast/region.hpp"
#include "holdfast/stream.hpp"

namespace holdfast {

struct LogShape;
class UndoLog;

// On the medium. docs/format.md.
struct TransactionHeader {
  static constexpr const char* kTypeName = "transaction";
  static constexpr std::uint64_t kMagic = 0x315854444c4f48ull;  // "HOLDTX1"
  static constexpr std::uint64_t kActive = 1;                   // between begin and commit
  static constexpr std::uint64_t kSweeping = 2;                 // stale tails are being zeroed
  std::uint64_t magic;
  std::uint64_t state;  // epoch << 2 | flags
};

namespace detail {
template <>
inline constexpr bool kIsOfLibrary<TransactionHeader> = true;
}  // namespace detail

// What recover() did.
struct Recovery {
  bool needed = false;       // there was something to take back
  std::uint64_t undone = 0;  // log entries
  double milliseconds = 0;
};

namespace detail {

// What undoing counts, for each log; in device memory.
struct UndoTally {
  std::uint32_t undone;
  std::uint32_t bad;  // entries that point outside what they belong to
};

// What an object and its copies share, or nothing, if the object was moved from.
template <class T>
class Shared {
 public:
  Shared(std::shared_ptr<T> value, const char* what) : value_(std::move(value)), what_(what) {}
  T* operator->() const { return alive().get(); }
  T& operator*() const { return *alive(); }
  template <class U>
  requires std::is_convertible_v<T*, U*>
  operator std::shared_ptr<U>() const { return alive(); }

 private:
  const std::shared_ptr<T>& alive() const {
    if (value_) return value_;
    throw Error(Errc::closed, concat("the ", what_, " was moved from: use what it was moved to"));
  }
  std::shared_ptr<T> value_;
  const char* what_;  // for messages
};

}  // namespace detail

// A transaction and its logs, which it finds in the region by itself and owns: their volatile parts
// live as long as it does, or as one of its UndoLogs. Copies are the same transaction. REQUIRES,
// when the last of them ends: streams that use it were waited for.
//
// Life of a batch:
//   tx.begin(stream);
//   launch(... log.insert(old); store in place; persist() ...);
//   tx.commit(stream);
//   tx.finish(stream, undo(log, PutBack{...}), ...);
// After a crash:
//   tx.recover(stream, undo(log, PutBack{...}), ...);
//
// Use of one that was moved from, or whose region was closed, throws Errc::closed, and use in a
// forked child in_use.
//
// A batch of which an insert said anything but `ok` does not commit: finish() takes all of it back
// and throws log_full. So whoever cannot log a change need only leave it undone.
//
// Invariants: a tail counts only if its tag is that of the current epoch; the epoch changes by one
// 8-byte persisted store. Thread safety: one thread at a time.
class Transaction {
 public:
  // Throws already_exists (also where a log is left of another transaction of this name). What a
  // creation that was cut off has left is removed.
  static Transaction create(Region& region, std::string_view name);
  // Opens all of its logs, too. From then on an earlier one of this process is closed: what it, and
  // the views of its logs, are asked for throws Errc::closed. Waits for the earlier one's last
  // commit. REQUIRES: a batch that it has begun and not committed is through. Throws not_found,
  // damaged (its header, or a log's; the word, tails and entries have no checksums).
  static Transaction open(Region& region, std::string_view name);

  // A log of this transaction, which must be in the same region. Throws invalid_argument (shape,
  // another region), already_exists, no_space.
  UndoLog create_log(Region& region, std::string_view name, const LogShape& shape);
  // Throws not_found.
  UndoLog log(std::string_view name) const;
  // Removes a log's object; REQUIRES: no UndoLog of it is used any more. Throws not_found, and
  // invalid_argument inside a transaction.
  void remove_log(Region& region, std::string_view name);

  // Stream-ordered; on another stream than the last batch's it waits for that one on the host.
  // Throws invalid_argument if a transaction is open, or if that batch did not commit and was not
  // finished.
  void begin(Stream& stream);
  // Stream-ordered. Whether it did commit is known once the stream is through: finish() says so.
  // REQUIRES: the stream is that of begin(), or ordered behind it. Throws invalid_argument if no
  // transaction is open.
  void commit(Stream& stream);

  // Waits for the stream, and for the last commit, whatever its stream. Where an insert of the last
  // batch failed, or of one before it that was not finished, takes back what is not committed, and
  // throws log_full. Where the stream fails throws its error: finish() or recover() on another
  // stream then takes the batch back, unless it had committed (finish() says so by `device`; on a
  // GPU a new process has to). Throws invalid_argument if there is no commit() to finish, and a
  // batch is open. As recover() otherwise: behind whatever else it throws the batch is open, and
  // nothing commits until another finish() or recover() has taken it back.
  // In files with kernels: holdfast/undo.hpp.
  template <class... Undos>
  void finish(Stream& stream, const Undos&... undos);

  // Takes back what a crash cut off, or what this process has begun: gives each entry of each log,
  // newest first in its slot, to the undo of that log, then ends the transaction. Waits for the
  // stream, and for the last commit. REQUIRES: what was begun and not committed is through. A crash
  // in it is taken back by the next one. REQUIRES: undoing twice is as once. Throws damaged, naming
  // the log, if an entry points outside of what it belongs to: the others are undone then, and the
  // transaction stays open and does not commit; invalid_argument if the logs are not those of the
  // transaction. In files with kernels: holdfast/undo.hpp.
  template <class... Undos>
  Recovery recover(Stream& stream, const Undos&... undos);

  // Whether a crash cut off a transaction that has not been recovered yet.
  bool interrupted() const;

  // Empties every log of this transaction, outside of begin and commit. Waits and throws as
  // begin().
  void clear_logs(Stream& stream);

  std::string_view name() const;

  struct Impl;

 private:
  explicit Transaction(std::shared_ptr<Impl> impl) : impl_(std::move(impl), "transaction") {}

  // What has become of the last commit. taken_back: it did not commit, and is to be taken back, or
  // nothing of it is there.
  enum class Batch { none, committed, taken_back };
  // Waits for the stream and for the last commit, whatever its stream. Behind one that did not
  // commit the transaction is as the medium has it.
  Batch await_batch(Stream& stream);
  void check_nothing_open() const;  // throws invalid_argument
  // Zeroed tallies, one for each log. Throws invalid_argument if these are not all of its logs.
  detail::UndoTally* begin_undo(Stream& stream, const std::vector<const UndoLog*>& logs);
  // Ends the transaction; returns how many entries were undone. Throws damaged.
  std::uint64_t end_undo(Stream& stream, const std::vector<const UndoLog*>& logs);
  bool is_open() const;
  template <class... Undos>
  std::uint64_t take_back(Stream& stream, const Undos&... undos);
  [[noreturn]] void throw_taken_back() const;

  detail::Shared<Impl> impl_;
};

}  // namespace holdfast
