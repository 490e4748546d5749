#include "history/catalog.hpp"

#include <algorithm>

#include "history/require.hpp"

namespace holdfast::history {

Catalog::Catalog(const std::vector<TierSpec>& tiers, Options options, const LifeCycleTable& table)
    : options_(options), table_(&table) {
  require(!tiers.empty() && tiers.size() <= kMaxTiers, "one to five tiers");
  for (const TierSpec& spec : tiers) {
    Tier tier;
    tier.spec = spec;
    if (!spec.storage) tier.space = AllocationTable(spec.capacity, spec.alignment);
    tier.fetch_alive = !spec.keeps_newest;
    tiers_.push_back(std::move(tier));
  }
  // What is saved meanwhile passes through the rest, and gaps take some of it.
  if (tiers_.size() > 1 && !is_storage(0) && !is_storage(1)) {
    front_.limit = tiers[0].capacity - tiers[0].capacity / 8;
  }
}

// --- Small questions
// -------------------------------------------------------------------------------

bool Catalog::contains(Step step) const {
  const auto found = checkpoints_.find(step);
  return found != checkpoints_.end() && !found->second.doomed;
}

std::uint64_t Catalog::bytes_of(Step step) const {
  const auto found = checkpoints_.find(step);
  return found == checkpoints_.end() ? 0 : found->second.bytes;
}

State Catalog::state(Step step, int tier) const {
  const auto found = checkpoints_.find(step);
  return found == checkpoints_.end() ? State::absent : found->second.copies[tier].state;
}

std::vector<Step> Catalog::steps() const {
  std::vector<Step> result;
  for (const auto& [step, checkpoint] : checkpoints_) {
    if (!checkpoint.doomed && checkpoint.arrived) result.push_back(step);
  }
  return result;
}

bool Catalog::flush_given_up(Step step, int tier) const {
  const auto found = checkpoints_.find(step);
  return found != checkpoints_.end() &&
         found->second.copies[tier].failed_flushes >= options_.flush_attempts;
}

bool Catalog::flush_pending(const Among& among) const {
  for (const Transfer& transfer : transfers_) {
    if (transfer.kind != Transfer::Kind::save && transfer.kind != Transfer::Kind::flush) continue;
    if (!among || among(transfer.step)) return true;
  }
  for (int tier = 0; tier < tiers(); ++tier) {
    for (const auto& [step, bytes, mark, note] : tier_at(tier).flush_queue) {
      const auto found = checkpoints_.find(step);
      if (found == checkpoints_.end() || found->second.doomed) continue;
      if (!is_alone(found->second.copies[tier].state) || (among && !among(step))) continue;
      if (drains(tier, bytes, Asker::caller)) return true;
    }
  }
  return false;
}

bool Catalog::discard_pending(const Among& among) const {
  return std::any_of(checkpoints_.begin(), checkpoints_.end(), [&](const auto& entry) {
    return entry.second.doomed && (!among || among(entry.first));
  });
}

bool Catalog::will_reach(Step step, int tier) const {
  const auto found = checkpoints_.find(step);
  if (found == checkpoints_.end()) return false;
  for (const Transfer& transfer : transfers_) {
    if (transfer.step != step || transfer.to == kProgram || transfer.to > tier) continue;
    const bool down =
        transfer.kind == Transfer::Kind::save || transfer.kind == Transfer::Kind::flush;
    if (down || transfer.to == tier) return true;
  }
  const Checkpoint& checkpoint = found->second;
  if (tier_at(tier).refills.contains(step) && tier_at(tier).fetch_alive &&
      storage_takes(tier, checkpoint.bytes)) {
    return true;
  }
  for (int above = 0; above < tier; ++above) {
    const Copy& copy = checkpoint.copies[above];
    if (!is_alone(copy.state) || copy.failed_flushes >= options_.flush_attempts) continue;
    if (discard_pending() || drains(above, checkpoint.bytes, Asker::caller)) return true;
  }
  return false;
}

bool Catalog::is_lost(Step step) const {
  const auto found = checkpoints_.find(step);
  if (found == checkpoints_.end() || !found->second.arrived) return false;
  return fastest_whole(found->second) == tiers() && !in_transfer(step);
}

bool Catalog::has_whole_below(const Checkpoint& checkpoint, int tier) const {
  for (int below = tier + 1; below < tiers(); ++below) {
    if (is_whole(checkpoint.copies[below].state)) return true;
  }
  return false;
}

int Catalog::fastest_whole(const Checkpoint& checkpoint) const {
  int tier = 0;
  while (tier < tiers() && !is_whole(checkpoint.copies[tier].state)) ++tier;
  return tier;
}

bool Catalog::in_transfer(Step step) const {
  return std::any_of(transfers_.begin(), transfers_.end(),
                     [&](const Transfer& transfer) { return transfer.step == step; });
}

bool Catalog::is_flushing(Step step, int tier) const {
  return std::any_of(transfers_.begin(), transfers_.end(), [&](const Transfer& transfer) {
    return transfer.step == step && transfer.kind == Transfer::Kind::flush && transfer.from == tier;
  });
}

bool Catalog::is_cancelled(const Transfer& transfer) const {
  const auto found = checkpoints_.find(transfer.step);
  return found != checkpoints_.end() && found->second.doomed;
}

// --- States
// ----------------------------------------------------------------------------------------

void Catalog::apply(Copy& copy, Input input) {
  const std::optional<State> next = next_state(copy.state, input, *table_);
  if (!next) {
    const std::string what =
        std::string("'") + to_string(input) + "' came to a copy that is " + to_string(copy.state);
    require(false, what.c_str());
  }
  copy.state = *next;
}

// The copy goes, by `input`, and its room is free.
void Catalog::drop(Step step, Checkpoint& checkpoint, int tier, Input input) {
  Copy& copy = checkpoint.copies[tier];
  require(copy.readers == 0, "a copy goes that is being read");
  apply(copy, input);
  require(copy.state == State::absent, "a copy that goes is not absent");
  const std::uint64_t offset = copy.offset;
  copy = Copy{};
  Tier& at = tier_at(tier);
  std::erase_if(at.flush_queue, [&](const Unflushed& entry) {
    if (entry.step != step) return false;
    at.flushed += entry.bytes;
    return true;
  });
  if (at.spec.storage) {
    at.used -= checkpoint.bytes;
  } else {
    require(at.space.erase_at(offset), "a copy had no room");
  }
  if (input != Input::failed) evicted_.emplace_back(tier, step);
}

std::uint64_t Catalog::note_of(Step step, const Checkpoint& checkpoint, int tier) const {
  const Copy& copy = checkpoint.copies[tier];
  bool ready_above = false, below = false;
  for (int other = 0; other < tiers(); ++other) {
    if (other < tier) ready_above |= is_ready(checkpoint.copies[other].state);
    if (other > tier && !is_storage(other)) below |= is_whole(checkpoint.copies[other].state);
  }
  const bool above = tier > 0 && is_whole(checkpoint.copies[0].state);
  std::uint64_t place = kNoPlace;
  if (const auto places = places_.find(step); places != places_.end()) {
    const std::size_t own = ready_above ? 1 : 0;
    if (places->second.size() > own) place = places->second[own];
  }
  Noted noted = Noted::busy;
  if (checkpoint.arrived && !checkpoint.doomed && copy.readers == 0 &&
      waits_for_flush_of(checkpoint, tier) < 0) {
    if (copy.state == State::flushed) noted = Noted::evictable;
    if (copy.state == State::consumed) noted = Noted::consumed;
  }
  return place << kNoteBits | (above ? kAbove : 0) | (below ? kBelow : 0) |
         static_cast<std::uint64_t>(noted);
}

void Catalog::set_notes(Step step, const Checkpoint& checkpoint) {
  look_again_at(step);
  for (int tier = 0; tier < tiers() && !is_storage(tier); ++tier) {
    const Copy& copy = checkpoint.copies[tier];
    if (copy.state == State::absent) continue;
    Tier& at = tier_at(tier);
    const std::uint64_t note = note_of(step, checkpoint, tier);
    at.space.set_note(copy.offset, note);
    const auto entry = find_unflushed(tier, copy, step);
    if (entry != at.flush_queue.end()) entry->note = note;
  }
}

// Brings `..._alone` and the flush queues in line with which copies are whole.
void Catalog::settle(Step step) {
  Checkpoint& checkpoint = checkpoints_.at(step);
  for (int tier = 0; tier < tiers(); ++tier) {
    Copy& copy = checkpoint.copies[tier];
    if (!is_whole(copy.state)) continue;
    const bool below = has_whole_below(checkpoint, tier);
    if (below == is_alone(copy.state)) apply(copy, below ? Input::backed : Input::unbacked);
    if (below || tier + 1 == tiers() || is_flushing(step, tier)) continue;
    if (copy.failed_flushes >= options_.flush_attempts) continue;
    Tier& at = tier_at(tier);
    if (find_unflushed(tier, copy, step) != at.flush_queue.end()) continue;
    copy.flush_mark = at.queued += checkpoint.bytes;
    at.flush_queue.push_back({step, checkpoint.bytes, copy.flush_mark, 0});
  }
  note_refills(step, checkpoint);
  set_notes(step, checkpoint);
}

// Of a checkpoint that is to go: what no transfer uses goes now; the rest when it has ended.
void Catalog::drop_copies_at_rest(Step step) {
  Checkpoint& checkpoint = checkpoints_.at(step);
  forget_refills(step);
  bool busy = false;
  for (int tier = 0; tier < tiers(); ++tier) {
    Copy& copy = checkpoint.copies[tier];
    if (copy.state == State::absent) continue;
    if (is_whole(copy.state) && copy.readers == 0) {
      drop(step, checkpoint, tier, Input::discard);
    } else {
      busy = true;
    }
  }
  if (!busy && !in_transfer(step)) {
    forget(step);
  } else {
    set_notes(step, checkpoint);
  }
}

// --- The program
// -----------------------------------------------------------------------------------

// A transfer into a tier whose room is taken.
Transfer Catalog::begin_into(Transfer::Kind kind, Step step, int from, int to,
                             std::uint64_t offset) {
  Checkpoint& checkpoint = checkpoints_.at(step);
  Transfer transfer;
  transfer.id = next_transfer_++;
  transfer.kind = kind;
  transfer.step = step;
  transfer.from = from;
  transfer.to = to;
  transfer.to_offset = offset;
  transfer.bytes = checkpoint.bytes;
  if (from != kProgram) {
    ++checkpoint.copies[from].readers;
    if (!is_storage(from)) transfer.from_offset = checkpoint.copies[from].offset;
  }
  if (to != kProgram) {
    checkpoint.copies[to].offset = offset;
    apply(checkpoint.copies[to], kind == Transfer::Kind::fetch ? Input::fetch : Input::write);
    checkpoint.copies[to].arrival = ++tier_at(to).arrivals;
    if (is_storage(to)) tier_at(to).used += checkpoint.bytes;
  }
  transfers_.push_back(transfer);
  set_notes(step, checkpoint);
  return transfer;
}

Answer Catalog::begin_save(Step step, std::uint64_t bytes, bool keep) {
  if (const auto found = checkpoints_.find(step); found != checkpoints_.end()) {
    return {found->second.doomed ? Answer::Verdict::wait : Answer::Verdict::exists, {}};
  }
  for (int tier = 0; tier < tiers(); ++tier) {
    if (const auto answer = save_into(tier, step, bytes, keep, Asker::caller)) return *answer;
  }
  for (int tier = 0; tier < tiers(); ++tier) {
    if (is_storage(tier) && storage_may_take(tier, bytes)) {
      return {Answer::Verdict::wait, {}, tier};
    }
  }
  // Hints cost time and nothing else: what they keep goes before a save is refused.
  for (int tier = 0; tier < tiers() && !is_storage(tier); ++tier) {
    if (const auto answer = save_into(tier, step, bytes, keep, Asker::last_resort)) return *answer;
  }
  return {Answer::Verdict::full, {}};
}

// Nothing if this tier has no room and will not have.
std::optional<Answer> Catalog::save_into(int tier, Step step, std::uint64_t bytes, bool keep,
                                         Asker asker) {
  std::uint64_t offset = 0;
  if (is_storage(tier)) {
    if (!storage_takes(tier, bytes)) return std::nullopt;
  } else {
    const std::optional<Window> room = window(tier, bytes, asker, kUnhinted);
    if (!room) return std::nullopt;
    if (room->wait > 0) return Answer{Answer::Verdict::wait, {}, tier};
    offset = take(tier, *room, step, bytes);
  }
  Checkpoint& checkpoint = learn(step, bytes);
  checkpoint.keep = keep;
  return Answer{Answer::Verdict::go,
                begin_into(Transfer::Kind::save, step, kProgram, tier, offset)};
}

Answer Catalog::begin_restore(Step step, bool keep) {
  const auto found = checkpoints_.find(step);
  if (found == checkpoints_.end() || found->second.doomed) return {Answer::Verdict::not_found, {}};
  const Checkpoint& checkpoint = found->second;
  const int from = fastest_whole(checkpoint);
  for (int tier = 0; tier < std::min(from, tiers()); ++tier) {
    const State state = checkpoint.copies[tier].state;
    if (is_storage(tier) && from < tiers()) continue;  // a refill, which nobody waits for
    if (state == State::reading || state == State::writing) {
      return {Answer::Verdict::wait, {}, tier};
    }
  }
  if (from == tiers()) return {Answer::Verdict::lost, {}};
  Transfer transfer = begin_into(Transfer::Kind::restore, step, from, kProgram, 0);
  transfers_.back().keep = transfer.keep = keep || checkpoint.keep;
  return {Answer::Verdict::go, transfer};
}

bool Catalog::discard(Step step) {
  const auto found = checkpoints_.find(step);
  if (found == checkpoints_.end() || found->second.doomed) return false;
  found->second.doomed = true;
  set_notes(step, found->second);
  while (places_.contains(step)) drop_hint(step);
  drop_copies_at_rest(step);
  return true;
}

std::vector<Step> Catalog::retry_flushes() {
  std::vector<Step> retried;
  for (auto& [step, checkpoint] : checkpoints_) {
    bool given_up = false;
    for (Copy& copy : checkpoint.copies) {
      if (copy.failed_flushes < options_.flush_attempts) continue;
      copy.failed_flushes = 0;
      given_up = true;
    }
    if (checkpoint.failed_refills >= options_.flush_attempts) {
      checkpoint.failed_refills = 0;
      given_up = true;
    }
    if (!given_up || checkpoint.doomed) continue;
    settle(step);
    retried.push_back(step);
  }
  return retried;
}

void Catalog::found_damaged(Step step, int tier) {
  const auto found = checkpoints_.find(step);
  if (found == checkpoints_.end() || found->second.doomed) return;
  const Copy& copy = found->second.copies[tier];
  if (!is_whole(copy.state) || copy.readers > 0) return;
  drop(step, found->second, tier, Input::failed);
  settle(step);
}

bool Catalog::adopt(Step step, std::uint64_t bytes, int tier, std::uint64_t offset) {
  Tier& at = tier_at(tier);
  if (!at.spec.storage && !at.space.place_at(offset, step, bytes)) return false;
  Checkpoint& checkpoint = learn(step, bytes);
  require(checkpoint.copies[tier].state == State::absent, "adopted twice");
  checkpoint.arrived = true;
  checkpoint.copies[tier].offset = offset;
  apply(checkpoint.copies[tier], Input::write);
  apply(checkpoint.copies[tier], Input::arrived);
  checkpoint.copies[tier].arrival = ++at.arrivals;
  if (at.spec.storage) at.used += bytes;
  settle(step);
  return true;
}

// --- Hints
// -----------------------------------------------------------------------------------------

void Catalog::hint(Step step) {
  if (hints_.size() >= kMostHints) return;
  hints_[next_place_] = step;
  auto& places = places_[step];
  places.push_back(next_place_++);
  fit_front();
  if (places.size() > 2) return;  // notes are of the first, or of the second
  if (const auto found = checkpoints_.find(step); found != checkpoints_.end()) {
    set_notes(step, found->second);
  }
}

void Catalog::drop_hint(Step step) {
  const auto places = places_.find(step);
  if (places == places_.end()) return;
  const std::uint64_t place = places->second.front();
  if (place < front_.end) enter_front(step, false);
  hints_.erase(place);
  for (Tier& at : tiers_) at.unlooked.erase(place);
  places->second.pop_front();
  if (places->second.empty()) places_.erase(places);
  fit_front();
  if (const auto found = checkpoints_.find(step); found != checkpoints_.end()) {
    set_notes(step, found->second);
  }
}

// The program has passed them over, and they would hold up the prefetcher for ever.
void Catalog::drop_missing_hints_before(Step step) {
  const auto places = places_.find(step);
  if (places == places_.end()) return;
  const std::uint64_t place = places->second.front();
  for (auto hint = hints_.begin(); hint->first < place;) {
    const Step other = hint->second;
    ++hint;  // what is dropped is the first of its step's, and so the one before
    if (!checkpoints_.contains(other)) drop_hint(other);
  }
}

// What was kept for a restore that is no longer announced can go.
void Catalog::unwant_unless_hinted(Step step) {
  const auto found = checkpoints_.find(step);
  if (found == checkpoints_.end() || places_.contains(step)) return;
  for (int tier = 0; tier < tiers(); ++tier) {
    Copy& copy = found->second.copies[tier];
    if (is_ready(copy.state)) apply(copy, Input::unwant);
  }
  set_notes(step, found->second);
}

std::uint64_t Catalog::prefetch_distance() const {
  std::uint64_t distance = 0;
  for (const auto& [place, step] : hints_) {
    if (!is_whole(state(step, 0))) break;
    ++distance;
  }
  return distance;
}

// --- Ends
// -----------------------------------------------------------------------------------------

void Catalog::finish(const Transfer& given, Outcome outcome) {
  const auto at = std::find_if(transfers_.begin(), transfers_.end(),
                               [&](const Transfer& transfer) { return transfer.id == given.id; });
  require(at != transfers_.end(), "a transfer ended twice");
  const Transfer transfer = *at;
  transfers_.erase(at);
  const Step step = transfer.step;
  Checkpoint& checkpoint = checkpoints_.at(step);
  const bool done = outcome == Outcome::done;

  if (transfer.from != kProgram) --checkpoint.copies[transfer.from].readers;
  if (transfer.to != kProgram) {
    if (done) {
      apply(checkpoint.copies[transfer.to], Input::arrived);
      checkpoint.arrived = true;
    } else {
      drop(step, checkpoint, transfer.to, Input::failed);
    }
  }
  if (outcome == Outcome::damaged && transfer.from != kProgram) {
    // Readers that are left find out for themselves.
    if (checkpoint.copies[transfer.from].readers == 0) {
      drop(step, checkpoint, transfer.from, Input::failed);
    }
  }
  if (transfer.kind == Transfer::Kind::flush) {
    tier_at(transfer.from).flushed += checkpoint.bytes;
    if (outcome == Outcome::failed) ++checkpoint.copies[transfer.from].failed_flushes;
  }
  if (transfer.kind == Transfer::Kind::refill) {
    if (done) checkpoint.failed_refills = 0;
    if (outcome == Outcome::failed) ++checkpoint.failed_refills;
  }
  if (transfer.kind == Transfer::Kind::fetch) {
    const TierSpec& source = tier_at(transfer.from).spec;
    if (done && !source.storage && !source.keeps_newest && !checkpoint.doomed) {
      apply(checkpoint.copies[transfer.from], Input::restore);
    }
    if (!done) drop_hint(step);  // not tried again and again; restore() will say why
    unwant_unless_hinted(step);  // or it was restored meanwhile, from the slower tier
  }
  if (transfer.kind == Transfer::Kind::restore && done && !checkpoint.doomed) {
    drop_missing_hints_before(step);
    drop_hint(step);
    for (int tier = 0; tier < tiers(); ++tier) {
      Copy& copy = checkpoint.copies[tier];
      if (is_storage(tier) || !is_whole(copy.state)) continue;
      apply(copy, transfer.keep ? Input::keep : Input::restore);
    }
    if (options_.discard_consumed && !transfer.keep && !places_.contains(step)) {
      checkpoint.doomed = true;
    }
  }
  if (!checkpoint.arrived) {  // a save that failed
    bool there = false;
    for (const Copy& copy : checkpoint.copies) there |= copy.state != State::absent;
    if (!there) {
      forget(step);
      return;
    }
  }
  if (checkpoint.doomed) {
    set_notes(step, checkpoint);
    drop_copies_at_rest(step);
  } else {
    settle(step);
  }
}

}  // namespace holdfast::history
