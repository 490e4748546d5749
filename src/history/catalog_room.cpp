// Room in a tier: what it is worth to keep, and what goes for who needs it.
#include <algorithm>
#include <limits>

#include "history/catalog.hpp"
#include "history/require.hpp"

namespace holdfast::history {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

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
    if (has_window(below, bytes, asker)) return true;
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

// For who wants room for what is restored at `distance`, in place of what is restored at `own`.
// Where only storage has that besides, it would be fetched twice; and room comes by itself as the
// program restores.
bool Catalog::stays(const Fragment& fragment, std::uint64_t own, std::uint64_t distance) {
  if (distance == kUnhinted) return false;
  if (own < distance) return true;
  return own != kUnhinted && (fragment.note & kBelow) == 0 && distance >= kExchanged;
}

Score Catalog::score_now(const Fragment& fragment, const Distances& distances,
                         std::uint64_t distance) {
  const auto noted = static_cast<Noted>(fragment.note & 3);
  Score result{noted == Noted::busy ? kNever : 0, distances.of(fragment.note), false};
  result.consumed = detail::both(noted == Noted::consumed, result.distance == kUnhinted);
  if (stays(fragment, result.distance, distance)) result.wait = kNever;
  return result;
}

// The cache whose copy has to be flushed before one here can go: this one, while it is alone. What
// keeps the newest waits for storage even where a cache behind it has the checkpoint, since that is
// lost with the process. Negative: none has to.
int Catalog::waits_for_flush_of(const Checkpoint& checkpoint, int tier) const {
  const auto waits = [&](int at) {
    const State state = checkpoint.copies[at].state;
    return is_alone(state) || state == State::writing;
  };
  if (waits(tier)) return tier;
  if (!tier_at(tier).spec.keeps_newest) return -1;
  int behind = -1;
  bool can_be_stored = false;
  for (int below = tier + 1; below < tiers(); ++below) {
    if (is_storage(below)) {
      if (is_whole(checkpoint.copies[below].state)) return -1;
      can_be_stored = true;
    } else if (behind < 0 && waits(below)) {
      behind = below;
    }
  }
  return can_be_stored ? behind : -1;
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
  if (stays(fragment, result.distance, distance)) {
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
  if (const int waits = waits_for_flush_of(checkpoint, tier); waits >= 0) {
    const Copy& held = checkpoint.copies[waits];
    const Tier& from = tier_at(waits);
    const bool goes = waits == tier ? drains(tier, checkpoint.bytes, asker, known)
                                    : drains(waits, checkpoint.bytes, asker);
    if (held.failed_flushes >= options_.flush_attempts || !goes) {
      result.wait = kNever;
      return result;
    }
    const std::uint64_t mark = is_alone(held.state) ? held.flush_mark : from.queued;
    result.wait += (double(mark - std::min(mark, from.flushed)) + double(checkpoint.bytes)) *
                   from.flush_seconds_per_byte;
  }
  if (copy.readers > 0) result.wait += double(checkpoint.bytes) * at.flush_seconds_per_byte;
  return result;
}

std::optional<Window> Catalog::window(int tier, std::uint64_t bytes, Asker asker,
                                      std::uint64_t distance) const {
  const AllocationTable& space = tier_at(tier).space;
  if (bytes > space.capacity() || !tier_at(tier).takes) return std::nullopt;
  if (tier_at(tier).spec.keeps_newest) return oldest_window(tier, bytes, asker);
  Drains known;
  const Distances now = distances();
  return choose_window(
      space.fragments(), space.rounded(bytes), space.capacity() - space.used(),
      [&](const Fragment& fragment) {
        return static_cast<Noted>(fragment.note & 3) == Noted::consumed;
      },
      [&](const Fragment& fragment) { return score_now(fragment, now, distance); },
      [&](const Fragment& fragment) { return score(tier, fragment, asker, distance, known); },
      tier_at(tier).scratch.scores);
}

// Whether window() finds one of what no hint protects: any, and so the first will do.
bool Catalog::has_window(int tier, std::uint64_t bytes, Asker asker) const {
  const AllocationTable& space = tier_at(tier).space;
  const std::uint64_t needed = space.rounded(bytes);
  if (bytes > space.capacity() || !tier_at(tier).takes) return false;
  const auto fragments = space.fragments();
  const auto has_room = [&](const Fragment& one) {
    return one.step == kGap && one.bytes >= needed;
  };
  if (std::any_of(fragments.rbegin(), fragments.rend(), has_room)) return true;
  Drains known;
  std::uint64_t room = 0;  // of neighbours that can be evicted now or later
  for (const Fragment& fragment : fragments) {
    const bool goes = fragment.step == kGap ||
                      static_cast<Noted>(fragment.note & 3) != Noted::busy ||
                      score(tier, fragment, asker, kUnhinted, known).wait < kNever;
    room = goes ? room + fragment.bytes : 0;
    if (room >= needed) return true;
  }
  return false;
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

bool Catalog::takes_what_is_hinted(int tier, const Window& window) const {
  const auto fragments = space(tier).fragments();
  return std::any_of(fragments.begin() + static_cast<std::ptrdiff_t>(window.first),
                     fragments.begin() + static_cast<std::ptrdiff_t>(window.last),
                     [&](const Fragment& fragment) {
                       return fragment.step != kGap && distance_of(fragment.note) != kUnhinted;
                     });
}

bool Catalog::storage_below_takes(int tier, std::uint64_t bytes) const {
  for (int below = tier + 1; below < tiers(); ++below) {
    if (is_storage(below) && storage_takes(below, bytes)) return true;
  }
  return false;
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
    set_notes(victim, checkpoints_.at(victim));  // of slower copies
    evicted_.emplace_back(tier, victim);
  }
  return at.space.place(window.first, window.last, step, bytes, window.rest);
}

}  // namespace holdfast::history
