// What follows from a change of the catalog. The mutex is held.
#include <atomic>
#include <cstdio>
#include <utility>

#include "core/event_access.hpp"
#include "history/engine.hpp"

namespace holdfast::history {

namespace {

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "an unknown exception";
  }
}

}  // namespace

void Engine::finish(const history::Transfer& transfer, Outcome outcome,
                    const std::exception_ptr& error) {
  using Kind = history::Transfer::Kind;
  changing([&] {
    const Step step = transfer.step;
    core_->catalog.finish(transfer, outcome);
    const auto found = records_.find(step);
    if (outcome == Outcome::done && transfer.to != kProgram) {
      const Tier tier = kind_of(transfer.to);
      const std::size_t kind = index_of(tier);
      if (found != records_.end()) {
        found->second.arrival[kind] = ++arrivals_counted_;
        if (found->second.ticket) {
          found->second.ticket->was_in[kind] = true;
          if (transfer.kind == Kind::save) found->second.ticket->copied = nullptr;
        }
        if (HostTier* const memory = memory_of(tier)) {
          memory->keep(found->second.info, transfer.to_offset);
        }
      }
      if (transfer.kind != Kind::save) {
        auto& count = transfer.kind == Kind::flush ? stats_.flushed_to : stats_.fetched_to;
        ++count[kind].checkpoints;
        if (found != records_.end()) count[kind].bytes += found->second.info.bytes;
      }
      if (together_ && transfer.kind == Kind::save) together_->counts.add(step);
      if (transfer.kind == Kind::flush || transfer.kind == Kind::refill)
        unflushed_.erase({step, transfer.from});
      if (tier >= Tier::disk) retain();
    }
    if (error) {
      note_failure(transfer, error);
      retain();  // what is given up counts as coming no more
    }
    note_evictions();
    forget_if_gone(step);
  });
  note_losses();
}

void Engine::note_failure_of(Step step, const std::string& why) {
  last_failure_ = why;
  const auto found = records_.find(step);
  if (found != records_.end()) found->second.failure = why;
}

void Engine::note_failure(const history::Transfer& transfer, const std::exception_ptr& error) {
  using Kind = history::Transfer::Kind;
  ++stats_.failed_transfers;
  note_failure_of(transfer.step, message_of(error));
  const auto found = records_.find(transfer.step);
  const auto ticket = found == records_.end() ? nullptr : found->second.ticket;
  if (transfer.kind == Kind::save) {
    if (!ticket) return;
    ticket->error = error;
    // What a save() has thrown is not thrown again by the next.
    if (ticket->copied) warn_or_keep(transfer.step, error);
  }
  const bool given_up =
      transfer.kind == Kind::flush    ? core_->catalog.flush_given_up(transfer.step, transfer.from)
      : transfer.kind == Kind::refill ? core_->catalog.refill_given_up(transfer.step)
                                      : false;
  if (!given_up) return;
  if (ticket) ticket->error = error;
  unflushed_[{transfer.step, transfer.from}] = {error};
  if (options_.on_error == OnError::warn) warn(transfer.step, error);
}

void Engine::warn(Step step, const std::exception_ptr& error) {
  std::fprintf(stderr, "holdfast: history: checkpoint %llu: %s\n",
               static_cast<unsigned long long>(step), message_of(error).c_str());
}

// For the next flush(), or save() if it is to throw it.
void Engine::warn_or_keep(Step step, const std::exception_ptr& error) {
  if (options_.on_error == OnError::warn) warn(step, error);
  if (!pending_error_) pending_error_ = error;
}

void Engine::retry_flushes() {
  for (const Step step : changing([&] { return core_->catalog.retry_flushes(); })) {
    const auto record = records_.find(step);
    if (record != records_.end() && record->second.ticket) record->second.ticket->error = nullptr;
  }
}

