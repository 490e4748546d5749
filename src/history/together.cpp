// Collective calls, and what follows from them.
#include "history/together.hpp"

#include <algorithm>
#include <utility>

#include "history/engine.hpp"
#include "history/placement.hpp"

namespace holdfast::history {

using holdfast::detail::concat;

namespace {

constexpr char kOpen[] = "History::open()";

// In the order of the saves.
std::vector<Version> versions_of(std::vector<const StepInfo*> infos) {
  std::stable_sort(infos.begin(), infos.end(), [](const StepInfo* a, const StepInfo* b) {
    return a->saved_at_ns < b->saved_at_ns;
  });
  std::vector<Version> versions;
  versions.reserve(infos.size());
  for (const StepInfo* info : infos) versions.push_back({info->step, info->stamp});
  return versions;
}

std::vector<Offer> offers_of(const std::vector<RankTalk::Bytes>& all) {
  std::vector<Offer> offers;
  offers.reserve(all.size());
  for (const RankTalk::Bytes& bytes : all) offers.push_back(decode(bytes));
  return offers;
}

}  // namespace

std::unique_ptr<Engine> Engine::open(const HistoryOptions& options) {
  if (!options.ranks) {
    if (options.node_host_bytes == 0 && options.node_disk_bytes == 0) {
      return std::make_unique<Engine>(options);
    }
    throw Error(Errc::invalid_argument,
                "History::open: the budgets of a node are shared by ranks: give ranks, too");
  }
  const auto talk = std::make_shared<RankTalk>(options.ranks, options.ranks_timeout);
  try {
    const Placement placement = place(options, *talk);
    std::unique_ptr<Together> together;
    if (options.coupling == Coupling::tight) {
      together = std::make_unique<Together>();
      together->talk = talk;
      together->run = placement.run;
    }
    auto engine =
        std::make_unique<Engine>(placement.options, nullptr, std::move(together), placement.title);
    // A save of this run must not meet a rank that has not seen what it lacks.
    engine->set_opened(false);  // before all ranks have come here
    talk->exchange(kOpen, {});
    engine->set_opened(true);
    return engine;
  } catch (...) {
    if (!talk->has_failed()) talk->tell_failure(kOpen, std::current_exception());
    throw;
  }
}

Offer Engine::found_offer(const std::vector<StepInfo> (&stored)[kTierKinds]) {
  std::vector<const StepInfo*> all, durable;
  for (const auto& infos : stored) {
    for (const StepInfo& info : infos) durable.push_back(&info);
  }
  all = durable;
  for (const Tier kind : kinds_) {
    const HostTier* const memory = memory_of(kind);
    if (!memory) continue;
    for (const HostTier::Found& found : memory->found()) all.push_back(&found.info);
  }
  return {versions_of(all), versions_of(durable), std::nullopt};
}

// Leaves of what was found what all ranks have, in the same order on all of them. The files of the
// rest stay: they are not offered, and a save of their number replaces them.
void Engine::agree_on_found(std::vector<StepInfo> (&stored)[kTierKinds]) {
  Together& own = *together_;
  const auto offers = offers_of(own.talk->exchange(kOpen, encode(found_offer(stored))));
  Agreed agreed = history::agree(offers, own.talk->rank());
  own.run = std::max(own.run, agreed.last_run + 1);
  own.found = std::move(agreed.complete);
  own.lacks = std::move(agreed.lacks);
  own.stored = std::move(agreed.stored);
  std::map<Step, std::size_t> place;
  for (const Step step : agreed.order) place.emplace(step, place.size());
  for (auto& infos : stored) {
    std::erase_if(infos,
                  [&](const StepInfo& info) { return !own.is_complete(info.step, info.stamp); });
    std::sort(infos.begin(), infos.end(), [&](const StepInfo& a, const StepInfo& b) {
      return place.at(a.step) < place.at(b.step);
    });
  }
}

// What this rank has in a tier or a slower one. REQUIRES: the mutex is held.
Offer Engine::offer_of(Tier tier) const {
  std::vector<const StepInfo*> all, durable;
  const auto add = [](std::vector<const StepInfo*>& list, const StepInfo& info) {
    if (list.empty() || list.back() != &info) list.push_back(&info);
  };
  for (const auto& [step, record] : records_) {
    if (!core_->catalog.contains(step)) continue;
    for (const Tier kind : kinds_) {
      if (!is_there(step, kind)) continue;
      if (kind >= tier) add(all, record.info);
      if (kind >= Tier::disk) add(durable, record.info);
    }
  }
  Offer offer{versions_of(all), versions_of(durable), std::nullopt};
  // What is still on its way may come to be what all have.
  const bool others = std::any_of(records_.begin(), records_.end(), [&](const auto& entry) {
    return core_->catalog.contains(entry.first);
  });
  if (together_ && !others) offer.dropped = together_->keeper;
  return offer;
}

Agreed Engine::agree(Tier tier, const char* name) {
  Call call(*this);
  Lock& lock = call.lock;
  const Offer mine = offer_of(tier);
  if (!together_) return history::agree(std::span(&mine, 1), 0);
  ++together_->agreeing;
  lock.unlock();
  try {
    const auto offers = offers_of(together_->talk->exchange(name, encode(mine)));
    Agreed agreed = history::agree(offers, together_->talk->rank());
    lock.lock();
    --together_->agreeing;
    note_agreed(agreed);
    return agreed;
  } catch (...) {
    if (!lock.owns_lock()) {
      lock.lock();
      --together_->agreeing;
    }
    release_held();
    throw;
  }
}

// Of what has come into a tier. Throws not_found where it has gone since. REQUIRES: the mutex is
// held.
Stamp Engine::stamp_of(const Ticket::State& state, Tier tier) const {
  const auto record = records_.find(state.step);
  if (record != records_.end() && record->second.ticket.get() == &state &&
      core_->catalog.contains(state.step)) {
    for (const Tier kind : kinds_) {
      if (kind >= tier && is_there(state.step, kind)) {
        return record->second.info.stamp;
      }
    }
  }
  throw Error(Errc::not_found, name_of(state.step) + " was discarded, or is no longer whole");
}

void Engine::wait_for_all(const Ticket& ticket, Tier tier) {
  constexpr char kName[] = "History::wait_for_all()";
  Ticket::State& state = *ticket.state();
  if (state.core != core_) {
    throw Error(Errc::invalid_argument, "wait_for_all: a ticket of another history");
  }
  if (!together_) return wait_for(state, tier, std::nullopt);
  Call call(*this);
  Lock& lock = call.lock;
  Version mine{state.step, {}};
  lock.unlock();
  RankTalk& talk = *together_->talk;
  bool counted = false;
  const auto end = [&](bool all_have_it) {
    lock.lock();
    if (counted) --together_->agreeing;
    if (all_have_it && tier >= Tier::disk) {
      together_->stored[mine.step] = mine.stamp;
      together_->keeper.reset();
      retain_agreed();
    }
    release_held();
  };
  try {
    const auto deadline = std::chrono::steady_clock::now() + talk.timeout();
    try {
      wait_for(state, tier, deadline);
      lock.lock();
      mine.stamp = stamp_of(state, tier);
      ++together_->agreeing;  // not before: removals may be what the wait was for
      counted = true;
      lock.unlock();
    } catch (...) {
      if (lock.owns_lock()) lock.unlock();
      talk.tell_failure(kName, std::current_exception());
      throw;
    }
    // Another rank may still wait for its own.
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    const auto all =
        talk.exchange(kName, encode(Offer{{mine}, {}, {}}), std::max(left, decltype(left)(0)));
    for (const Offer& offer : offers_of(all)) {
      if (offer.versions == std::vector<Version>{mine}) continue;
      throw Error(Errc::invalid_argument,
                  concat("wait_for_all: the ranks wait for checkpoint ", mine.step, " and for ",
                         offer.versions.empty() ? 0 : offer.versions[0].step,
                         ", or for different saves of one number: all of them give the ticket of "
                         "the same save"));
    }
  } catch (...) {
    end(false);
    throw;
  }
  end(true);
}

// REQUIRES: the mutex is held.
void Engine::note_agreed(const Agreed& agreed) {
  Together& own = *together_;
  own.stored = agreed.stored;
  if (!own.stored.empty() || agreed.dropped == own.keeper) own.keeper.reset();
  retain_agreed();
  release_held();
}

// What the rule of retention no longer keeps, by what all ranks are known to have.
void Engine::retain_agreed() {
  Together& own = *together_;
  if (options_.keep_last == 0 && options_.keep_every == 0) return;
  std::uint64_t left = std::max<std::uint64_t>(options_.keep_last, 1);
  auto first = own.stored.end();
  while (left > 0 && first != own.stored.begin()) {
    --first;
    if (is_stored(first->first)) --left;
  }
  if (left > 0) return;
  const Step kept = first->first;
  const auto goes = [&](Step step) {
    return step < kept && (options_.keep_every == 0 || step % options_.keep_every != 0);
  };
  changing([&] {
    for (const Step step : core_->catalog.steps()) {
      if (goes(step)) core_->catalog.discard(step);
    }
    note_evictions();
    std::erase_if(own.lacks, [&](const auto& entry) {
      if (!goes(entry.first)) return false;
      for (const Tier kind : kinds_) {
        if (kind < Tier::disk || core_->catalog.knows(entry.first)) continue;
        if (has_file(*stores_[index_of(kind)], entry.first)) queue_removal(entry.first, {}, kind);
      }
      return true;
    });
  });
  core_->go_on();
}

// Whole on disk or remote, and to be restored.
bool Engine::is_stored(Step step) const {
  if (!core_->catalog.contains(step)) return false;
  return std::any_of(kinds_.begin(), kinds_.end(), [&](Tier kind) {
    return kind >= Tier::disk && is_whole(core_->catalog.state(step, tier_of(kind)));
  });
}

// Whether a file may be removed, as far as other ranks are concerned.
bool Engine::may_go(const Version& version) {
  Together& own = *together_;
  if (own.agreeing > 0 || own.keeper == version) return false;
  const auto at = own.stored.find(version.step);
  if (at == own.stored.end() || at->second != version.stamp) return true;
  own.stored.erase(at);
  const bool others = std::any_of(own.stored.rbegin(), own.stored.rend(),
                                  [&](const auto& entry) { return is_stored(entry.first); });
  if (!others) own.keeper = version;
  return others;
}

void Engine::queue_removal(Step step, const Stamp& stamp, Tier kind) {
  if (together_ && !may_go({step, stamp})) {
    together_->held[{step, kind}] = stamp;
    return;
  }
  removals_.insert({step, kind});
  removal_due_.notify_one();
}

// REQUIRES: the mutex is held.
void Engine::release_held() {
  if (together_->agreeing > 0) return;
  for (const auto& [file, stamp] : std::exchange(together_->held, {})) {
    queue_removal(file.first, stamp, file.second);
  }
  core_->go_on();
}

}  // namespace holdfast::history
