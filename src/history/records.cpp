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
  Catalog& catalog = core_->catalog;
  const Step step = transfer.step;
  catalog.finish(transfer, outcome);
  const auto found = records_.find(step);
  const std::shared_ptr<Ticket::State> ticket =
      found == records_.end() ? nullptr : found->second.ticket;
  if (outcome == Outcome::done && transfer.to != kProgram) {
    const std::size_t kind = index_of(kind_of(transfer.to));
    if (found != records_.end()) found->second.arrival[kind] = ++arrivals_counted_;
    if (ticket) ticket->was_in[kind] = true;
    if (transfer.kind != Kind::save) {
      auto& count = transfer.kind == Kind::flush ? stats_.flushed_to : stats_.fetched_to;
      ++count[kind].checkpoints;
      count[kind].bytes += transfer.bytes;
    }
    if (kind_of(transfer.to) == Tier::disk) retain();
  }
  if (error) {
    ++stats_.failed_transfers;
    last_failure_ = message_of(error);
    const bool given_up =
        transfer.kind == Kind::flush && catalog.flush_given_up(step, transfer.from);
    if (ticket && (given_up || transfer.kind == Kind::save)) ticket->error = error;
    // What a save() has thrown is not thrown again by the next.
    if (given_up || (transfer.kind == Kind::save && ticket && ticket->copied)) {
      if (options_.on_error == OnError::warn) {
        std::fprintf(stderr, "holdfast: history: checkpoint %llu: %s\n",
                     static_cast<unsigned long long>(step), last_failure_.c_str());
      } else if (!pending_error_) {
        pending_error_ = error;
      }
    }
  }
  note_evictions();
  forget_if_gone(step);
  core_->changed.notify_all();
}

void Engine::note_evictions() {
  for (const auto& [tier, step] : core_->catalog.take_evicted()) {
    const auto record = records_.find(step);
    auto& count = stats_.evicted_from[index_of(kind_of(tier))];
    ++count.checkpoints;
    if (record != records_.end()) count.bytes += record->second.info.bytes;
    if (!is_cache(tier)) {
      removals_.insert(step);
      core_->changed.notify_all();
    }
    forget_if_gone(step);
  }
}

void Engine::forget_if_gone(Step step) {
  const auto record = records_.find(step);
  if (record == records_.end() || core_->catalog.knows(step)) return;
  if (record->second.ticket) record->second.ticket->gone = true;
  records_.erase(record);
}

// What the rule of retention no longer keeps on disk goes.
void Engine::retain() {
  if (options_.keep_last == 0 && options_.keep_every == 0) return;
  const std::uint64_t last = std::max<std::uint64_t>(options_.keep_last, 1);
  const int disk = tier_of(Tier::disk);
  std::uint64_t newer = 0;
  std::vector<Step> victims;
  for (auto record = records_.rbegin(); record != records_.rend(); ++record) {
    const Step step = record->first;
    if (!core_->catalog.contains(step) || !is_whole(core_->catalog.state(step, disk))) continue;
    const bool stays = newer < last || (options_.keep_every > 0 && step % options_.keep_every == 0);
    ++newer;
    if (!stays) victims.push_back(step);
  }
  for (const Step step : victims) core_->catalog.discard(step);
}

void Engine::come_behind(int tier, std::uint64_t offset, std::uint64_t bytes, Stream& stream) {
  // A stream that failed has ended with these bytes; it does not stop who gets them.
  const auto failed = std::make_shared<std::atomic<bool>>(false);
  const std::uint64_t room = core_->catalog.space(tier).rounded(bytes);
  for (const auto& event : fences_[tier].take(offset, room)) {
    core::EventAccess::wait(*event, stream, failed);
  }
}

void Engine::wait_behind(Lock& lock, int tier, std::uint64_t offset, std::uint64_t bytes) {
  const auto events = fences_[tier].take(offset, core_->catalog.space(tier).rounded(bytes));
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