void Engine::note_evictions() {
  if (core_->catalog.evicted().empty()) return;
  for (const auto& [tier, step] : core_->catalog.evicted()) {
    const auto record = records_.find(step);
    auto& count = stats_.evicted_from[index_of(kind_of(tier))];
    ++count.checkpoints;
    const std::uint64_t bytes = record == records_.end() ? 0 : record->second.info.bytes;
    count.bytes += bytes;
    if (core_->trace) {
      const bool stays = core_->catalog.contains(step);
      trace_moment(stays ? TraceEvent::Kind::evicted : TraceEvent::Kind::discarded, step, tier,
                   bytes);
    }
    if (HostTier* const memory = memory_of(kind_of(tier))) memory->forget(step);
    // Where there is no record forget_if_gone() has seen to the files.
    if (!is_cache(tier) && record != records_.end()) {
      queue_removal(step, record->second.info.stamp, kind_of(tier));
    }
    forget_if_gone(step);
  }
  core_->catalog.forget_evicted();
}

void Engine::forget_if_gone(Step step) {
  const auto record = records_.find(step);
  if (record == records_.end() || core_->catalog.knows(step)) return;
  if (record->second.ticket) record->second.ticket->gone = true;
  const Stamp stamp = record->second.info.stamp;
  records_.erase(record);
  std::erase_if(unflushed_, [&](const auto& entry) { return entry.first.first == step; });
  // The files of a checkpoint whose every copy was damaged, which the catalog has dropped before;
  // one that could not be taken back; and one of another checkpoint that had the number.
  for (const Tier kind : kinds_) {
    if (kind < Tier::disk || !has_file(*stores_[index_of(kind)], step)) continue;
    queue_removal(step, stamp, kind);
  }
}

// What the rule of retention no longer keeps goes. What pushes a checkpoint out is in the last
// tier, so that this always has the newest that reached it; but one that will not come there is let
// go by what is stored anywhere, or a remote tier that fails would let the disk grow without an
// end.
void Engine::retain() {
  if (together_) return;  // retain_agreed()
  const Catalog& catalog = core_->catalog;
  const int last = catalog.tiers() - 1;
  if ((options_.keep_last == 0 && options_.keep_every == 0) || is_cache(last)) return;
  const std::uint64_t most = std::max<std::uint64_t>(options_.keep_last, 1);
  const auto is_stored = [&](Step step) {
    for (int tier = 0; tier <= last; ++tier) {
      if (!is_cache(tier) && is_whole(catalog.state(step, tier))) return true;
    }
    return false;
  };
  std::uint64_t newer_there = 0, newer_stored = 0;
  std::vector<Step> victims;
  for (auto record = records_.rbegin(); record != records_.rend(); ++record) {
    const Step step = record->first;
    if (!catalog.contains(step) || !is_stored(step)) continue;
    const bool there = is_whole(catalog.state(step, last));
    const bool comes = there || catalog.will_reach(step, last);
    const bool stays = (comes ? newer_there : newer_stored) < most ||
                       (options_.keep_every > 0 && step % options_.keep_every == 0);
    newer_there += there;
    ++newer_stored;
    if (!stays) victims.push_back(step);
  }
  for (const Step step : victims) core_->catalog.discard(step);
}

void Engine::come_behind(int tier, std::uint64_t offset, std::uint64_t bytes, Stream& stream) {
  if (HostTier* const memory = memory_of(kind_of(tier))) memory->begin_writing();
  // A stream that failed has ended with these bytes; it does not stop who gets them.
  std::shared_ptr<std::atomic<bool>> failed;
  const std::uint64_t room = core_->catalog.space(tier).rounded(bytes);
  fences_[tier].for_each_over(offset, room, [&](const std::shared_ptr<Event>& event) {
    if (!failed) failed = std::make_shared<std::atomic<bool>>(false);
    core::EventAccess::wait(*event, stream, failed);
  });
}

void Engine::wait_behind(Lock& lock, int tier, std::uint64_t offset, std::uint64_t bytes) {
  if (HostTier* const memory = memory_of(kind_of(tier))) memory->begin_writing();
  const auto events = fences_[tier].over(offset, core_->catalog.space(tier).rounded(bytes));
  lock.unlock();
  for (const auto& event : events) {
    try {
      event->synchronize();
    } catch (...) {  // it has ended
    }
  }
  lock.lock();
}

}  // namespace holdfast::history
