// A history of checkpoints over several tiers: device memory, pinned host memory, memory of a
// partner, a folder on disk, and a remote one or an object store.
// Many are saved, in quick succession, and read back in any order; an order that is known ahead is
// given as hints, and checkpoints come up to the GPU before they are asked for.
//
// Source: Score (HPDC '23). What the paper leaves open, and what is done here: docs/history.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "holdfast/checkpoint.hpp"
#include "holdfast/config.hpp"
#include "holdfast/history_snapshot.hpp"
#include "holdfast/ranks.hpp"
#include "holdfast/stream.hpp"

namespace holdfast {

class ObjectStore;

// From the fastest. `partner` is memory that outlives the process and what is its own: its folder,
// and its host_region.
enum class Tier : std::uint8_t { gpu, host, partner, disk, remote };
inline constexpr int kTierKinds = 5;
const char* to_string(Tier tier) noexcept;

// What save() does about the failure of a transfer that went on behind an earlier one. A flush is
// tried three times at once; then again when a checkpoint was removed from the disk, and by
// flush().
enum class OnError : std::uint8_t {
  raise,  // it throws what happened, once, and saves nothing
  warn,   // it says so on stderr, and goes on
};

// What several ranks are to each other (Score, section 5.3).
enum class Coupling : std::uint8_t {
  tight,  // they save parts of one whole: a checkpoint is complete when every rank has its part
  independent,  // each has a history of its own; they share a node's budgets alone
};

struct HistoryOptions {
  std::uint64_t gpu_bytes = 0;   // a cache in device memory; 0: none
  std::uint64_t host_bytes = 0;  // a cache in pinned memory; 0: none
  // The path of a region of its own for the host's cache, which then survives a killed process: the
  // next one finds there what was complete, and flushes it. Empty: plain memory. close() gives the
  // memory back, unless there is no slower tier or something could not be flushed.
  std::string host_region = {};
  // A cache in a partner's memory, behind the host's: the path of a region of its own, in a folder
  // of the partner's. What is complete there is found again by a process that has lost the one
  // before, its host_region and its disk, and goes on to its new disk. Both or neither. The region
  // is given back as host_region is.
  std::string partner_region = {};
  std::uint64_t partner_bytes = 0;
  // Whose copies they are, such as "rank 3 of 8": a region of another's is refused.
  std::string partner_owner = {};
  // The path of a PartnerMemory (holdfast/partner_memory.hpp): the bytes are then in memory of the
  // GPU of the process that lends it, and partner_region says what is there. Empty: they are in the
  // region. What is complete there survives as long as the lender does; once that has ended the
  // history goes on without such copies, and says so as of any transfer that fails (on_error).
  std::string partner_lender = {};
  std::string disk = {};  // a folder, made if it is not there; empty: nothing is durable
  // What the arrays of checkpoints may take there; 0: what the file system has. A file has at most
  // 128 bytes an array, 8 every 4 MiB, and three pages more than its checkpoint.
  std::uint64_t disk_bytes = 0;
  // A folder that outlives the machine, on any POSIX file system; empty: none. Checkpoints go on to
  // it once the disk has them. Where the disk has lost some, or is another one, they are found
  // there, and written to the disk again in the background, as far as disk_bytes goes. Or memory
  // of another node, "tcp://HOST:PORT/NAME" (holdfast/memory_server.hpp), where no other process
  // has this name open.
  std::string remote = {};
  std::uint64_t remote_bytes = 0;
  // The same in an object store, in place of a folder (holdfast/object_store.hpp).
  std::shared_ptr<ObjectStore> remote_store = {};

  // A checkpoint that was restored, and not kept, goes once the stream has come behind the restore:
  // what is pending of its flushes, too. It stays if the stream failed before, or where hints name
  // it again.
  bool discard_consumed = false;
  // What stays: the last `keep_last` by step, and every step that `keep_every` divides. Both 0: all
  // stay. Those count that are in the slowest tier, disk or remote, so that this always has that
  // many of what reached it; a checkpoint that cannot get there, since its flush was given up or
  // there is no room, is let go once as many newer ones are stored anywhere. A budget needs room
  // for one more than stay.
  std::uint64_t keep_last = 0, keep_every = 0;
  OnError on_error = OnError::raise;

  // Where `holdfast history show` sees a running history: the path of a Unix socket, answered by a
  // thread of its own. Empty: `history.socket` in the disk's folder, where one can be made.
  std::string status = {};
  // A file that close() writes of what the history did and when, for `holdfast history timeline`
  // and for Perfetto: the last `trace_events` events, in 80 bytes of memory each. A process that is
  // killed leaves none. Empty: nothing is noted.
  std::string trace = {};
  std::uint64_t trace_events = 1 << 18;

