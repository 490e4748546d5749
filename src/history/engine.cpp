#include "history/engine.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <utility>

#include "core/event_access.hpp"
#include "core/files.hpp"
#include "core/guard.hpp"

namespace holdfast::history {

using holdfast::detail::concat;

namespace {

// Where parts stand in a blob: what kernels and copies like best.
constexpr std::uint64_t kPartAlignment = 256;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

void Core::check_whole() const {
  if (!broken) return;
  try {
    std::rethrow_exception(broken);
  } catch (const std::exception&) {
    const Error error = core::current_error("the history");
    throw Error(error.code(), concat("this history cannot go on: ", error.what(),
                                     "; close it and open it again: what is on disk is whole"));
  }
}

void Core::lock_soon(std::unique_lock<std::mutex>& lock) {
  constexpr int kTries = 1000, kPause = 10;  // some ten microseconds
  for (int i = 0; i < kTries; ++i) {
    if (lock.try_lock()) return;
    for (int k = 0; k < kPause; ++k) std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  lock.lock();
}

// visit(sleeper) for each lane that sleeps and may go on.
template <class Visit>
void Core::for_each_due(const Visit& visit) {
  for (int tier = 0; tier < catalog.tiers(); ++tier) {
    if (flushers[tier].asleep && catalog.may_flush(tier)) visit(flushers[tier]);
    if (fetchers[tier].asleep && catalog.may_fetch(tier)) visit(fetchers[tier]);
  }
}

void Core::go_on() {
  changed.notify_all();
  for_each_due([](Sleeper& sleeper) { sleeper.due.notify_one(); });
}

void Core::go_on(std::unique_lock<std::mutex>& lock) {
  std::condition_variable* due[2 * Catalog::kMaxTiers];
  std::size_t count = 0;
  for_each_due([&](Sleeper& sleeper) { due[count++] = &sleeper.due; });
  lock.unlock();
  changed.notify_all();
  for (std::size_t i = 0; i < count; ++i) due[i]->notify_one();
  lock.lock();
}

bool Core::go_on_soon() {
  if (catalog.waiting_callers() > 0) {
    go_on();
  } else {
    changed.notify_all();
    lanes_due = true;
  }
  return dispatcher_rests;
}

Engine::~Engine() {
  try {
    close();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "holdfast: history: %s\n", error.what());
  }
}

Engine::Lock Engine::open_lock() {
  core_->check_process();
  Lock lock(core_->mutex, std::defer_lock);
  Core::lock_soon(lock);
  if (core_->closing) throw Error(Errc::closed, "this history is closed: open it again");
  core_->check_whole();
  note_losses();
  if (!consumed_.empty() && discard_consumed()) (void)core_->go_on_soon();
  return lock;
}

void Engine::break_with(std::exception_ptr error) {
  if (!core_->broken) core_->broken = std::move(error);
  wake_all();
}

std::uint64_t Engine::room_of(const StepInfo& info) const {
  const bool region = !options_.host_region.empty() || !options_.partner_region.empty();
  return region ? HostTier::room_of(info) : info.bytes;
}

std::byte* Engine::address(int tier, std::uint64_t offset) {
  const HostTier* const memory = memory_of(kind_of(tier));
  return (memory ? memory->data() : gpu_.data()) + offset;
}

// --- Arrays
// ----------------------------------------------------------------------------------------

void Engine::protect(std::string_view name, const Array& array) {
  const Lock lock = open_lock();
  const auto refuse = [&](const std::string& why) {
    throw Error(Errc::invalid_argument, "protect '" + std::string(name) + "': " + why);
  };
  if (name.empty()) refuse("a name has at least one character");
  if (name.size() >= kPartNameBytes) {
    refuse("a name has at most " + std::to_string(kPartNameBytes - 1) + " bytes");
  }
  if (name.find('\0') != name.npos) refuse("a name has no zero byte");
  if (!array.data || array.bytes == 0) refuse("there is nothing to save");
  if (array.bytes > kMaxStepBytes) refuse("more than a checkpoint can have");
  if (array.memory != BufferMemory::device && array.memory != BufferMemory::host) {
    refuse("an unknown memory");
  }
  const auto found = arrays_.find(name);
  if (found == arrays_.end()) {
    arrays_.emplace(name, array);
  } else if (found->second == array) {
    return;
  } else {
    found->second = array;
  }
  layout_ = nullptr;
  layout_fits_ = false;
}

void Engine::unprotect(std::string_view name) {
  const Lock lock = open_lock();
  const auto found = arrays_.find(name);
  if (found == arrays_.end()) return;
  arrays_.erase(found);
  layout_ = nullptr;
  layout_fits_ = false;
}

std::vector<Part> Engine::protected_parts() const {
  std::vector<Part> parts;
  std::uint64_t offset = 0;
  for (const auto& [name, array] : arrays_) {
    parts.push_back({name, offset, array.bytes});
    offset += (array.bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
  }
  return parts;
}

std::shared_ptr<const Layout> Engine::layout_for(Step step) {
  if (arrays_.empty()) {
    throw Error(Errc::invalid_argument,
                name_of(step) + ": there is no array to save: protect() one before save()");
  }
  if (!layout_) layout_ = make_layout(protected_parts());
  if (!layout_fits_) check_info({step, layout_->bytes, layout_->parts, 0});
  layout_fits_ = true;
  return layout_;
}

std::shared_ptr<const Layout> Engine::layout_of(const StepInfo& info) {
  if (!layout_) layout_ = make_layout(protected_parts());
  if (layout_->parts == info.parts) return layout_;
  check_parts(info, layout_->parts, name_of(info.step));
  return make_layout(info.parts);
}

// REQUIRES: the parts are protected.
std::shared_ptr<const Layout> Engine::make_layout(std::vector<Part> parts) const {
  auto layout = std::make_shared<Layout>();
  layout->pieces.reserve(parts.size());
  for (const Part& part : parts) {
    const Array& array = arrays_.find(part.name)->second;
    layout->pieces.push_back({part.offset, array.data, part.bytes});
    layout->bytes = std::max(layout->bytes, part.offset + part.bytes);
    layout->waits |= array.memory == BufferMemory::host;
  }
  std::sort(layout->pieces.begin(), layout->pieces.end(),
            [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  layout->room = room_of({0, layout->bytes, parts, 0});
  layout->parts = std::move(parts);
  return layout;
}

// --- Saves
// -----------------------------------------------------------------------------------------

void Engine::raise_pending_error() {
  if (options_.on_error != OnError::raise) return;
  std::exception_ptr error = std::exchange(pending_error_, nullptr);
  for (auto& [step, unflushed] : unflushed_) {
    if (!std::exchange(unflushed.raised, true) && !error) error = unflushed.error;
  }
  if (error) std::rethrow_exception(error);
}

void Engine::refuse_full(Step step, std::uint64_t bytes) {
  std::string message = concat(name_of(step), ": no tier has room for ", core::human_bytes(bytes));
  message += last_failure_.empty()
                 ? ": discard checkpoints, or give the history larger caches or a disk"
                 : ", since what would make room fails: " + last_failure_;
  throw Error(Errc::no_space, message);
}

// A save of this checkpoint whose copies are still queued is waited for here, and not by way of the
// thread that takes arrivals in their order.
void Engine::await_arrival(Lock& lock, Step step) {
  const auto of_step = [&](const Arrival& arrival) { return arrival.transfer.step == step; };
  const auto found = std::find_if(arrivals_.begin(), arrivals_.end(), of_step);
  if (found == arrivals_.end()) {
    core_->changed.wait(lock);
    return;
  }
  const Arrival own = Arrival(*found);  // another may take it meanwhile
  lock.unlock();
  std::exception_ptr error;
  try {
    own.event->synchronize();
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  const auto again = std::find_if(arrivals_.begin(), arrivals_.end(), of_step);
  if (again == arrivals_.end() || again->transfer.id != own.transfer.id) return;
  arrivals_.erase(again);
  if (core_->trace) trace_copy(own, error);
  finish(own.transfer, error ? Outcome::failed : Outcome::done, error);
  core_->go_on();
}

// Asks until the answer is not to wait.
template <class Question>
Answer Engine::ask(Lock& lock, Caller& caller, Question&& question) {
  std::optional<Core::Waiting> waiting;
  for (;;) {
    const Answer answer = question();
    changing([&] { note_evictions(); });
    if (answer.verdict != Answer::Verdict::wait) {
      caller.goes_on();
      return answer;
    }
    core_->check_whole();
    if (core_->closing) throw Error(Errc::closed, "this history was closed meanwhile");
    if (!waiting) {
      waiting.emplace(*core_);
      ++stats_.waits;
    }
    caller.waits(answer.tier);
    await_arrival(lock, caller.step());
  }
}

// REQUIRES: the mutex is held; it is on return, and may not be behind a throw.
void Engine::queue_save(Call& call, const history::Transfer& transfer, const StepInfo& info,
                        const Layout& layout, Stream& stream,
                        const std::shared_ptr<Ticket::State>& ticket, Caller& caller) {
  Lock& lock = call.lock;
  if (!is_cache(transfer.to)) {
    caller.begins_direct();
    lock.unlock();
    StepStore& store = store_of(transfer.to);
    remove_file(store, info.step);
    write_behind_removals(kind_of(transfer.to), [&] {
      return bounce_->callers.write(store, info, layout.pieces, stream,
                                    [](std::uint64_t) { return true; });
    });
    lock.lock();
    caller.ends_direct(transfer, Outcome::done);
    finish(transfer, Outcome::done, nullptr);
    call.wakes_dispatcher = core_->go_on_soon();
    return;
  }
  come_behind(transfer.to, transfer.to_offset, transfer.bytes, stream);
  const std::int64_t queued = core_->trace ? core_->trace->now() : 0;
  lock.unlock();
  std::byte* const to = address(transfer.to, transfer.to_offset);
  for (const Piece& piece : layout.pieces) {
    copy_async(stream, to + piece.offset, piece.data, piece.bytes);
  }
  std::shared_ptr<Event> copied = core_->events.take();
  copied->record(stream);
  if (layout.waits) copied->synchronize();
  Core::lock_soon(lock);
  arrivals_.push_back({transfer, copied, &stream.impl(), queued});
  ticket->copied = std::move(copied);
  call.wakes_dispatcher = core_->dispatcher_rests;  // nobody else can go on before they have ended
}

std::shared_ptr<Ticket::State> Engine::save(Step step, Stream& stream, bool keep) {
  const auto start = std::chrono::steady_clock::now();
  Call call(*this);
  Lock& lock = call.lock;
  Caller caller(*core_, lock, TraceEvent::Kind::save, step, start);
  raise_pending_error();
  if (step == kGap) {
    throw Error(Errc::invalid_argument, "the largest number there is cannot be a checkpoint's");
  }
  const std::shared_ptr<const Layout> layout = layout_for(step);
  auto ticket = std::make_shared<Ticket::State>();
  ticket->core = core_;
  ticket->step = step;
  std::copy(std::begin(numbers_), std::end(numbers_), ticket->tiers);
  const Answer answer = ask(lock, caller, [&] {
    if (core_->catalog.is_lost(step)) drop(step);  // its files make way
    if (is_being_removed(step)) return Answer{Answer::Verdict::wait, {}};
    const Answer room =
        changing([&] { return core_->catalog.begin_save(step, layout->room, keep); });
    // A queued restore may be about to give up its number, and its room.
    const bool comes =
        room.verdict == Answer::Verdict::exists ? is_consumed(step) : !consumed_.empty();
    const bool waits = comes && room.verdict != Answer::Verdict::go;
    return waits ? Answer{Answer::Verdict::wait, {}} : room;
  });
  if (answer.verdict == Answer::Verdict::exists) {
    throw Error(Errc::already_exists,
                name_of(step) + " is there already, and never changes: discard() it first");
  }
  if (answer.verdict == Answer::Verdict::full) refuse_full(step, layout->bytes);

  try {
    // It stays where it is while the transfer goes on.
    Record& record = records_[step];
    note_save_time(now_ns());
    record.info = {step, layout->bytes, layout->parts, last_save_ns_, {}};
    if (together_) record.info.stamp = together_->begin_save(step);
    record.ticket = ticket;
    record.id = ++saves_counted_;
    // A file that could not be removed is replaced by this one's, which must not be removed for it.
    std::erase_if(failed_removals_, [&](const auto& failed) { return failed.first.first == step; });
    queue_save(call, answer.transfer, record.info, *layout, stream, ticket, caller);
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    if (lock.owns_lock()) lock.unlock();
    try {
      stream.synchronize();  // copies that were queued must not run into what comes next here
    } catch (...) {
    }
    lock.lock();
    finish(answer.transfer, Outcome::failed, error);
    call.wakes_dispatcher = core_->go_on_soon();
    std::rethrow_exception(error);
  }
  ++stats_.saves.checkpoints;
  stats_.saves.bytes += layout->bytes;
  stats_.save_seconds += seconds_since(start);
  caller.done(answer.transfer);
  return ticket;
}

// --- Restores
// --------------------------------------------------------------------------------------

// Without the mutex.
Outcome Engine::restore_from(const history::Transfer& transfer, const Layout& layout,
                             Stream& stream, std::shared_ptr<Event>& done) {
  if (is_cache(transfer.from)) {
    const std::byte* from = address(transfer.from, transfer.from_offset);
    for (const Piece& piece : layout.pieces) {
      copy_async(stream, piece.data, from + piece.offset, piece.bytes);
    }
    done = core_->events.take();
    done->record(stream);
    if (layout.waits) done->synchronize();
    return Outcome::done;
  }
  try {
    bounce_->callers.read(store_of(transfer.from), transfer.step, layout.pieces, stream,
                          [](std::uint64_t) { return true; });
    done = core_->events.take();  // the copies have ended, perhaps with their stream
    done->record(stream);
    return Outcome::done;
  } catch (const Error& error) {
    if (error.code() != Errc::damaged && error.code() != Errc::not_found) throw;
    const Lock lock(core_->mutex);
    note_failure_of(transfer.step, error.what());
    return Outcome::damaged;
  }
}

void Engine::refuse_unknown(Step step) const {
  for (const Tier kind : kinds_) {
    if (kind < Tier::disk) continue;
    const auto file = damaged_file(*stores_[index_of(kind)], step);
    if (file) throw Error(file->code, file->reason);
  }
  const std::string lacks = together_ ? together_->who_lacks(step) : std::string();
  throw Error(Errc::not_found,
              name_of(step) + (lacks.empty() ? " is not in this history: steps() has what is"
                                             : " is not complete: " + lacks + "; save it again"));
}

// A damaged copy goes with the last who reads it. The others give way to restores, so who asked
// again at once would read it for ever.
void Engine::await_other_readers(Lock& lock, const history::Transfer& transfer) {
  const auto is_read = [&] {
    const auto& others = core_->catalog.transfers();
    return std::any_of(others.begin(), others.end(), [&](const history::Transfer& other) {
      return other.step == transfer.step && other.from == transfer.from;
    });
  };
  if (!is_read()) return;
  const Core::Waiting waiting(*core_);
  while (is_read() && !core_->broken) core_->changed.wait(lock);
}

void Engine::restore(Step step, Stream& stream, bool keep) {
  const auto start = std::chrono::steady_clock::now();
  Call call(*this);
  Lock& lock = call.lock;
  Caller caller(*core_, lock, TraceEvent::Kind::restore, step, start);
  for (;;) {
    std::shared_ptr<const Layout> layout;
    const Answer answer = ask(lock, caller, [&] {
      const auto record = records_.find(step);
      if (record == records_.end() || !core_->catalog.contains(step)) {
        return Answer{Answer::Verdict::not_found, {}};
      }
      layout = layout_of(record->second.info);
      return changing([&] { return core_->catalog.begin_restore(step, keep); });
    });
    if (answer.verdict == Answer::Verdict::not_found) refuse_unknown(step);
    if (answer.verdict == Answer::Verdict::lost) {
      const auto record = records_.find(step);
      const bool known = record != records_.end() && !record->second.failure.empty();
      throw Error(Errc::damaged, name_of(step) + ": no tier has it whole any longer: " +
                                     (known ? record->second.failure : last_failure_) +
                                     "; discard() it, and compute it again");
    }
    const history::Transfer& transfer = answer.transfer;
    const bool from_cache = is_cache(transfer.from);
    caller.is_served_from(transfer.from);
    if (!from_cache) {
      ++demands_;
      caller.begins_direct();
    }
    lock.unlock();
    Outcome outcome = Outcome::failed;
    std::exception_ptr error;
    std::shared_ptr<Event> done;
    try {
      outcome = restore_from(transfer, *layout, stream, done);
    } catch (...) {
      error = std::current_exception();
      try {
        stream.synchronize();
      } catch (...) {
      }
    }
    Core::lock_soon(lock);
    if (!from_cache) {
      --demands_;
      note_read();
      caller.ends_direct(transfer, outcome);
    }
    if (done && from_cache) {
      try {
        fences_[transfer.from].add(transfer.from_offset, transfer.bytes, done);
      } catch (...) {  // no memory: then it is waited for
        lock.unlock();
        try {
          done->synchronize();
        } catch (...) {
        }
        lock.lock();
      }
    }
    finish(transfer, outcome, error);
    if (outcome == Outcome::done && options_.discard_consumed && !transfer.keep) {
      consumed(step, std::move(done), &stream.impl());
    }
    call.wakes_dispatcher = core_->go_on_soon();
    if (error) std::rethrow_exception(error);
    if (outcome == Outcome::damaged) {  // another tier may have it
      await_other_readers(lock, transfer);
      continue;
    }
    ++stats_.restores.checkpoints;
    stats_.restores.bytes += layout->bytes;
    ++stats_.restored_from[index_of(kind_of(transfer.from))].checkpoints;
    stats_.restored_from[index_of(kind_of(transfer.from))].bytes += layout->bytes;
    stats_.restore_seconds += seconds_since(start);
    caller.done(transfer);
    return;
  }
}

// --- The rest
// --------------------------------------------------------------------------------------

// Ends a call of the program that has changed something.
void Engine::go_on_soon(Lock& lock) {
  if (!core_->go_on_soon()) return;
  lock.unlock();
  core_->dispatch.notify_one();
}

void Engine::hint(std::span<const Step> steps) {
  Lock lock = open_lock();
  changing([&] {
    for (const Step step : steps) core_->catalog.hint(step);
  });
  if (Trace* const trace = core_->trace.get()) {
    const std::int64_t now = trace->now();  // by which the hints of one call are known
    for (const Step step : steps) {
      TraceEvent event;
      event.kind = TraceEvent::Kind::hint;
      event.begin_ns = event.end_ns = now;
      event.step = step;
      event.thread = thread_number();
      trace->note(event);
    }
  }
  go_on_soon(lock);
}

void Engine::prefetch_start() {
  const Lock lock = open_lock();
  core_->catalog.start_prefetch();
  if (core_->trace) trace_moment(TraceEvent::Kind::prefetch_start, 0);
  core_->go_on();
}

std::uint64_t Engine::size(Step step, std::string_view name) {
  const Lock lock = open_lock();
  const auto record = records_.find(step);
  if (record == records_.end() || !core_->catalog.contains(step)) refuse_unknown(step);
  for (const Part& part : record->second.info.parts) {
    if (part.name == name) return part.bytes;
  }
  throw Error(Errc::not_found, name_of(step) + " has no array '" + std::string(name) +
                                   "': it has " + std::to_string(record->second.info.parts.size()) +
                                   " others");
}

bool Engine::drop(Step step) {
  return changing([&] {
    const bool known = core_->catalog.discard(step);
    note_evictions();
    forget_if_gone(step);
    return known;
  });
}

bool Engine::discard(Step step) {
  Lock lock = open_lock();
  const bool there = drop(step);
  bool remains = false;
  for (const Tier kind : kinds_) {
    if (there || kind < Tier::disk || core_->catalog.knows(step)) continue;
    if (removals_.contains({step, kind}) || !has_file(*stores_[index_of(kind)], step)) continue;
    if (together_ && together_->held.contains({step, kind})) continue;
    removals_.insert({step, kind});
    removal_due_.notify_one();
    remains = true;
  }
  go_on_soon(lock);
  return there || remains;
}

std::vector<Step> Engine::steps() {
  const Lock lock = open_lock();
  std::vector<Step> steps;
  for (const auto& [step, record] : records_) {
    if (core_->catalog.contains(step) && !core_->catalog.is_lost(step)) steps.push_back(step);
  }
  return steps;
}

bool Engine::is_in(Step step, Tier tier) {
  const Lock lock = open_lock();
  return is_there(step, tier);
}

std::optional<Step> Engine::latest(Tier tier) {
  const Lock lock = open_lock();
  const StepInfo* latest = nullptr;
  for (const auto& [step, record] : records_) {
    if (!is_there(step, tier)) continue;
    if (!latest || is_saved_before(*latest, record.info)) latest = &record.info;
  }
  return latest ? std::optional(latest->step) : std::nullopt;
}

HistoryStats Engine::stats() {
  const Lock lock = open_lock();
  HistoryStats stats = stats_;
  stats.prefetch_distance = core_->catalog.prefetch_distance();
  for (const auto& [step, record] : records_) {
    for (const Tier kind : kinds_) {
      if (!is_whole(core_->catalog.state(step, tier_of(kind)))) continue;
      ++stats.held_in[index_of(kind)].checkpoints;
      stats.held_in[index_of(kind)].bytes += record.info.bytes;
    }
  }
  return stats;
}

}  // namespace holdfast::history
