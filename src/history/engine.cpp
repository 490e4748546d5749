#include "history/engine.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <utility>

#include "core/event_access.hpp"
#include "core/files.hpp"

namespace holdfast::history {

using holdfast::detail::concat;

namespace {

// Where parts stand in a blob: what kernels and copies like best.
constexpr std::uint64_t kPartAlignment = 256;

std::string name_of(Step step) { return "checkpoint " + std::to_string(step); }

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::vector<TierSpec> specs_of(const HistoryOptions& options) {
  std::vector<TierSpec> specs;
  specs.reserve(kTierKinds);
  if (options.gpu_bytes > 0) specs.push_back({.capacity = options.gpu_bytes, .alignment = 4096});
  if (options.host_bytes > 0) specs.push_back({.capacity = options.host_bytes, .alignment = 4096});
  if (!options.disk.empty()) specs.push_back({.capacity = options.disk_bytes, .storage = true});
  if (specs.empty()) {
    throw Error(Errc::invalid_argument,
                "History::open: no tier: set gpu_bytes, host_bytes or disk");
  }
  for (const TierSpec& spec : specs) {
    if (spec.storage || spec.capacity >= spec.alignment) continue;
    throw Error(Errc::invalid_argument, concat("History::open: a cache of ", spec.capacity,
                                               " bytes: at least ", spec.alignment));
  }
  return specs;
}

}  // namespace

Engine::Engine(const HistoryOptions& options)
    : options_(options),
      core_(std::make_shared<Core>(
          specs_of(options), Catalog::Options{.discard_consumed = options.discard_consumed})) {
  std::fill(std::begin(numbers_), std::end(numbers_), -1);
  const auto add = [&](Tier kind, bool there) {
    if (!there) return;
    numbers_[index_of(kind)] = static_cast<int>(kinds_.size());
    kinds_.push_back(kind);
  };
  add(Tier::gpu, options.gpu_bytes > 0);
  add(Tier::host, options.host_bytes > 0);
  add(Tier::disk, !options.disk.empty());
  if (!options.disk.empty()) {
    disk_ = open_folder_store(options.disk);
    bounce_ = std::make_unique<Bounces>();
    for (const StepInfo& info : disk_->steps()) {
      records_[info.step].info = info;
      core_->catalog.adopt(info.step, info.bytes, tier_of(Tier::disk));
    }
    // Of those of earlier processes it is known which came last, and no more.
    if (const auto latest = disk_->latest()) {
      records_[*latest].arrival[index_of(Tier::disk)] = ++arrivals_counted_;
    }
  }
  if (options.gpu_bytes > 0) gpu_ = DeviceBuffer<std::byte>(options.gpu_bytes);
  if (options.host_bytes > 0) host_ = PinnedBuffer<std::byte>(options.host_bytes);
  start_threads();
}

Engine::~Engine() {
  if (!maker_.is_this_process()) return;
  try {
    close();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "holdfast: history: %s\n", error.what());
  }
}

Engine::Lock Engine::open_lock() {
  if (!maker_.is_this_process()) {
    maker_.refuse("this history", "open one of the child's own, in another folder");
  }
  Lock lock(core_->mutex);
  if (core_->closed) throw Error(Errc::closed, "this history is closed: open it again");
  return lock;
}

std::byte* Engine::address(int tier, std::uint64_t offset) const {
  return (kind_of(tier) == Tier::gpu ? gpu_.data() : host_.data()) + offset;
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
  arrays_.insert_or_assign(std::string(name), array);
}