  // The other processes that save with this one; null: none. Each gets a folder of its own below
  // `disk` and `remote` ("rank-00003-of-00008"), and that name behind host_region, partner_region,
  // partner_lender, status and trace.
  // open(), agree(), latest_of_all() and wait_for_all() are then collective: all ranks call them,
  // in the same order.
  std::shared_ptr<RankGroup> ranks = nullptr;
  Coupling coupling = Coupling::tight;
  // For which a collective call waits for the other ranks.
  std::chrono::milliseconds ranks_timeout{60'000};
  // In place of host_bytes and disk_bytes: what all ranks of a node have together, of which each
  // gets its part by weight, in whole pages. The ranks of a node give the same.
  std::uint64_t node_host_bytes = 0, node_disk_bytes = 0;
  std::uint64_t weight = 1;
};

// One save on its way. Copyable; all copies speak of the same save. Thread safe.
class Ticket {
 public:
  std::uint64_t step() const;
  // Whether the arrays may be changed without the stream's order, as the save has its copy.
  bool staged() const;
  // Of the disk and the remote tier: whether it is complete there, and will be found after a crash
  // of the machine. Of a cache: whether it came to be complete there, though room may have been
  // taken since; of lent memory, while its lender lives. False once it was discarded: by discard(),
  // by the rule of retention, or, with discard_consumed, by its restore.
  bool is_in(Tier tier) const;
  // Waits for that. Throws what the transfer met; not_found if the checkpoint was discarded, though
  // it was there before, or the history has no such tier; no_space if nothing that goes on will
  // bring it there; closed.
  void wait_staged() const;
  void wait(Tier tier = Tier::disk) const;

