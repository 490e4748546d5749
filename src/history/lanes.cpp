// The threads of a history.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/event_access.hpp"
#include "core/parallel.hpp"
#include "history/engine.hpp"

namespace holdfast::history {

using Kind = history::Transfer::Kind;

namespace {

// By several threads: one alone, or the driver's, moves a fifth of what memory can.
void copy_in_host(std::span<std::byte> to, const std::byte* from) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  constexpr unsigned kMostThreads = 8;
  core::parallel_for((to.size() + kPiece - 1) / kPiece,
                     std::min(core::worker_count(), kMostThreads), [&](std::size_t i) {
                       const std::size_t at = i * kPiece;
                       std::memcpy(to.data() + at, from + at, std::min(kPiece, to.size() - at));
                     });
}

}  // namespace

// A thread that dies must not leave others waiting for what it would have done.
template <class Body>
void Engine::run_guarded(const Body& body) noexcept {
  try {
    body();
  } catch (...) {
    const Lock lock(core_->mutex);
    break_with(std::current_exception());
  }
}

void Engine::start_threads() {
  const int tiers = core_->catalog.tiers();
  const int device = backend::device_number();
  const auto start = [&](auto body) {
    threads_.emplace_back([this, body, device] {
      run_guarded([&] {
        backend::set_device(device);  // whose are the streams and events of callers, too
        body();
      });
    });
  };
  try {
    start([this] { run_dispatcher(); });
    for (int tier = 0; tier + 1 < tiers; ++tier) {
      start([this, tier] { run_lane(Kind::flush, tier); });
      if (kind_of(tier) == Tier::partner) continue;  // nothing is fetched into it
      start([this, tier] { run_lane(Kind::fetch, tier); });
    }
    if (bounce_) start([this] { run_housekeeper(); });
  } catch (...) {
    stop_threads();
    throw;
  }
}

