// What lanes are given to do.
#include <algorithm>

#include "history/catalog.hpp"

namespace holdfast::history {

void Catalog::lane_died(Transfer::Kind kind, int tier) {
  (kind == Transfer::Kind::flush ? tier_at(tier).flush_alive : tier_at(tier).fetch_alive) = false;
}

// While a slower tier is busy with flushes that are more urgent, the front of the restore order
// stays in the fastest cache alone: below it would take room from what is restored later, and may
// be consumed before it is needed there. Not while anybody waits.
bool Catalog::keeps_front(int tier) const {
  return tier == 0 && front_.limit > 0 && drains_ == 0 && waiting_callers_ == 0 &&
         !leads_to_newest(0) && flushes_go_on(1);
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
    const bool may_pass =
        drains_ > 0 && !leads_to_newest(tier) && storage_below_takes(below, bytes);
    if (may_pass && takes_what_is_hinted(below, *room)) continue;
    if (room->wait > 0) {
      // What is in the way there may wait for what this one brings to storage.
      if (storage_below_takes(below, bytes) && !flushes_go_on(below)) continue;
      return std::nullopt;
    }
    return begin_into(Transfer::Kind::flush, step, tier, below, take(below, *room, step, bytes));
  }
  return std::nullopt;
}

// It keeps the newest, or what it flushes comes to a cache that does.
bool Catalog::leads_to_newest(int tier) const {
  while (tier < tiers() && !tier_at(tier).spec.keeps_newest) ++tier;
  return tier < tiers();
}

// A flush out of this cache is under way, or can begin.
bool Catalog::flushes_go_on(int tier) const {
  const auto is_own = [&](const Transfer& transfer) {
    return transfer.kind == Transfer::Kind::flush && transfer.from == tier;
  };
  if (std::any_of(transfers_.begin(), transfers_.end(), is_own)) return true;
  if (!tier_at(tier).flush_alive) return false;
  for (int below = tier + 1; below < tiers(); ++below) {
    for (const Unflushed& entry : tier_at(tier).flush_queue) {
      if (is_storage(below)) {
        if (storage_takes(below, entry.bytes)) return true;
        continue;
      }
      const std::optional<Window> room = window(below, entry.bytes, Asker::lane, kUnhinted);
      if (room && (room->wait == 0 || flushes_go_on(below))) return true;
    }
  }
  if (!tier_at(tier).spec.keeps_newest) return false;
  for (int below = tier + 1; below < tiers() && !is_storage(below); ++below) {
    if (flushes_go_on(below)) return true;  // for which its copies wait
  }
  return false;
}

// end(): it does not wait for a flush.
std::vector<Catalog::Unflushed>::iterator Catalog::find_unflushed(int tier, const Copy& copy,
                                                                  Step step) {
  std::vector<Unflushed>& queue = tier_at(tier).flush_queue;
  const auto found = std::lower_bound(
      queue.begin(), queue.end(), copy.flush_mark,
      [](const Unflushed& entry, std::uint64_t mark) { return entry.mark < mark; });
  const bool own = found != queue.end() && found->mark == copy.flush_mark && found->step == step;
  return own ? found : queue.end();
}

// What will be evicted first has to be whole elsewhere first: what no hint names, then what is
// restored last. But now and then what came first, so that nothing waits for ever. A tier that
// keeps the newest evicts in the order of arrival, which is kept on the way there.
std::vector<Catalog::Unflushed>::iterator Catalog::first_to_flush(int tier) {
  Tier& at = tier_at(tier);
  const auto oldest = at.flush_queue.begin();
  if (hints_.empty() || at.flush_queue.size() < 2 || at.flushes_to_oldest == 0) return oldest;
  if (leads_to_newest(tier)) return oldest;
  auto first = oldest;
  std::uint64_t farthest = 0;
  for (auto entry = oldest; entry != at.flush_queue.end(); ++entry) {
    const std::uint64_t distance = distance_of(entry->note);
    if (entry != oldest && distance <= farthest) continue;
    first = entry;
    farthest = distance;
  }
  return first;
}

