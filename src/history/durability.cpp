// What a history says of its storage: what is there, what is not and why, and that everything is.
#include <algorithm>
#include <cstdio>
#include <utility>

#include "core/files.hpp"
#include "history/engine.hpp"

namespace holdfast::history {

using holdfast::detail::concat;

// What stands in the folder under the step's name, and is none.
std::optional<DamagedFile> Engine::damaged_file(const StepStore& store, Step step) {
  for (const DamagedFile& file : store.damaged()) {
    if (file.step == step) return file;
  }
  return std::nullopt;
}

// One that may be removed.
bool Engine::has_file(const StepStore& store, Step step) {
  if (store.find(step)) return true;
  const auto file = damaged_file(store, step);
  return file && file->code == Errc::damaged;
}

// A copy that turned out to be damaged makes way for a new one. Without the mutex.
void Engine::remove_file(StepStore& store, Step step) {
  if (has_file(store, step)) store.remove(step);
}

// What was discarded is in no tier, and its file goes a little later: where a write finds no room
// meanwhile it is made again behind the removals. Each attempt but the first has one more of them
// behind it. False: it was given up. Without the mutex.
bool Engine::write_behind_removals(Tier kind, const std::function<bool()>& write) {
  for (;;) {
    std::uint64_t made = 0;
    {
      const Lock lock(core_->mutex);
      made = removals_made_;
    }
    try {
      return write();
    } catch (const Error& error) {
      if (error.code() != Errc::no_space || !await_removals(kind, made)) throw;
    }
  }
}

// Whether one was made since there were `made`, behind those that are due now.
bool Engine::await_removals(Tier kind, std::uint64_t made) {
  Lock lock(core_->mutex);
  const auto is_due = [&](const auto& removal) {
    return removal.second == kind && removals_.contains(removal);
  };
  const auto due = removals_;
  while (!core_->broken && std::any_of(due.begin(), due.end(), is_due)) core_->changed.wait(lock);
  return !core_->broken && removals_made_ > made;
}

bool Engine::is_being_removed(Step step) const {
  const auto next = removals_.lower_bound({step, Tier::gpu});
  return next != removals_.end() && next->first == step;
}

void Engine::flush() {
  const auto begin = Clock::now();
  Call call(*this);
  Caller caller(*core_, call.lock, TraceEvent::Kind::flush, 0, begin);
  flush(call.lock, true);
  caller.done();
}

// Of what was saved before: other threads may save without an end. `refills`: what slower storage
// has, and so cannot be lost by not waiting for it, is waited for.
void Engine::flush(Lock& lock, bool refills) {
  Core& core = *core_;
  core.check_whole();
  const Catalog::Among among = [this, last = saves_counted_](Step step) {
    const auto record = records_.find(step);
    return record == records_.end() || record->second.id <= last;
  };
  for (const auto& [removal, error] : failed_removals_) removals_.insert(removal);
  failed_removals_.clear();
  removal_due_.notify_one();
  retry_flushes();
  std::exception_ptr error;
  {
    const Core::Draining draining(core);
    const Core::Waiting waiting(core);
    const auto wait_for_flushes = [&] {
      const Catalog& catalog = core.catalog;
      while (!core.broken && (catalog.flush_pending(among) || catalog.discard_pending(among) ||
                              (refills && catalog.refill_pending()))) {
        core.changed.wait(lock);
      }
    };
    wait_for_flushes();
    const auto removals = removals_;
    const auto is_due = [&](const auto& removal) { return removals_.contains(removal); };
    while (!core.broken && std::any_of(removals.begin(), removals.end(), is_due)) {
      core.changed.wait(lock);
    }
    for (const auto& removal : removals) {  // another flush() may have told of it
      const auto failed = failed_removals_.find(removal);
      if (failed != failed_removals_.end()) error = failed->second;
    }
    wait_for_flushes();  // they may have made room for some
    if (const std::exception_ptr unknown = confirm(lock)) error = unknown;
    wait_for_flushes();  // of what was found to be lost
  }
  core.check_whole();
  check_all_flushed(among);
  if (const std::exception_ptr pending = std::exchange(pending_error_, nullptr)) error = pending;
  if (error) std::rethrow_exception(error);
}

// Throws what keeps a checkpoint from the last tier, or from storage that has room for it.
void Engine::check_all_flushed(const Catalog::Among& among) {
  const int last = static_cast<int>(kinds_.size()) - 1;
  if (is_cache(last)) return;
  const Catalog& catalog = core_->catalog;
  for (const auto& [step, record] : records_) {
    if (!catalog.contains(step) || catalog.is_lost(step) || !among(step)) continue;
    const bool there = is_whole(catalog.state(step, last));
    if (there && !catalog.refill_given_up(step)) continue;
    const auto met = unflushed_.lower_bound({step, there ? last : 0});
    if (met != unflushed_.end() && met->first.first == step) {
      met->second.raised = true;
      std::rethrow_exception(met->second.error);
    }
    if (there) continue;
    const std::string name = to_string(kind_of(last));
    throw Error(Errc::no_space,
                concat(name_of(step), " is not in the tier '", name, "': there is no room for its ",
                       core::human_bytes(record.info.bytes), " within ", name,
                       "_bytes; discard others, or give the history more"));
  }
}

// What is said to be somewhere is there: asks where that can have changed without a transfer.
// Returns what keeps it from being known.
std::exception_ptr Engine::confirm(Lock& lock) {
  std::exception_ptr error;
  for (const Tier kind : kinds_) {
    if (kind < Tier::disk || core_->broken) continue;
    lock.unlock();
    try {
      stores_[index_of(kind)]->confirm();
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
  }
  note_losses();
  return error;
}

bool Engine::is_there(Step step, Tier tier) const {
  const int number = tier_of(tier);
  if (number < 0 || (tier == Tier::partner && !core_->partner_lost.empty())) return false;
  return core_->catalog.contains(step) && is_whole(core_->catalog.state(step, number));
}

// A place that is known to have lost what it had, such as the memory of a process that was started
// again: nothing is evicted on its account any longer, and what is left goes there anew. REQUIRES:
// the mutex is held.
void Engine::note_losses() {
  if (partner_ && core_->partner_lost.empty()) note_loss_of_partner();
  for (const Tier kind : kinds_) {
    if (kind < Tier::disk || !stores_[index_of(kind)]->is_lost()) continue;
    changing([&] { note_loss(kind); });
  }
}

// What this process has mapped of it can still be read, and goes on to the next tier; but nothing
// is safe there any longer, nor is anything more brought there.
void Engine::note_loss_of_partner() {
  core_->partner_lost = partner_->loss();
  if (core_->partner_lost.empty()) return;
  changing([&] { core_->catalog.take_no_more(tier_of(Tier::partner)); });
  const std::string message =
      concat(core_->partner_lost,
             ": no copies are kept there from now on; open the history again with a "
             "lender that lives, or without partner_lender");
  ++stats_.failed_transfers;
  if (options_.on_error == OnError::warn) {
    std::fprintf(stderr, "holdfast: history: %s\n", message.c_str());
  } else if (!pending_error_) {
    pending_error_ = std::make_exception_ptr(Error(Errc::io, message));
  }
  retry_flushes();
  core_->go_on();
}

void Engine::note_loss(Tier kind) {
  Catalog& catalog = core_->catalog;
  const int tier = tier_of(kind);
  bool is_used = false;
  for (const history::Transfer& transfer : catalog.transfers()) {
    is_used |= transfer.from == tier || transfer.to == tier;
  }
  StepStore& store = store_of(tier);
  for (auto& [step, record] : records_) {
    if (!is_whole(catalog.state(step, tier)) && !catalog.is_lost(step)) continue;
    catalog.found_damaged(step, tier);  // unless it is being read: its reader hears of it
    record.failure = concat("what '", store.path(), "' had is gone");
  }
  if (is_used) return;  // until those have ended
  store.begin_anew();
  std::erase_if(removals_, [&](const auto& removal) { return removal.second == kind; });
  std::erase_if(failed_removals_, [&](const auto& failed) { return failed.first.second == kind; });
  retry_flushes();
  core_->go_on();
}

void Engine::verify(Step step) {
  bool stored = false;
  for (const Tier kind : kinds_) {
    if (kind >= Tier::disk) stored |= verify(step, kind);
  }
  if (!stored)
    throw Error(Errc::not_found,
                name_of(step) + " is in no storage, disk or remote: wait() for its ticket");
}

// False: the tier does not have it.
bool Engine::verify(Step step, Tier kind) {
  Call call(*this);
  const int tier = tier_of(kind);
  const auto arrival_of = [&]() -> std::uint64_t {  // told from one that was saved again
    const auto record = records_.find(step);
    if (record == records_.end() || !core_->catalog.contains(step)) return 0;
    if (!is_whole(core_->catalog.state(step, tier))) return 0;
    return record->second.arrival[index_of(kind)];
  };
  const std::uint64_t arrival = arrival_of();
  if (arrival == 0) return false;
  call.lock.unlock();
  try {
    store_of(tier).verify(step, [](std::uint64_t) { return true; });
    return true;
  } catch (const Error& error) {
    if (error.code() == Errc::damaged || error.code() == Errc::not_found) {
      call.lock.lock();
      note_failure_of(step, error.what());
      // Where another tier has it, it is written again from there.
      if (arrival_of() == arrival) changing([&] { core_->catalog.found_damaged(step, tier); });
      core_->go_on();
    }
    throw;
  }
}

void Engine::close() {
  core_->check_process();
  Lock lock(core_->mutex);
  if (core_->closing) {  // by another thread: closed it is when that is done
    while (!ended_) core_->changed.wait(lock);
    return;
  }
  core_->closing = true;
  core_->changed.notify_all();
  while (calls_ > 0) core_->changed.wait(lock);
  std::exception_ptr error;
  try {
    discard_all_consumed(lock);
    Caller caller(*core_, lock, TraceEvent::Kind::flush, 0, Clock::now());
    flush(lock, false);
    caller.done();
  } catch (...) {
    error = std::current_exception();
  }
  const bool leave = error || core_->broken || is_cache(static_cast<int>(kinds_.size()) - 1);
  lock.unlock();
  end(leave);
  lock.lock();
  if (core_->trace) {
    try {
      core_->trace->write();
    } catch (...) {
      if (!error) error = std::current_exception();
    }
  }
  ended_ = true;
  core_->changed.notify_all();
  if (error) std::rethrow_exception(error);
}

// Ends the threads and gives everything back; a region keeps what it has if it is to be left.
void Engine::end(bool leave) {
  status_.reset();
  stop_threads();
  {
    const Lock lock(core_->mutex);
    core_->note_losses = nullptr;
  }
  // Work of streams that still reads the caches, or writes them.
  const auto wait_for = [](Event& event) {
    try {
      event.synchronize();
    } catch (...) {  // it has ended, and its stream's user hears of it
    }
  };
  for (const Arrival& arrival : arrivals_) wait_for(*arrival.event);  // of a history that broke
  for (const RangeFences& fences : fences_) {
    for (const auto& event : fences.over(0, ~std::uint64_t{0})) wait_for(*event);
  }
  gpu_.reset();
  for (auto* memory : {&host_, &partner_}) {
    if (*memory) (*memory)->close(leave);
    memory->reset();
  }
  bounce_.reset();
  for (auto& store : stores_) store.reset();
  if (together_) together_->talk.reset();  // perhaps MPI's, which may end now
}

}  // namespace holdfast::history
