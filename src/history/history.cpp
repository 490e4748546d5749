#include "holdfast/history.hpp"

#include <utility>

#include "core/event_access.hpp"
#include "core/guard.hpp"
#include "history/engine.hpp"

namespace holdfast {

namespace {

void check_tier(Tier tier, const char* what) {
  if (index_of(tier) < kTierKinds) return;
  throw Error(Errc::invalid_argument, std::string(what) + ": an unknown tier");
}

}  // namespace

const char* to_string(Tier tier) noexcept {
  switch (tier) {
    case Tier::gpu:
      return "gpu";
    case Tier::host:
      return "host";
    case Tier::partner:
      return "partner";
    case Tier::disk:
      return "disk";
    case Tier::remote:
      return "remote";
  }
  return "unknown";
}

// --- Ticket
// ----------------------------------------------------------------------------------------

namespace {

Ticket::State& state_of(const std::shared_ptr<Ticket::State>& state) {
  if (!state) detail::throw_moved_from("ticket");
  return *state;
}

std::shared_ptr<Event> copied_of(const Ticket::State& state) {
  state.core->check_process();
  const std::lock_guard lock(state.core->mutex);
  return state.copied;
}

// Its own checkpoint, and not another of that number, which would have ended it. REQUIRES: the
// mutex is held.
bool is_there(const Ticket::State& state) {
  return !state.gone && state.core->catalog.contains(state.step);
}

// What a storage tier had may have been damaged since. REQUIRES: the mutex is held.
bool came_to(const Ticket::State& state, Tier tier) {
  const int number = state.tiers[index_of(tier)];
  if (number < 0 || !is_there(state)) return false;
  if (tier >= Tier::partner && state.core->note_losses) state.core->note_losses();
  if (tier == Tier::partner && !state.core->partner_lost.empty()) return false;
  if (tier < Tier::disk) return state.was_in[index_of(tier)];
  return history::is_whole(state.core->catalog.state(state.step, number));
}

}  // namespace

std::uint64_t Ticket::step() const { return state_of(state_).step; }

bool Ticket::staged() const {
  const auto copied = copied_of(state_of(state_));
  return !copied || core::EventAccess::ended(*copied);
}

void Ticket::wait_staged() const {
  if (const auto copied = copied_of(state_of(state_))) copied->synchronize();
}

bool Ticket::is_in(Tier tier) const {
  State& state = state_of(state_);
  check_tier(tier, "Ticket::is_in");
  state.core->check_process();
  const std::lock_guard lock(state.core->mutex);
  return came_to(state, tier);
}

void Ticket::wait(Tier tier) const {
  check_tier(tier, "Ticket::wait");
  history::wait_for(state_of(state_), tier, std::nullopt);
}

namespace history {

void wait_for(Ticket::State& state, Tier tier,
              std::optional<std::chrono::steady_clock::time_point> deadline) {
  const std::string name = "checkpoint " + std::to_string(state.step);
  const int number = state.tiers[index_of(tier)];
  if (number < 0) {
    throw Error(Errc::not_found,
                name + ": this history has no tier '" + to_string(tier) + "' to wait for");
  }
  state.core->check_process();
  const auto begin = history::Clock::now();
  std::unique_lock lock(state.core->mutex);
  history::Caller caller(*state.core, lock, history::TraceEvent::Kind::ticket, state.step, begin);
  const history::Core::Waiting waiting(*state.core);
  for (;;) {
    if (came_to(state, tier)) return caller.done();
    if (state.error) std::rethrow_exception(state.error);
    if (!is_there(state)) throw Error(Errc::not_found, name + " was discarded");
    if (state.core->closed) throw Error(Errc::closed, name + ": its history is closed");
    state.core->check_whole();
    if (tier == Tier::partner && !state.core->partner_lost.empty()) {
      throw Error(Errc::io,
                  name + " is not kept in the tier 'partner': " + state.core->partner_lost);
    }
    if (!state.core->catalog.will_reach(state.step, number)) {
      throw Error(Errc::no_space,
                  name + " has no room in the tier '" + to_string(tier) +
                      "', and nothing that goes on will make some: discard() others");
    }
    caller.waits_for(history::TraceEvent::Why::durable, number);
    if (!deadline) {
      state.core->changed.wait(lock);
    } else if (std::chrono::steady_clock::now() >= *deadline) {
      throw Error(Errc::io,
                  name + " is not in the tier '" + to_string(tier) +
                      "' yet: give ranks_timeout more time, or the history a faster disk");
    } else {
      state.core->changed.wait_until(lock, *deadline);
    }
  }
}

}  // namespace history

// --- History
// ---------------------------------------------------------------------------------------

History History::open(const HistoryOptions& options) try {
  return History(std::make_unique<Impl>(options));
} catch (const std::exception&) {
  core::fail("History::open()");
}

History::History(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
History::~History() = default;
History::History(History&&) noexcept = default;
History& History::operator=(History&&) noexcept = default;

History::Impl& History::impl() const {
  if (!impl_) detail::throw_moved_from("history");
  return *impl_;
}

void History::protect_raw(std::string_view name, void* data, std::uint64_t bytes,
                          BufferMemory memory) try {
  impl().engine.protect(name, {static_cast<std::byte*>(data), bytes, memory});
} catch (const std::exception&) {
  core::fail("History::protect()");
}

void History::unprotect(std::string_view name) { impl().engine.unprotect(name); }

Ticket History::save(std::uint64_t step, Stream& stream, bool keep) try {
  return Ticket(impl().engine.save(step, stream, keep));
} catch (const std::exception&) {
  core::fail("History::save()");
}

void History::restore(std::uint64_t step, Stream& stream, bool keep) try {
  impl().engine.restore(step, stream, keep);
} catch (const std::exception&) {
  core::fail("History::restore()");
}

void History::hint(std::span<const std::uint64_t> steps) try {
  impl().engine.hint(steps);
} catch (const std::exception&) {
  core::fail("History::hint()");
}

void History::prefetch_start() { impl().engine.prefetch_start(); }

std::uint64_t History::size(std::uint64_t step, std::string_view name) const {
  return impl().engine.size(step, name);
}

bool History::discard(std::uint64_t step) { return impl().engine.discard(step); }

std::vector<std::uint64_t> History::steps() const { return impl().engine.steps(); }

bool History::is_in(std::uint64_t step, Tier tier) const {
  check_tier(tier, "History::is_in");
  return impl().engine.is_in(step, tier);
}

std::optional<std::uint64_t> History::latest(Tier tier) const {
  check_tier(tier, "History::latest");
  return impl().engine.latest(tier);
}

std::vector<std::uint64_t> History::agree(Tier tier) try {
  check_tier(tier, "History::agree");
  std::vector<std::uint64_t> steps;
  for (const auto& [step, stamp] : impl().engine.agree(tier, "History::agree()").complete) {
    steps.push_back(step);
  }
  return steps;
} catch (const std::exception&) {
  core::fail("History::agree()");
}

std::optional<std::uint64_t> History::latest_of_all(Tier tier) try {
  check_tier(tier, "History::latest_of_all");
  const history::Agreed agreed = impl().engine.agree(tier, "History::latest_of_all()");
  if (agreed.order.empty()) return std::nullopt;
  return agreed.order.back();
} catch (const std::exception&) {
  core::fail("History::latest_of_all()");
}

void History::wait_for_all(const Ticket& ticket, Tier tier) try {
  check_tier(tier, "History::wait_for_all");
  state_of(ticket.state());
  impl().engine.wait_for_all(ticket, tier);
} catch (const std::exception&) {
  core::fail("History::wait_for_all()");
}

void History::flush() { impl().engine.flush(); }
void History::verify(std::uint64_t step) const { impl().engine.verify(step); }
HistoryStats History::stats() const { return impl().engine.stats(); }
HistorySnapshot History::snapshot() const { return impl().engine.snapshot(); }

void History::close() {
  if (impl_) impl_->engine.close();
}

}  // namespace holdfast
