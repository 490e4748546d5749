#include "history/catalog.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace holdfast::history {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// A defect of this library, in every build: what follows would lose a checkpoint.
void require(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error("holdfast: history: " + what);
}

}  // namespace

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

bool Catalog::flush_pending() const {
  for (const Transfer& transfer : transfers_) {
    if (transfer.kind == Transfer::Kind::save || transfer.kind == Transfer::Kind::flush)
      return true;
  }
  for (int tier = 0; tier < tiers(); ++tier) {
    for (const auto& [step, bytes] : tier_at(tier).flush_queue) {
      const auto found = checkpoints_.find(step);
      if (found == checkpoints_.end() || found->second.doomed) continue;
      if (!is_alone(found->second.copies[tier].state)) continue;
      if (drains(tier, bytes, Asker::caller)) return true;
    }
  }
  return false;
}

bool Catalog::discard_pending() const {
  return std::any_of(checkpoints_.begin(), checkpoints_.end(),
                     [](const auto& entry) { return entry.second.doomed; });
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
  require(next.has_value(), std::string("'") + to_string(input) + "' came to a copy that is " +
                                to_string(copy.state));
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
  std::erase_if(at.flush_queue, [&](const auto& entry) {
    if (entry.first != step) return false;
    at.flushed += entry.second;
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
  const auto places = places_.find(step);
  const std::uint64_t place = places == places_.end() ? kNoPlace : places->second.front();
  Noted noted = Noted::busy;
  if (checkpoint.arrived && !checkpoint.doomed && copy.readers == 0) {
    if (copy.state == State::flushed) noted = Noted::evictable;
    if (copy.state == State::consumed) noted = Noted::consumed;
  }
  return place << 2 | static_cast<std::uint64_t>(noted);
}

void Catalog::set_notes(Step step, const Checkpoint& checkpoint) {
  for (int tier = 0; tier < tiers() && !is_storage(tier); ++tier) {
    const Copy& copy = checkpoint.copies[tier];
    if (copy.state == State::absent) continue;
    tier_at(tier).space.set_note(copy.offset, note_of(step, checkpoint, tier));
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
    const std::pair entry(step, checkpoint.bytes);
    if (std::find(at.flush_queue.begin(), at.flush_queue.end(), entry) != at.flush_queue.end()) {
      continue;
    }
    at.flush_queue.push_back(entry);
    copy.flush_mark = at.queued += checkpoint.bytes;
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
  if (!busy && !in_transfer(step)) checkpoints_.erase(step);
}

// --- Room
// ------------------------------------------------------------------------------------------

bool Catalog::storage_takes(int tier, std::uint64_t bytes) const {
  const Tier& at = tier_at(tier);
  return at.spec.capacity == 0 ||
         (bytes <= at.spec.capacity && at.used <= at.spec.capacity - bytes);
}

// Whether a copy of so many bytes in a cache will be flushed, if one waits.
bool Catalog::drains(int tier, std::uint64_t bytes, Asker asker) const {
  if (!tier_at(tier).flush_alive) return false;
  for (int below = tier + 1; below < tiers(); ++below) {
    if (is_storage(below) && storage_may_take(below, bytes)) return true;
  }
  if (asker == Asker::last_resort) asker = Asker::caller;  // a lane does not take what hints keep
  for (int below = tier + 1; below < tiers() && !is_storage(below); ++below) {
    if (window(below, bytes, asker, kUnhinted)) return true;
  }
  return false;
}

bool Catalog::drains(int tier, std::uint64_t bytes, Asker asker, Drains& known) const {
  if (bytes <= known.most) return true;
  if (bytes >= known.least_not) return false;
  const bool does = drains(tier, bytes, asker);
  (does ? known.most : known.least_not) = bytes;
  return does;
}

Score Catalog::score_now(const Fragment& fragment, std::uint64_t distance) const {
  const auto noted = static_cast<Noted>(fragment.note & 3);
  Score result{noted == Noted::busy ? kNever : 0, distance_of(fragment.note), false};
  result.consumed = noted == Noted::consumed && result.distance == kUnhinted;
  if (result.distance < distance && distance != kUnhinted) result.wait = kNever;
  return result;
}

// What one fragment is worth to whoever wants room in its tier. `distance`: fragments that are
// wanted before that stay.
Score Catalog::score(int tier, const Fragment& fragment, Asker asker, std::uint64_t distance,
                     Drains& known) const {
  const Checkpoint& checkpoint = checkpoints_.at(fragment.step);
  const Copy& copy = checkpoint.copies[tier];
  const Tier& at = tier_at(tier);
  Score result{0, distance_of(fragment.note), false};
  result.consumed = result.distance == kUnhinted &&
                    (copy.state == State::consumed || copy.state == State::consumed_alone);
  if (checkpoint.doomed || !checkpoint.arrived) {  // it goes, or it is on its way
    result.wait = static_cast<double>(checkpoint.bytes) * at.flush_seconds_per_byte;
    if (checkpoint.doomed) return result;
  }
  if (result.distance < distance && distance != kUnhinted) {
    result.wait = kNever;
    return result;
  }
  const bool comes = copy.state == State::reading;
  if (asker == Asker::last_resort) {
    if (comes) result.wait = static_cast<double>(checkpoint.bytes) * at.flush_seconds_per_byte;
  } else if (is_ready(copy.state) || comes) {
    if (asker == Asker::caller || waiting_callers_ > 0) {
      result.wait = kNever;
      return result;
    }
    const double restores = result.distance == kUnhinted ? 1e6 : double(result.distance) + 1;
    result.wait += restores * restore_interval_;
  }
  if (is_alone(copy.state) || copy.state == State::writing) {
    if (copy.failed_flushes >= options_.flush_attempts ||
        !drains(tier, checkpoint.bytes, asker, known)) {
      result.wait = kNever;
      return result;
    }
    const std::uint64_t mark = is_alone(copy.state) ? copy.flush_mark : at.queued;
    result.wait += (double(mark - std::min(mark, at.flushed)) + double(checkpoint.bytes)) *
                   at.flush_seconds_per_byte;
  }
  if (copy.readers > 0) result.wait += double(checkpoint.bytes) * at.flush_seconds_per_byte;
  return result;
}

std::optional<Window> Catalog::window(int tier, std::uint64_t bytes, Asker asker,
                                      std::uint64_t distance) const {
  const AllocationTable& space = tier_at(tier).space;
  if (bytes > space.capacity()) return std::nullopt;
  if (tier_at(tier).spec.keeps_newest) return oldest_window(tier, bytes, asker);
  Drains known;
  return choose_window(
      space.fragments(), space.rounded(bytes),
      [&](const Fragment& fragment) { return score_now(fragment, distance); },
      [&](const Fragment& fragment) { return score(tier, fragment, asker, distance, known); },
      tier_at(tier).scratch.scores);
}

// The window whose newest checkpoint is the oldest there can be. One that was consumed is as good
// as another for who begins anew.
std::optional<Window> Catalog::oldest_window(int tier, std::uint64_t bytes, Asker asker) const {
  const AllocationTable& space = tier_at(tier).space;
  Drains known;
  const auto wait_of = [&](const Fragment& fragment) {
    return score(tier, fragment, asker, kUnhinted, known).wait;
  };
  // The choice takes the least of the largest waits, so in their place stands the arrival.
  std::optional<Window> oldest = choose_window(
      space.fragments(), space.rounded(bytes),
      [&](const Fragment& fragment) {
        const Copy& copy = checkpoints_.at(fragment.step).copies[tier];
        const bool ever = wait_of(fragment) < kNever;
        return Score{ever ? static_cast<double>(copy.arrival) : kNever, kUnhinted, false};
      },
      tier_at(tier).scratch.scores);
  if (!oldest) return oldest;
  oldest->wait = 0;
  for (std::size_t i = oldest->first; i < oldest->last; ++i) {
    const Fragment& fragment = space.fragments()[i];
    if (fragment.step != kGap) oldest->wait = std::max(oldest->wait, wait_of(fragment));
  }
  return oldest;
}

// Evicts what is in the window, and takes its room. REQUIRES: window.wait == 0.
std::uint64_t Catalog::take(int tier, const Window& window, Step step, std::uint64_t bytes) {
  Tier& at = tier_at(tier);
  for (std::size_t i = window.first; i < window.last; ++i) {
    const Step victim = at.space.fragments()[i].step;
    if (victim == kGap) continue;
    Copy& copy = checkpoints_.at(victim).copies[tier];
    require(copy.readers == 0, "what is being read was to be evicted");
    if (is_ready(copy.state)) apply(copy, Input::unwant);  // for who has no other way
    apply(copy, Input::evict);
    require(copy.state == State::absent, "an evicted copy is not absent");
    copy = Copy{};
    evicted_.emplace_back(tier, victim);
  }
  return at.space.place(window.first, window.last, step, bytes, window.rest);
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
  Checkpoint& checkpoint = checkpoints_[step];
  checkpoint.bytes = bytes;
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
  Checkpoint& checkpoint = checkpoints_[step];
  require(checkpoint.copies[tier].state == State::absent, "adopted twice");
  checkpoint.bytes = bytes;
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
  if (places.size() > 1) return;
  if (const auto found = checkpoints_.find(step); found != checkpoints_.end()) {
    set_notes(step, found->second);
  }
}

void Catalog::drop_hint(Step step) {
  const auto places = places_.find(step);
  if (places == places_.end()) return;
  hints_.erase(places->second.front());
  places->second.pop_front();
  if (places->second.empty()) places_.erase(places);
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

// How many places behind the head of the restore order.
std::uint64_t Catalog::distance_of(std::uint64_t note) const {
  const std::uint64_t place = note >> 2;
  return place == kNoPlace ? kUnhinted : place - hints_.begin()->first;
}

std::uint64_t Catalog::prefetch_distance() const {
  std::uint64_t distance = 0;
  for (const auto& [place, step] : hints_) {
    if (!is_whole(state(step, 0))) break;
    ++distance;
  }
  return distance;
}

// --- Lanes
// -----------------------------------------------------------------------------------------

void Catalog::lane_died(Transfer::Kind kind, int tier) {
  (kind == Transfer::Kind::flush ? tier_at(tier).flush_alive : tier_at(tier).fetch_alive) = false;
}

// A flush into the next tier that takes it; nothing if it has to wait.
std::optional<Transfer> Catalog::begin_flush(Step step, int tier) {
  const std::uint64_t bytes = checkpoints_.at(step).bytes;
  for (int below = tier + 1; below < tiers(); ++below) {
    if (checkpoints_.at(step).copies[below].state != State::absent) return std::nullopt;
    if (is_storage(below)) {
      if (!storage_takes(below, bytes)) continue;
      return begin_into(Transfer::Kind::flush, step, tier, below, 0);
    }
    const std::optional<Window> room = window(below, bytes, Asker::lane, kUnhinted);
    if (!room) continue;  // past it
    if (room->wait > 0) return std::nullopt;
    return begin_into(Transfer::Kind::flush, step, tier, below, take(below, *room, step, bytes));
  }
  return std::nullopt;
}

std::optional<Transfer> Catalog::next_flush(int tier) {
  Tier& at = tier_at(tier);
  if (!at.flush_alive) return std::nullopt;
  for (std::size_t i = 0; i < at.flush_queue.size();) {
    const auto [step, bytes] = at.flush_queue[i];
    const auto found = checkpoints_.find(step);
    const bool pending = found != checkpoints_.end() && !found->second.doomed &&
                         is_alone(found->second.copies[tier].state);
    std::optional<Transfer> transfer;
    if (pending) {
      transfer = begin_flush(step, tier);
      if (!transfer) {
        ++i;
        continue;
      }
    }
    at.flush_queue.erase(at.flush_queue.begin() + static_cast<std::ptrdiff_t>(i));
    if (transfer) return transfer;
    at.flushed += bytes;
  }
  return std::nullopt;
}

std::optional<Transfer> Catalog::next_fetch(int tier) {
  Tier& at = tier_at(tier);
  if (at.spec.storage) return next_refill(tier);
  if (!at.fetch_alive || !prefetching_) return std::nullopt;
  std::uint64_t distance = 0;
  for (const auto& [place, step] : hints_) {
    distance = place - hints_.begin()->first;
    const auto found = checkpoints_.find(step);
    // One that is still to be saved is wanted before what comes behind it: that is not fetched, nor
    // kept, in its place.
    if (found == checkpoints_.end() || found->second.doomed) return std::nullopt;
    Checkpoint& checkpoint = found->second;
    const int from = fastest_whole(checkpoint);
    if (from == tiers()) {
      if (checkpoint.arrived) continue;  // every copy is damaged
      return std::nullopt;
    }
    if (from <= tier) {
      if (from == 0 && tier == 0 && !is_ready(checkpoint.copies[0].state)) {
        apply(checkpoint.copies[0], Input::want);
        set_notes(step, checkpoint);
      }
      continue;
    }
    bool comes = false;
    for (int above = 0; above <= tier; ++above) {
      comes |= checkpoint.copies[above].state != State::absent;
    }
    if (comes) continue;
    const bool between = from > tier + 1;  // the tier between fetches it first, if it can
    if (between && tier_at(tier + 1).fetch_alive &&
        window(tier + 1, checkpoint.bytes, Asker::lane, distance)) {
      return std::nullopt;
    }
    const std::optional<Window> room = window(tier, checkpoint.bytes, Asker::lane, distance);
    if (!room || room->wait > 0) return std::nullopt;
    return begin_into(Transfer::Kind::fetch, step, from, tier,
                      take(tier, *room, step, checkpoint.bytes));
  }
  return std::nullopt;
}

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
      checkpoints_.erase(step);
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