void Engine::unprotect(std::string_view name) {
  const Lock lock = open_lock();
  const auto found = arrays_.find(name);
  if (found != arrays_.end()) arrays_.erase(found);
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

StepInfo Engine::layout(Step step) const {
  if (arrays_.empty()) {
    throw Error(Errc::invalid_argument,
                name_of(step) + ": there is no array to save: protect() one before save()");
  }
  StepInfo info;
  info.step = step;
  info.parts = protected_parts();
  info.bytes = info.parts.back().offset + info.parts.back().bytes;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  info.saved_at_ns = static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000u +
                     static_cast<std::uint64_t>(now.tv_nsec);
  return info;
}

std::vector<Piece> Engine::pieces_of(const StepInfo& info, bool* waits) const {
  std::vector<Piece> pieces;
  *waits = false;
  for (const Part& part : info.parts) {
    const Array& array = arrays_.find(part.name)->second;
    pieces.push_back({part.offset, array.data, part.bytes});
    *waits |= array.memory == BufferMemory::host;
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.offset < b.offset; });
  return pieces;
}

// --- Saves
// -----------------------------------------------------------------------------------------

void Engine::raise_pending_error() {
  if (!pending_error_) return;
  const std::exception_ptr error = std::exchange(pending_error_, nullptr);
  if (options_.on_error == OnError::raise) std::rethrow_exception(error);
}

