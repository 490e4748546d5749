#include "holdfast/transaction.hpp"

#include <signal.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "core/region_access.hpp"
#include "holdfast/kernel.hpp"
#include "holdfast/testing/transaction.hpp"
#include "holdfast/undo_log.hpp"
#include "undo_log/medium_store.hpp"
#include "undo_log/transaction_impl.hpp"
#include "undo_log/undo_log_impl.hpp"

namespace holdfast {
namespace {

using detail::concat;
using detail::UndoTally;

std::atomic<std::uint64_t> commits_to_death{0};

void die_if_asked(Stream& stream) {
  if (commits_to_death.load(std::memory_order_relaxed) == 0) return;
  if (commits_to_death.fetch_sub(1) != 1) return;
  stream.synchronize();
  ::raise(SIGKILL);
}

constexpr const LogKind* kKinds[] = {&kUndoLogKind};

// Moves the medium's word to where the host wants it. It stays where it is, whatever the stream
// holds behind it, until what was done is taken back, where inserts failed, or where the word is
// not what the host takes it for: a stream failed, and dropped what came before. So no batch ever
// commits in part, though the host learns of it later.
__global__ void store_state(TransactionHeader* header, Move move, std::uint32_t tag,
                            TransactionWords* words, CommitVerdict* verdict, PageMarks marks) {
  if (move.step == Step::end) {
    words->stuck = 0;
  } else if (words->state != move.from) {
    words->stuck = 1;
  }
  if (move.step == Step::commit) {
    if (words->failures != 0) words->stuck = 1;
    verdict->failures = words->failures;
    verdict->stuck = words->stuck;
    verdict->commit = move.commit;
  }
  if (words->stuck != 0) return;
  words->failures = 0;
  words->tag = tag;
  words->state = move.to;
  header->state = move.to;
  marks.mark(header, sizeof(*header));
  persist();
}

// Whether a kill came before the magic number, which is stored last.
bool is_cut_off(Region& region, Stream& stream, std::string_view name) {
  if (!region.contains(name) || region.object(name).type != TransactionHeader::kTypeName) {
    return false;
  }
  TransactionHeader header;
  read_back(stream, &header, region.address(region.object(name)), sizeof(header));
  return header.magic == 0;
}

[[noreturn]] void misuse(const std::string& where, const std::string& what) {
  throw Error(Errc::invalid_argument, concat(where, ": ", what));
}

}  // namespace

Transaction::Impl::Impl(Region& region, std::string_view name, TransactionHeader* header)
    : name(name),
      where(concat("transaction '", name, "' of region '", region.path(), "'")),
      base(region.base()),
      header(header),
      marks(region.marks()) {}

void Transaction::Impl::start(Stream& stream, std::uint64_t found) {
  state = found;
  epoch = found >> 2;
  active = (found & TransactionHeader::kActive) != 0;
  sweep_pending = (found & TransactionHeader::kSweeping) != 0;
  const TransactionWords fresh{tag_of(epoch), 0, 0, found};
  verdict[0] = {};
  copy_async(stream, words.data(), &fresh, sizeof(fresh));
  stream.synchronize();
  this->stream = nullptr;
}

void Transaction::Impl::settle() noexcept {
  if (stream != nullptr) await_moves();
}

// Two that know nothing of one another would each set the medium's word.
void Transaction::Impl::check_ours() const {
  if (!maker.is_this_process()) maker.refuse(where, "use it there");
  if (use.lasts()) return;
  throw Error(Errc::closed, concat(where,
                                   ": another of this process has opened it since, or its "
                                   "region was closed: use that, or open it again"));
}

// Moves the medium's word to the epoch and flags that the host has chosen.
void Transaction::Impl::set_state(Stream& stream, std::uint64_t flags, Step step) {
  const std::uint64_t from = std::exchange(state, epoch << 2 | flags);
  launch(stream, dim3(1), dim3(1), store_state, header, Move{step, from, state, commits},
         tag_of(epoch), words.data(), verdict.data(), marks);
  this->stream = &stream.impl();
}

void Transaction::Impl::await_moves() noexcept {
  try {
    moved.synchronize();
  } catch (const Error&) {
    // Its stream failed, before the commit or behind it: the verdict tells.
  }
}

bool Transaction::Impl::did_commit() {
  await_moves();
  return verdict[0].commit == commits && verdict[0].stuck == 0;
}

// The host waits, and not `next`: a stream that waits for one that failed fails, too.
void Transaction::Impl::come_behind(Stream& next, const char* what) {
  if (stream == nullptr || stream == &next.impl()) return;
  await_moves();
  if (unfinished && !did_commit()) {
    misuse(where, concat(what, " before what did not commit was taken back: finish() first"));
  }
}

// Goes to the next epoch, which makes every tail stale at once. When tags start over, tails of
// the last round would come to life again: they are zeroed under the sweeping flag first, so
// that a crash in between is seen on open.
void Transaction::Impl::advance(Stream& stream, Step step) {
  ++epoch;
  active = false;
  interrupted = false;
  if (epoch % kTags != 0) {
    set_state(stream, 0, step);
    return;
  }
  set_state(stream, TransactionHeader::kSweeping, step);
  sweep(stream, step);
}

void Transaction::Impl::sweep(Stream& stream, Step step) {
  for (const auto& log : logs) log->sweep(stream, words.data());
  sweep_pending = false;
  set_state(stream, 0, step);
}

void Transaction::Impl::open_logs(Region& region) {
  for (const ObjectInfo& object : region.objects()) {
    for (const LogKind* const kind : kKinds) {
      if (object.type != kind->type) continue;
      auto log = kind->open(region, object, name, words.data());
      if (log) logs.push_back(std::move(log));
    }
  }
}

std::shared_ptr<OwnedLog> Transaction::Impl::find(std::string_view log) const {
  const auto found = std::find_if(logs.begin(), logs.end(),
                                  [&](const auto& owned) { return owned->name() == log; });
  return found == logs.end() ? nullptr : *found;
}

void Transaction::Impl::check_region(Region& region) const {
  if (region.base() == base) return;
  throw Error(Errc::invalid_argument,
              concat(where, ": a log of it cannot be in region '", region.path(), "'"));
}

Transaction Transaction::create(Region& region, std::string_view name) {
  Stream stream;
  if (is_cut_off(region, stream, name)) region.remove(name);
  auto impl = std::make_shared<Impl>(region, name, nullptr);
  if (!region.contains(name)) impl->open_logs(region);
  if (!impl->logs.empty()) {
    throw Error(Errc::already_exists,
                concat(impl->where, ": object '", impl->logs[0]->name(),
                       "' is left of another transaction of this name: remove it first"));
  }
  impl->header = region.allocate<TransactionHeader>(name, 1, Tracking::marked).data();
  impl->use = core::RegionAccess::take_over(region, name, impl.get());
  store_header(region, stream, impl->header, TransactionHeader{TransactionHeader::kMagic, 0});
  impl->start(stream, 0);
  return Transaction(impl);
}

Transaction Transaction::open(Region& region, std::string_view name) {
  const auto found = region.find<TransactionHeader>(name);
  core::RegionAccess::settle_user(region, name);
  TransactionHeader header;
  Stream stream;
  read_back(stream, &header, found.data(), sizeof(header));
  if (header.magic == 0) {
    throw Error(Errc::not_found, concat("object '", name, "' of region '", region.path(),
                                        "' is a transaction whose creation was cut off: create it "
                                        "again"));
  }
  if (header.magic != TransactionHeader::kMagic || found.size() != 1) {
    throw Error(Errc::damaged,
                concat("object '", std::string(name), "' of region '", region.path(),
                       "' is not a transaction: its magic number does not match; reopen "
                       "the region from its last commit"));
  }
  auto impl = std::make_shared<Impl>(region, name, found.data());
  impl->start(stream, header.state);
  impl->interrupted = std::exchange(impl->active, false);
  impl->open_logs(region);
  impl->use = core::RegionAccess::take_over(region, name, impl.get());
  return Transaction(impl);
}

UndoLog Transaction::create_log(Region& region, std::string_view name, const LogShape& shape) {
  impl_->check_ours();
  impl_->check_region(region);
  auto log = UndoLog::Impl::create(region, name, shape, impl_->name, impl_->words.data());
  impl_->logs.push_back(log);
  return UndoLog(log, impl_);
}

UndoLog Transaction::log(std::string_view name) const {
  impl_->check_ours();
  const auto log = std::dynamic_pointer_cast<UndoLog::Impl>(impl_->find(name));
  if (!log) {
    throw Error(Errc::not_found, concat(impl_->where, " has no undo log '", name, "'"));
  }
  return UndoLog(log, impl_);
}

void Transaction::remove_log(Region& region, std::string_view name) {
  impl_->check_ours();
  impl_->check_region(region);
  if (is_open()) misuse(impl_->where, "remove_log() inside a transaction");
  if (impl_->unfinished && !impl_->did_commit()) {
    misuse(impl_->where, "remove_log() before what did not commit was taken back: finish() first");
  }
  const auto log = impl_->find(name);
  if (!log) throw Error(Errc::not_found, concat(impl_->where, " has no log '", name, "'"));
  region.remove(name);
  std::erase(impl_->logs, log);
}

void Transaction::begin(Stream& stream) {
  impl_->check_ours();
  (void)stream.impl();  // throws closed, before anything has changed
  if (impl_->interrupted) misuse(impl_->where, "a crash cut one off: recover() first");
  if (impl_->active) misuse(impl_->where, "begin() while one is open: commit() or recover() first");
  impl_->come_behind(stream, "begin() on another stream");
  if (impl_->sweep_pending) impl_->sweep(stream, Step::begin);
  impl_->active = true;
  impl_->set_state(stream, TransactionHeader::kActive, Step::begin);
}

void Transaction::commit(Stream& stream) {
  impl_->check_ours();
  (void)stream.impl();
  if (!impl_->active) misuse(impl_->where, "commit() without begin()");
  if (impl_->doomed) {
    misuse(impl_->where, "commit() of what did not commit: finish() or recover() first");
  }
  if (impl_->in_part) {
    misuse(impl_->where,
           "commit() of what was taken back in part: recover() it, or, where a log is damaged, "
           "reopen the region from its last commit");
  }
  die_if_asked(stream);
  impl_->unfinished = true;
  ++impl_->commits;
  impl_->advance(stream, Step::commit);
  impl_->moved.record(stream);
}

void testing::die_before_commit(std::uint64_t number) { commits_to_death = number; }

bool Transaction::interrupted() const {
  impl_->check_ours();
  return impl_->interrupted;
}
bool Transaction::is_open() const { return impl_->active || impl_->interrupted; }

void Transaction::clear_logs(Stream& stream) {
  impl_->check_ours();
  (void)stream.impl();
  if (is_open())
    misuse(impl_->where, "clear_logs() inside a transaction would lose what undoes it");
  impl_->come_behind(stream, "clear_logs() on another stream");
  impl_->advance(stream, Step::begin);
  impl_->moved.record(stream);
}

std::string_view Transaction::name() const { return impl_->name; }

// ---- Taking back ------------------------------------------------------------------------------

Transaction::Batch Transaction::await_batch(Stream& stream) {
  impl_->check_ours();
  stream.synchronize();
  if (impl_->doomed) return Batch::taken_back;  // by one that threw before it was through
  if (!impl_->unfinished) return Batch::none;
  if (impl_->did_commit()) {
    impl_->unfinished = false;
    if (!impl_->active) impl_->stream = nullptr;
    return Batch::committed;
  }
  // The host has counted on; the medium has not.
  impl_->failures = impl_->verdict[0].failures;
  TransactionHeader header;
  read_back(stream, &header, impl_->header, sizeof(header));
  impl_->start(stream, header.state);
  impl_->unfinished = false;
  impl_->doomed = impl_->active;
  return Batch::taken_back;
}

void Transaction::check_nothing_open() const {
  if (impl_->interrupted) misuse(impl_->where, "finish() of what was cut off: recover() it");
  if (impl_->active) {
    misuse(impl_->where, "finish() of a batch without its commit(): commit() or recover() first");
  }
}

UndoTally* Transaction::begin_undo(Stream& stream, const std::vector<const UndoLog*>& logs) {
  const auto given = [&](const OwnedLog& owned) {
    return std::count_if(logs.begin(), logs.end(),
                         [&](const UndoLog* log) { return &*log->impl_ == &owned; });
  };
  for (const auto& owned : impl_->logs) {
    if (given(*owned) == 1) continue;
    throw Error(Errc::invalid_argument, concat(impl_->where, ": its log '", owned->name(),
                                               "' was given ", given(*owned), " undos; give one"));
  }
  if (logs.size() != impl_->logs.size()) {
    misuse(impl_->where, "an undo was given for a log that is not of this transaction");
  }
  if (impl_->tallies.size() < logs.size()) {
    impl_->tallies = DeviceBuffer<UndoTally>(logs.size());
  }
  impl_->in_part = true;  // until it is through
  if (!logs.empty()) fill_async(stream, impl_->tallies.data(), 0, impl_->tallies.bytes());
  return impl_->tallies.data();
}

std::uint64_t Transaction::end_undo(Stream& stream, const std::vector<const UndoLog*>& logs) {
  std::vector<UndoTally> tallies(logs.size());
  if (!logs.empty()) {
    read_back(stream, tallies.data(), impl_->tallies.data(), logs.size() * sizeof(UndoTally));
  }
  std::uint64_t undone = 0;
  for (std::size_t i = 0; i < logs.size(); ++i) {
    undone += tallies[i].undone;
    if (tallies[i].bad == 0) continue;
    throw Error(
        Errc::damaged,
        concat(impl_->where, ": ", tallies[i].bad, " entries of undo log '", logs[i]->name(),
               "' point outside what they belong to; the transaction stays open, and is taken back "
               "in part: reopen the region from its last commit"));
  }
  impl_->advance(stream, Step::end);
  try {
    stream.synchronize();
  } catch (const Error&) {
    impl_->active = true;  // for all that is known
    throw;
  }
  impl_->stream = nullptr;
  impl_->in_part = impl_->doomed = false;
  return undone;
}

void Transaction::throw_taken_back() const {
  if (impl_->failures == 0) {
    throw Error(Errc::device, concat(impl_->where,
                                     ": its stream failed before the commit, or commit() was "
                                     "not ordered behind begin(), so that the batch was taken "
                                     "back whole: do it again"));
  }
  throw Error(
      Errc::log_full,
      concat(impl_->where, ": its undo logs did not take ", impl_->failures,
             " entries (their slot is full, or past the log's end, or they have 0 or over ",
             kMaxEntryBytes, " bytes: insert() says which), so that the batch was taken back ",
             "whole: give smaller batches, make larger logs, or mend the slot or size"));
}

}  // namespace holdfast