// What is under way of flushes ends; what is not durable by now is not.
void Engine::stop_threads() {
  {
    const Lock lock(core_->mutex);
    stopping_ = true;
    core_->closing = core_->closed = true;
    wake_all();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Engine::wake_all() {
  core_->changed.notify_all();
  core_->dispatch.notify_all();
  removal_due_.notify_all();
  for (auto* const sleepers : {core_->flushers, core_->fetchers}) {
    for (int tier = 0; tier < Catalog::kMaxTiers; ++tier) sleepers[tier].due.notify_all();
  }
}

// Takes saves whose copies have ended, and says whether there were any. Streams end in any order,
// and one that is held up must not keep the saves of others from their flushes; so the first of
// each is asked, and none is waited for. They are asked without the mutex, since a question may
// have to wait for another call of the driver.
bool Engine::take_arrivals(Lock& lock) {
  struct Head {
    const void* stream;
    std::uint64_t id;
    std::shared_ptr<Event> event;
    bool ended = false;
    std::exception_ptr error = nullptr;
  };
  std::vector<Head> heads;
  for (const Arrival& arrival : arrivals_) {
    const bool first = std::none_of(heads.begin(), heads.end(), [&](const Head& head) {
      return head.stream == arrival.stream;
    });
    if (first) heads.push_back({arrival.stream, arrival.transfer.id, arrival.event});
  }
  if (heads.empty()) return false;
  lock.unlock();
  for (Head& head : heads) {
    head.ended = core::EventAccess::ended(*head.event);
    if (!head.ended) continue;
    try {
      head.event->synchronize();
    } catch (...) {
      head.error = std::current_exception();
    }
  }
  lock.lock();
  bool any = false;
  for (Head& head : heads) {
    if (!head.ended) continue;
    const auto arrival = std::find_if(arrivals_.begin(), arrivals_.end(), [&](const Arrival& one) {
      return one.transfer.id == head.id;
    });
    if (arrival == arrivals_.end()) continue;  // a caller has taken it
    const Arrival own = std::move(*arrival);
    arrivals_.erase(arrival);
    if (core_->trace) trace_copy(own, head.error);
    finish(own.transfer, head.error ? Outcome::failed : Outcome::done, head.error);
    any = true;
  }
  return any;
}

void Engine::run_dispatcher() {
  using Clock = std::chrono::steady_clock;
  using std::chrono::microseconds;
  constexpr microseconds kShortestNap{20}, kLongestNap{1000}, kWatch{100'000};
  Core& core = *core_;
  auto last = Clock::now();  // that something happened
  std::size_t left = 0;
  Lock lock(core.mutex);
  while (!core.broken) {
    if (arrivals_.empty() && stopping_) return;
    bool busy = arrivals_.size() > left;
    busy |= take_arrivals(lock);
    busy |= !consumed_.empty() && discard_consumed();
    busy |= std::exchange(core.lanes_due, false);
    left = arrivals_.size();
    const auto now = Clock::now();
    if (busy) {
      core.go_on(lock);
      last = now;
      continue;
    }
    if (arrivals_.empty() && consumed_.empty() && now - last > kWatch) {
      core.dispatcher_rests = true;
      core.dispatch.wait(lock);
      core.dispatcher_rests = false;
      last = Clock::now();
      continue;
    }
    const auto since = std::chrono::duration_cast<microseconds>(now - last) / 4;
    const auto longest = core.catalog.waiting_callers() > 0 ? 5 * kShortestNap : kLongestNap;
    core.dispatch.wait_for(lock, std::clamp(since, kShortestNap, longest));
  }
}

// Of what another device's memory gets the next copy is queued before the one in front of it has
// ended: what the host has to do in between takes a good part of the time that such a copy takes.
// All else is one after the other.
void Engine::run_lane(Kind kind, int tier) {
  Core::Sleeper& sleeper = (kind == Kind::flush ? core_->flushers : core_->fetchers)[tier];
  Lock lock(core_->mutex);
  std::optional<Stream> stream;
  std::optional<LaneCopy> queued;
  for (;;) {
    const bool ends = stopping_ || core_->broken;
    if (ends && !queued) return;
    std::optional<history::Transfer> transfer;
    if (!ends) {
      transfer = changing([&] {
        auto next =
            kind == Kind::flush ? core_->catalog.next_flush(tier) : core_->catalog.next_fetch(tier);
        note_evictions();
        return next;
      });
    }
    if (!transfer && !queued) {
      sleeper.asleep = true;
      sleeper.due.wait(lock);
      sleeper.asleep = false;
      continue;
    }
    std::optional<LaneCopy> next;
    if (transfer) next = LaneCopy{*transfer, records_.at(transfer->step).info};
    if (next && is_queued_ahead(*transfer)) queue_copy(lock, *next, stream);
    if (queued) end_copy(lock, *std::exchange(queued, std::nullopt));
    if (!next) continue;
    if (next->end || next->error) {
      queued = std::move(next);
    } else {
      run_transfer(lock, *next, stream);
    }
    if (queued) begin_work(*queued);
  }
}

void Engine::begin_work(LaneCopy& copy) {
  LaneWork& work = work_of(copy.transfer);
  copy.begin = work.begin = Clock::now();
  work.paused_ns = 0;
  work.moved = 0;
  if (core_->trace)
    core_->trace->note_held(core_->catalog, core_->trace->since_opening(copy.begin));
}

bool Engine::is_queued_ahead(const history::Transfer& transfer) {
  return transfer.kind == Kind::flush && is_cache(transfer.to) && !is_host_memory(transfer.to);
}

// Sets its end, or its error.
void Engine::queue_copy(Lock& lock, LaneCopy& copy, std::optional<Stream>& stream) {
  const history::Transfer& transfer = copy.transfer;
  try {
    if (!stream) stream.emplace();
    come_behind(transfer.to, transfer.to_offset, transfer.bytes, *stream);
    copy.end = core_->events.take();
    lock.unlock();
    copy_async(*stream, address(transfer.to, transfer.to_offset),
               address(transfer.from, transfer.from_offset), copy.info.bytes);
    copy.end->record(*stream);
  } catch (...) {
    copy.error = std::current_exception();
    if (lock.owns_lock()) return;
    try {
      stream->synchronize();  // what was queued must not run into what comes next there
    } catch (...) {
    }
  }
  lock.lock();
}

void Engine::end_copy(Lock& lock, LaneCopy copy) {
  lock.unlock();
  try {
    if (!copy.error) copy.end->synchronize();
  } catch (...) {
    copy.error = std::current_exception();
  }
  lock.lock();
  end_transfer(copy, copy.error ? Outcome::failed : Outcome::done);
  core_->go_on(lock);
}

void Engine::run_transfer(Lock& lock, LaneCopy& copy, std::optional<Stream>& stream) {
  const history::Transfer& transfer = copy.transfer;
  begin_work(copy);
  Outcome outcome = Outcome::failed;
  const bool fetches = transfer.kind == Kind::fetch && !is_cache(transfer.from);
  if (fetches) ++prefetches_;
  lock.unlock();
  try {
    if (!stream) stream.emplace();
    outcome = move(transfer, copy.info, *stream, copy.error);
  } catch (...) {
    copy.error = std::current_exception();
  }
  lock.lock();
  // The next one, if there is one, is begun before a flush could go on.
  if (fetches) {
    --prefetches_;
    note_read();
  }
  end_transfer(copy, outcome);
  if (fetches) {
    core_->go_on();
  } else {
    core_->go_on(lock);
  }
}

void Engine::end_transfer(const LaneCopy& copy, Outcome outcome) {
  const history::Transfer& transfer = copy.transfer;
  const double seconds = std::chrono::duration<double>(Clock::now() - copy.begin).count();
  if (transfer.kind == Kind::flush && outcome == Outcome::done && copy.info.bytes > 0) {
    double& average = seconds_per_byte_[transfer.from];
    const double own = seconds / static_cast<double>(copy.info.bytes);
    average = average == 0 ? own : 0.75 * average + 0.25 * own;
    core_->catalog.set_costs(transfer.from, average);
  }
  if (core_->trace) trace_lane(transfer, outcome, copy.error);
  finish(transfer, outcome, copy.error);
  if (core_->trace) core_->trace->note_held(core_->catalog, core_->trace->now());
}

// Removes files of what was discarded.
void Engine::run_housekeeper() {
  Lock lock(core_->mutex);
  while (!core_->broken) {
    if (removals_.empty()) {
      if (stopping_) return;
      removal_due_.wait(lock);
      continue;
    }
    const auto removal = *removals_.begin();
    const auto [step, kind] = removal;
    lock.unlock();
    std::exception_ptr error;
    try {
      remove_file(*stores_[index_of(kind)], step);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    removals_.erase(removal);
    if (error) {
      failed_removals_[removal] = error;
      ++stats_.failed_transfers;
      warn_or_keep(step, error);
    } else {
      ++removals_made_;
      retry_flushes();  // there may be room now
    }
    core_->go_on();
  }
}

// Callers wait, and not all of them for fetches.
bool Engine::waits_for_more_than_fetches() const {
  int for_fetches = 0;
  for (const Caller* caller = core_->callers; caller; caller = caller->next()) {
    for_fetches += caller->why() == TraceEvent::Why::fetch;
  }
  return core_->catalog.waiting_callers() > for_fetches;
}

// A restore that keeps its caller waiting goes before a prefetch, and that before a flush that
// nobody waits for. Who perhaps waits for this transfer must not wait for ever: the stream of a
// restore may wait for that caller. A fetch that is under way has its room, and needs no flush.
// Reads come one behind the other, with the program's computing between them or its next restore,
// which makes room: a flush that goes on at once has as many chunks under way as threads when the
// next one comes, and is waited for. So it gives way for a while longer.
bool Engine::gives_way(const history::Transfer& transfer) const {
  if (transfer.kind == Kind::fetch) {
    return demands_ > 0 && core_->catalog.waiting_callers() == 0;
  }
  const bool is_read = demands_ > 0 || prefetches_ > 0 || Clock::now() < quiet_until_;
  return is_read && !waits_for_more_than_fetches();
}

// A restore or a fetch has read the disk. REQUIRES: the mutex is held.
void Engine::note_read() {
  constexpr std::chrono::milliseconds kQuiet{20};
  quiet_until_ = Clock::now() + kQuiet;
}

// Whether a transfer goes on. It gives way for so long at most, chunk by chunk: a program that
// restores without a pause would never have its saves on disk, and what it gives way to may wait
// for a stream. Somebody may come to wait for a fetch by way of the latter, and for a flush only by
// a call that ends its pause; and each chunk of a flush takes its time from what is read.
bool Engine::keep_pace(const history::Transfer& transfer, std::uint64_t moved) {
  work_of(transfer).moved = moved;
  const std::chrono::milliseconds longest{transfer.kind == Kind::fetch ? 50 : 250};
  Lock lock(core_->mutex);
  const auto begin = Clock::now();
  for (;;) {
    if (core_->catalog.is_cancelled(transfer) || core_->broken) return false;
    if (stopping_) return transfer.kind == Kind::flush;
    const auto pause = Clock::now();
    if (!gives_way(transfer) || pause - begin >= longest) return true;
    // Nobody tells of the end of the quiet, and of all else each does.
    const bool quiet = demands_ == 0 && prefetches_ == 0;
    const auto end = begin + longest;
    core_->changed.wait_until(lock, quiet ? std::min(quiet_until_, end) : end);
    work_of(transfer).paused_ns += std::chrono::nanoseconds(Clock::now() - pause).count();
  }
}

Outcome Engine::move(const history::Transfer& transfer, const StepInfo& info, Stream& stream,
                     std::exception_ptr& error) {
  // Whose fault an error would be.
  bool faulty_source = transfer.kind == Kind::fetch && !is_cache(transfer.from);
  Outcome outcome = Outcome::failed;
  try {
    if (move_bytes(transfer, info, stream, faulty_source)) outcome = Outcome::done;
  } catch (const Error& met) {
    error = std::current_exception();
    const bool gone = met.code() == Errc::damaged || met.code() == Errc::not_found;
    if (faulty_source && gone) outcome = Outcome::damaged;
  } catch (...) {
    error = std::current_exception();
  }
  return outcome;
}

// From storage to storage, through a chunk of memory.
bool Engine::send(const history::Transfer& transfer, const StepInfo& info, StepStore& to,
                  bool& faulty_source) {
  faulty_source = true;
  const std::unique_ptr<StepReader> reader = store_of(transfer.from).open_reader(info.step);
  faulty_source = false;
  const AlignedBytes chunk(kChunkBytes);
  return to.write_chunks(
      info,
      [&](std::uint64_t offset, std::uint64_t bytes) {
        faulty_source = true;
        reader->read(offset, chunk.span().first(bytes));
        faulty_source = false;
        return std::span<const std::byte>(chunk.data(), bytes);
      },
      [&](std::uint64_t moved) { return keep_pace(transfer, moved); }, reader->hashes());
}

// False: it was given up. `faulty_source`: an exception that is thrown now is the source's.
bool Engine::move_bytes(const history::Transfer& transfer, const StepInfo& info, Stream& stream,
                        bool& faulty_source) {
  const auto pace = [&](std::uint64_t moved) { return keep_pace(transfer, moved); };
  const auto bytes_at = [&](int tier, std::uint64_t offset) {
    return std::span<std::byte>(address(tier, offset), info.bytes);
  };
  if (!is_cache(transfer.to)) {
    StepStore& store = store_of(transfer.to);
    remove_file(store, info.step);
    return write_behind_removals(kind_of(transfer.to), [&] {
      if (!is_cache(transfer.from)) return send(transfer, info, store, faulty_source);
      const auto from = bytes_at(transfer.from, transfer.from_offset);
      if (is_host_memory(transfer.from)) return store.write(info, from, pace);
      return bounce_->flushes.write(store, info, {{0, from.data(), from.size()}}, stream, pace);
    });
  }
  const auto to = bytes_at(transfer.to, transfer.to_offset);
  if (is_cache(transfer.from)) {
    if (is_host_memory(transfer.from) && is_host_memory(transfer.to)) {
      {
        Lock lock(core_->mutex);
        wait_behind(lock, transfer.to, transfer.to_offset, transfer.bytes);
      }
      copy_in_host(to, address(transfer.from, transfer.from_offset));
      return true;
    }
    {
      const Lock lock(core_->mutex);
      come_behind(transfer.to, transfer.to_offset, transfer.bytes, stream);
    }
    copy_async(stream, to.data(), address(transfer.from, transfer.from_offset), info.bytes);
    stream.synchronize();
    return true;
  }
  {
    Lock lock(core_->mutex);
    wait_behind(lock, transfer.to, transfer.to_offset, transfer.bytes);
  }
  StepStore& store = store_of(transfer.from);
  if (is_host_memory(transfer.to)) return store.read(info.step, to, pace);
  return bounce_->fetches.read(store, info.step, {{0, to.data(), to.size()}}, stream, pace);
}

}  // namespace holdfast::history