void Engine::refuse_full(const StepInfo& info) {
  std::string message =
      concat(name_of(info.step), ": no tier has room for ", core::human_bytes(info.bytes));
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
  const history::Transfer transfer = found->transfer;  // another may take it meanwhile
  const std::shared_ptr<Event> event = found->event;
  lock.unlock();
  std::exception_ptr error;
  try {
    event->synchronize();
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  const auto again = std::find_if(arrivals_.begin(), arrivals_.end(), of_step);
  if (again == arrivals_.end() || again->transfer.id != transfer.id) return;
  arrivals_.erase(again);
  finish(transfer, error ? Outcome::failed : Outcome::done, error);
}

// Asks until the answer is not to wait.
Answer Engine::ask(Lock& lock, Step step, const std::function<Answer()>& question) {
  struct Waiting {
    explicit Waiting(Core& core_of) : core(core_of) {
      core.catalog.caller_waits();
      core.changed.notify_all();
    }
    ~Waiting() { core.catalog.caller_goes_on(); }
    Core& core;
  };
  std::optional<Waiting> waiting;
  for (;;) {
    const Answer answer = question();
    note_evictions();
    if (answer.verdict != Answer::Verdict::wait) return answer;
    if (core_->closed) throw Error(Errc::closed, "this history was closed meanwhile");
    if (!waiting) {
      waiting.emplace(*core_);
      ++stats_.waits;
    }
    await_arrival(lock, step);
  }
}

std::shared_ptr<Ticket::State> Engine::save(Step step, Stream& stream, bool keep) {
  const auto start = std::chrono::steady_clock::now();
  Lock lock = open_lock();
  raise_pending_error();
  if (step == kGap) {
    throw Error(Errc::invalid_argument, "the largest number there is cannot be a checkpoint's");
  }
  const StepInfo info = layout(step);
  bool waits = false;
  const std::vector<Piece> pieces = pieces_of(info, &waits);
  const Answer answer = ask(lock, step, [&] {
    if (removals_.contains(step)) return Answer{Answer::Verdict::wait, {}};
    return core_->catalog.begin_save(step, info.bytes, keep);
  });
  if (answer.verdict == Answer::Verdict::exists) {
    throw Error(Errc::already_exists,
                name_of(step) + " is there already, and never changes: discard() it first");
  }
  if (answer.verdict == Answer::Verdict::full) refuse_full(info);

  const history::Transfer& transfer = answer.transfer;
  auto ticket = std::make_shared<Ticket::State>();
  ticket->core = core_;
  ticket->step = step;
  for (const Tier kind : kinds_) ticket->has_tier[index_of(kind)] = true;
  Record& record = records_[step];
  record.info = info;
  record.ticket = ticket;
  try {
    if (is_cache(transfer.to)) {
      come_behind(transfer.to, transfer.to_offset, info.bytes, stream);
      lock.unlock();
      std::byte* to = address(transfer.to, transfer.to_offset);
      for (const Piece& piece : pieces)
        copy_async(stream, to + piece.offset, piece.data, piece.bytes);
      auto copied = std::make_shared<Event>();
      copied->record(stream);
      if (waits) copied->synchronize();
      lock.lock();
      ticket->copied = copied;
      arrivals_.push_back({transfer, std::move(copied)});
      core_->changed.notify_all();
    } else {
      lock.unlock();
      bounce_->callers.write(*disk_, info, pieces, stream, [](std::uint64_t) { return true; });
      lock.lock();
      finish(transfer, Outcome::done, nullptr);
    }
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    try {
      stream.synchronize();  // copies that were queued must not run into what comes next here
    } catch (...) {
    }
    if (!lock.owns_lock()) lock.lock();
    finish(transfer, Outcome::failed, error);
    std::rethrow_exception(error);
  }
  ++stats_.saves.checkpoints;
  stats_.saves.bytes += info.bytes;
  stats_.save_seconds += seconds_since(start);
  return ticket;
}

// --- Restores
// --------------------------------------------------------------------------------------

// Without the mutex.
Outcome Engine::restore_from(const history::Transfer& transfer, const std::vector<Piece>& pieces,
                             bool waits, Stream& stream, std::shared_ptr<Event>& done) {
  if (is_cache(transfer.from)) {
    const std::byte* from = address(transfer.from, transfer.from_offset);
    for (const Piece& piece : pieces) {
      copy_async(stream, piece.data, from + piece.offset, piece.bytes);
    }
    done = std::make_shared<Event>();
    done->record(stream);
    if (waits) done->synchronize();
    return Outcome::done;
  }
  try {
    bounce_->callers.read(*disk_, transfer.step, pieces, stream,
                          [](std::uint64_t) { return true; });
    return Outcome::done;
  } catch (const Error& error) {
    if (error.code() != Errc::damaged) throw;
    const Lock lock(core_->mutex);
    last_failure_ = error.what();
    return Outcome::damaged;
  }
}

void Engine::restore(Step step, Stream& stream, bool keep) {
  const auto start = std::chrono::steady_clock::now();
  Lock lock = open_lock();
  for (;;) {
    std::vector<Piece> pieces;
    bool waits = false;
    const Answer answer = ask(lock, step, [&] {
      const auto record = records_.find(step);
      if (record == records_.end() || !core_->catalog.contains(step)) {
        return Answer{Answer::Verdict::not_found, {}};
      }
      check_parts(record->second.info, protected_parts(), name_of(step));
      pieces = pieces_of(record->second.info, &waits);
      return core_->catalog.begin_restore(step, keep);
    });
    if (answer.verdict == Answer::Verdict::not_found) {
      throw Error(Errc::not_found, name_of(step) + " is not in this history: steps() has what is");
    }
    if (answer.verdict == Answer::Verdict::lost) {
      throw Error(Errc::damaged, name_of(step) + ": no tier has it whole any longer: " +
                                     last_failure_ + "; discard() it, and compute it again");
    }
    const history::Transfer& transfer = answer.transfer;
    const bool from_cache = is_cache(transfer.from);
    if (!from_cache) ++demands_;
    lock.unlock();
    Outcome outcome = Outcome::failed;
    std::exception_ptr error;
    std::shared_ptr<Event> done;
    try {
      outcome = restore_from(transfer, pieces, waits, stream, done);
    } catch (...) {
      error = std::current_exception();
      try {
        stream.synchronize();
      } catch (...) {
      }
    }
    lock.lock();
    if (!from_cache) --demands_;
    if (done) fences_[transfer.from].add(transfer.from_offset, transfer.bytes, done);
    finish(transfer, outcome, error);
    if (error) std::rethrow_exception(error);
    if (outcome == Outcome::damaged) continue;  // another tier may have it
    ++stats_.restores.checkpoints;
    stats_.restores.bytes += transfer.bytes;
    ++stats_.restored_from[index_of(kind_of(transfer.from))].checkpoints;
    stats_.restored_from[index_of(kind_of(transfer.from))].bytes += transfer.bytes;
    stats_.restore_seconds += seconds_since(start);
    return;
  }
}

// --- The rest
// --------------------------------------------------------------------------------------

void Engine::hint(std::span<const Step> steps) {
  const Lock lock = open_lock();
  for (const Step step : steps) core_->catalog.hint(step);
  core_->changed.notify_all();
}

void Engine::prefetch_start() {
  const Lock lock = open_lock();
  core_->catalog.start_prefetch();
  core_->changed.notify_all();
}

std::uint64_t Engine::size(Step step, std::string_view name) {
  const Lock lock = open_lock();
  const auto record = records_.find(step);
  if (record == records_.end() || !core_->catalog.contains(step)) {
    throw Error(Errc::not_found, name_of(step) + " is not in this history: steps() has what is");
  }
  for (const Part& part : record->second.info.parts) {
    if (part.name == name) return part.bytes;
  }
  throw Error(Errc::not_found, name_of(step) + " has no array '" + std::string(name) +
                                   "': it has " + std::to_string(record->second.info.parts.size()) +
                                   " others");
}

bool Engine::discard(Step step) {
  const Lock lock = open_lock();
  const bool there = core_->catalog.discard(step);
  note_evictions();
  forget_if_gone(step);
  core_->changed.notify_all();
  return there;
}

std::vector<Step> Engine::steps() {
  const Lock lock = open_lock();
  std::vector<Step> steps;
  for (const auto& [step, record] : records_) {
    if (core_->catalog.contains(step)) steps.push_back(step);
  }
  return steps;
}

bool Engine::is_in(Step step, Tier tier) {
  const Lock lock = open_lock();
  const int number = tier_of(tier);
  return number >= 0 && core_->catalog.contains(step) &&
         is_whole(core_->catalog.state(step, number));
}

std::optional<Step> Engine::latest(Tier tier) {
  const Lock lock = open_lock();
  const int number = tier_of(tier);
  std::optional<Step> latest;
  std::uint64_t arrival = 0;
  if (number < 0) return latest;
  for (const auto& [step, record] : records_) {
    const std::uint64_t own = record.arrival[index_of(tier)];
    if (!core_->catalog.contains(step) || !is_whole(core_->catalog.state(step, number))) continue;
    if (latest && own < arrival) continue;
    latest = step;
    arrival = own;
  }
  return latest;
}

void Engine::flush() {
  Lock lock = open_lock();
  core_->catalog.caller_waits();
  core_->changed.notify_all();
  while (core_->catalog.flush_pending()) core_->changed.wait(lock);
  core_->catalog.caller_goes_on();
  if (const std::exception_ptr error = std::exchange(pending_error_, nullptr)) {
    std::rethrow_exception(error);
  }
}

void Engine::verify(Step step) {
  {
    const Lock lock = open_lock();
    const int disk = tier_of(Tier::disk);
    if (disk < 0 || !core_->catalog.contains(step) || !is_whole(core_->catalog.state(step, disk))) {
      throw Error(Errc::not_found, name_of(step) + " is not on disk: wait() for its ticket");
    }
  }
  disk_->verify(step, [](std::uint64_t) { return true; });
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

void Engine::close() {
  std::exception_ptr error;
  {
    const Lock lock(core_->mutex);
    if (core_->closed) return;
  }
  try {
    flush();
  } catch (...) {
    error = std::current_exception();
  }
  stop_threads();
  // Work of streams that still reads the caches, or writes them.
  for (RangeFences& fences : fences_) {
    for (const auto& event : fences.take(0, ~std::uint64_t{0})) {
      try {
        event->synchronize();
      } catch (...) {  // it has ended, and its stream's user hears of it
      }
    }
  }
  gpu_.reset();
  host_ = {};
  bounce_.reset();
  disk_.reset();
  if (error) std::rethrow_exception(error);
}

}  // namespace holdfast::history