std::optional<Transfer> Catalog::next_flush(int tier) {
  Tier& at = tier_at(tier);
  if (!at.flush_alive || at.flush_queue.empty()) return std::nullopt;
  // Where the first cannot go, the oldest that can.
  auto entry = first_to_flush(tier);
  bool in_order = false;
  std::optional<bool> keeps;
  while (entry != at.flush_queue.end()) {
    const auto [step, bytes, mark, note] = *entry;
    const auto found = checkpoints_.find(step);
    const bool pending = found != checkpoints_.end() && !found->second.doomed &&
                         is_alone(found->second.copies[tier].state);
    std::optional<Transfer> transfer;
    if (is_in_front(note) && !keeps) keeps = keeps_front(tier);
    const bool kept = is_in_front(note) && *keeps;
    if (pending && !kept) transfer = begin_flush(step, tier);
    if (pending && !transfer) {
      entry = in_order ? entry + 1 : at.flush_queue.begin();
      in_order = true;
      continue;
    }
    entry = at.flush_queue.erase(entry);  // begin_flush() changes no more of this than notes
    if (transfer) {
      at.flushes_to_oldest =
          (at.flushes_to_oldest + options_.oldest_flush_every - 1) % options_.oldest_flush_every;
      return transfer;
    }
    at.flushed += bytes;
    if (!in_order) entry = first_to_flush(tier);
  }
  return std::nullopt;
}

// As when it had been promoted: the restore to come is the fastest cache's. What was fetched into
// another one stays there.
void Catalog::consume_below(Step step, Checkpoint& checkpoint) {
  for (int tier = 1; tier < tiers() && !is_storage(tier); ++tier) {
    Copy& copy = checkpoint.copies[tier];
    if (!is_whole(copy.state) || is_ready(copy.state) || tier_at(tier).spec.keeps_newest) continue;
    apply(copy, Input::restore);
  }
  set_notes(step, checkpoint);
}

// It is here or in a faster tier, and ready if it is to be; or on its way; or lost.
bool Catalog::needs_no_fetch(const Checkpoint& checkpoint, int tier) const {
  const int from = fastest_whole(checkpoint);
  if (from == tiers()) return checkpoint.arrived;
  if (from <= tier) return from > 0 || tier > 0 || is_ready(checkpoint.copies[0].state);
  return std::any_of(checkpoint.copies, checkpoint.copies + tier + 1,
                     [](const Copy& copy) { return copy.state != State::absent; });
}

// Many are ready for a long time: to walk past all of them each time would keep calls of the
// program waiting.
std::map<std::uint64_t, Step>::const_iterator Catalog::next_to_look_at(int tier) const {
  const Tier& at = tier_at(tier);
  const auto later = hints_.lower_bound(at.unlooked_from);
  return at.unlooked.empty() ? later : hints_.find(*at.unlooked.begin());
}

// Something about the checkpoint has changed.
void Catalog::look_again_at(Step step) {
  const auto places = places_.find(step);
  if (places == places_.end()) return;
  const std::uint64_t place = places->second.front();
  for (int tier = 0; tier < tiers() && !is_storage(tier); ++tier) {
    Tier& at = tier_at(tier);
    if (place < at.unlooked_from) at.unlooked.insert(place);
  }
}

std::optional<Transfer> Catalog::next_fetch(int tier) {
  Tier& at = tier_at(tier);
  if (at.spec.storage) return next_refill(tier);
  if (!at.fetch_alive || !prefetching_) return std::nullopt;
  for (auto hint = next_to_look_at(tier); hint != hints_.end(); hint = next_to_look_at(tier)) {
    const auto [place, step] = *hint;
    const std::uint64_t distance = place - hints_.begin()->first;
    const auto found = checkpoints_.find(step);
    // One that is still to be saved is wanted before what comes behind it: that is not fetched, nor
    // kept, in its place.
    if (found == checkpoints_.end() || found->second.doomed) return std::nullopt;
    Checkpoint& checkpoint = found->second;
    const int from = fastest_whole(checkpoint);
    if (from == 0 && tier == 0 && !is_ready(checkpoint.copies[0].state)) {
      apply(checkpoint.copies[0], Input::want);
      consume_below(step, checkpoint);
    }
    if (from <= tier || needs_no_fetch(checkpoint, tier)) {
      at.unlooked.erase(place);
      at.unlooked_from = std::max(at.unlooked_from, place + 1);
      continue;
    }
    if (from == tiers()) return std::nullopt;
    // The cache between fetches it first, if it can now: the disk is not to rest meanwhile.
    int between = tier + 1;
    while (between < from && !is_storage(between) && !tier_at(between).fetch_alive) ++between;
    if (between < from && !is_storage(between)) {
      const auto its = window(between, checkpoint.bytes, Asker::lane, distance);
      if (its && its->wait == 0) return std::nullopt;
    }
    const std::optional<Window> room = window(tier, checkpoint.bytes, Asker::lane, distance);
    if (!room || room->wait > 0) return std::nullopt;
    return begin_into(Transfer::Kind::fetch, step, from, tier,
                      take(tier, *room, step, checkpoint.bytes));
  }
  return std::nullopt;
}

}  // namespace holdfast::history