  struct State;
  const std::shared_ptr<State>& state() const { return state_; }
  explicit Ticket(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

struct HistoryStats {
  struct Count {
    std::uint64_t checkpoints = 0, bytes = 0;
  };
  Count saves, restores;
  Count restored_from[kTierKinds];  // by Tier
  Count flushed_to[kTierKinds], fetched_to[kTierKinds];
  Count evicted_from[kTierKinds];
  Count held_in[kTierKinds];  // now
  double save_seconds = 0;    // for which save() kept its callers
  double restore_seconds = 0;
  std::uint64_t waits = 0;  // of saves and restores, for room or for a transfer
  std::uint64_t failed_transfers = 0;
  std::uint64_t prefetch_distance = 0;  // hinted checkpoints that the GPU has ready, in a row, now
};

// Life of a history, here that of an adjoint computation:
//   History history = History::open({.gpu_bytes = 4 << 30, .host_bytes = 32 << 30, .disk = "run"});
//   history.protect("field", field, cells);
//   for (step = 0; step < n; ++step) { advance(stream); history.save(step, stream); }
//   history.hint(reversed(steps)); history.prefetch_start();
//   for (step = n; step-- > 0;) { history.restore(step, stream); go_back(stream); }
//
// A checkpoint is what all protected arrays held at one save. It never changes. A restore
// *consumes* it, unless `keep` is given at the save or at the restore: caches then evict it first.
// The disk has it until it is discarded.
//
// Invariants:
// - What restore() puts into the arrays is what they held at the save, or it throws.
// - A checkpoint that is_in(Tier::disk) survives a crash of the process and of the machine, until
// it
//   is discarded. One that is not leaves nothing behind.
// - Hints may be wrong, missing, repeated or late: that costs time, and nothing else. What was
//   fetched ahead stays in a cache until it is restored, or until a save has no room without its.
//
// Ranks (Coupling::tight): what one of them lacks when they are opened none is offered; its number
// is free. From then on each has what it saves, and agree() says what all have. Retention counts
// what all are known to have on disk or remote; and the last of that stays there, though it be
// discarded, until all are known to have another, or to have discarded everything. So whichever
// ranks die, and when, there is one that all can restore. Ranks save and discard the same numbers
// in the same order: of a number that some have saved once, and others discarded and saved again,
// the parts do not fit.
//
// Thread safety: any number of threads, but each stream by one at a time, and none whose work waits
// for that of another thread's call: restores from the disk take turns. Arrays outlive the work
// that uses them. One process at a time has a folder open. Every function throws Errc::closed on a
// history that is closed or was moved from, and in_use in a forked child, whose copy ends without
// waiting. Memory that runs out within a change of what is where breaks a history: every function
// throws no_memory then, and what is on disk is whole for the next one.
class History {
 public:
  // Allocates the caches, makes the folders or finds what is in them, and starts the threads.
  // Throws invalid_argument (no tier at all; a region or a lender of another size or owner, or a
  // region without its bytes; a path that cannot be a trace's or a socket's; already_exists where
  // it is another file's), not_found (nobody lends at partner_lender), unsupported (this GPU cannot
  // map what is lent), no_memory, no_shared_memory, and for folders and regions in_use, conflict,
  // foreign, damaged, newer_version, permission, io.
  // With ranks collective: rank_lost; what another rank met, with its number; invalid_argument
  // (options that differ, a folder with the checkpoints of another number of ranks).
  static History open(const HistoryOptions& options);
  ~History();  // as close(), but errors are printed to stderr
  History(History&&) noexcept;
  History& operator=(History&&) noexcept;

  // Names an array of `count` elements, in place of one of the same name. Throws invalid_argument:
  // a name that is empty, too long or has a zero byte; nothing to save, or too much.
  template <class T>
  void protect(std::string_view name, T* data, std::uint64_t count,
               BufferMemory memory = BufferMemory::device) {
    constexpr std::uint64_t kAll = ~std::uint64_t{0};
    protect_raw(name, data, count > kAll / sizeof(T) ? kAll : count * sizeof(T), memory);
  }
  void protect_raw(std::string_view name, void* data, std::uint64_t bytes,
                   BufferMemory memory = BufferMemory::device);
  // No such array: nothing happens.
  void unprotect(std::string_view name);

  // Saves the protected arrays as the stream leaves them. A damaged file of this number makes way,
  // and so does a checkpoint of which restore() has said that no tier has it whole.
  // Returns once that is queued: where the first cache has room, behind a copy within device memory
  // and without waiting. Throws already_exists; no_space if no tier can take it, whose message says
  // why; what an earlier transfer met (OnError::raise); what the copies met.
  Ticket save(std::uint64_t step, Stream& stream, bool keep = false);

  // Puts a checkpoint into the protected arrays, in the order of the stream. Throws not_found;
  // invalid_argument if the checkpoint has other arrays or sizes, which it names, and before
  // anything is changed; damaged if no tier has it whole: the arrays are then undefined. The
  // number is then free for a save().
  void restore(std::uint64_t step, Stream& stream, bool keep = false);

  // The program will restore these next, in this order, behind those of earlier calls. Of more than
  // 1,048,576 that wait for their restores the last ones are passed over.
  void hint(std::span<const std::uint64_t> steps);
  void hint(std::uint64_t step) { hint({&step, 1}); }
  // Prefetching begins with this call, so that it does not stand in the way of flushes before.
  void prefetch_start();

  // Of one array in a checkpoint, in bytes. Throws not_found.
  std::uint64_t size(std::uint64_t step, std::string_view name) const;
  // Gone from every tier, now or once its transfers have ended; so goes a damaged file of this
  // number. False: no such checkpoint.
  bool discard(std::uint64_t step);

  std::vector<std::uint64_t> steps() const;  // ascending, those that can be restored
  // Whether a checkpoint is complete in a tier now. False where either is not there.
  bool is_in(std::uint64_t step, Tier tier) const;
  // The checkpoint that was saved last, of those that a tier has; of the disk: the one to go on
  // from. A clock that is set back does no harm among saves into stores that were opened together.
  std::optional<std::uint64_t> latest(Tier tier = Tier::disk) const;

  // --- Ranks. Collective, on the thread that calls; alone, or with independent ranks, of this
  // process. Throw rank_lost if a rank has ended or does not come within ranks_timeout: then save
  // and restore go on, and what is collective does not; another rank's error, with its number;
  // invalid_argument if the ranks are at different calls.
  // What every rank has whole in this tier or a slower one, ascending; and retention by that.
  std::vector<std::uint64_t> agree(Tier tier = Tier::disk);
  // Of these the one that rank 0 saved last: the one to go on from.
  std::optional<std::uint64_t> latest_of_all(Tier tier = Tier::disk);
  // Ticket::wait() on every rank, each with the ticket of its save of one number: returns once all
  // have it, and throws on all if one cannot have it, or not within ranks_timeout.
  void wait_for_all(const Ticket& ticket, Tier tier = Tier::disk);

  // Waits until everything that was saved before is on disk and remote, as far as there are such
  // tiers, or cannot be, and what was discarded is gone from there; what was given up is tried
  // again. Does not wait for what other threads save meanwhile. Throws what transfers met, and why
  // a checkpoint is not where it should be. One that is remote, and for which disk_bytes has no
  // room, may be missing on disk.
  void flush();
  // Reads what the disk, and the remote tier, have of a checkpoint; where that is no longer whole
  // and another tier has it, it is written again, in the background. Throws damaged, not_found.
  void verify(std::uint64_t step) const;
  HistoryStats stats() const;
  // What is where, in which state, and what goes on. Cheap: what is known is copied under the lock
  // that saves and restores take, and no file is looked at.
  HistorySnapshot snapshot() const;

  // Lets no call begin, waits for those of other threads (who wait for room get `closed`), then as
  // flush() does, but does not wait for what is remote and is to be on disk again; ends the threads
  // and gives the caches back. Throws what flush() throws, with everything closed nevertheless.
  // Closed already: nothing happens.
  void close();

  struct Impl;

 private:
  explicit History(std::unique_ptr<Impl> impl);
  Impl& impl() const;
  std::unique_ptr<Impl> impl_;
};

}  // namespace holdfast
