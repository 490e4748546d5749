#include "check/flows.hpp"

#include <algorithm>

namespace holdfast::check {

Flows::Actor& Flows::actor(std::uint64_t id) {
  if (actors_.empty() || actors_[recent_].id != id) {
    const auto [found, fresh] =
        numbers_.try_emplace(id, static_cast<std::uint32_t>(actors_.size()));
    if (fresh) actors_.emplace_back().id = id;
    recent_ = found->second;
  }
  Actor& result = actors_[recent_];
  if (result.run != run_) {
    result.run = run_;
    result.is_whole = false;
    result.known.clear();
    result.signature = id * 0x9e3779b97f4a7c15u + 1;
  }
  return result;
}

void Flows::know(Actor& actor, Item item) {
  if (actor.is_whole) return;
  if (std::find(actor.known.begin(), actor.known.end(), item) != actor.known.end()) return;
  if (actor.known.size() == kMostKnown) {
    actor.is_whole = true;
    actor.signature = actor.id * 0xff51afd7ed558ccdu + 3;
    return;
  }
  actor.known.push_back(item);
  actor.signature = (actor.signature ^ item) * 0xff51afd7ed558ccdu;
  actor.signature ^= actor.signature >> 29;
}

bool Flows::collides(const Access& access, std::uint64_t actor) const {
  if (access.run != run_ || access.where.launch != where_.launch) return false;
  if (!access.by_many && access.actor == actor) return false;
  return access.in_many_blocks || access.where.block != where_.block ||
         access.where.phase == where_.phase;
}

void Flows::note_access(Access& access, std::uint64_t actor) const {
  if (access.run != run_ || access.where.launch != where_.launch) {
    access = {run_, where_, actor, false, false};
    return;
  }
  if (access.where.block != where_.block) access.in_many_blocks = true;
  if (access.actor != actor) {
    // Those of an earlier phase are ordered before, and need not be known any more.
    access.by_many = access.in_many_blocks || access.where.phase == where_.phase;
  }
  access.where = where_;
  access.actor = actor;
}

void Flows::look_for_race(std::uint64_t actor, Item item, bool writes) {
  if (races_) return;
  if (!contested_.empty() && !writes && contested_.count(item) != 0) races_ = true;
  if (where_.launch == 0) return;
  Accesses& known = accesses_[item];
  if (collides(known.write, actor)) {
    const bool is_read = !writes || is_word(item) || last_place_learner_.count(item) != 0;
    if (is_read) {
      races_ = true;
    } else {
      contested_.insert(item);
    }
  }
  if (writes && collides(known.read, actor)) races_ = true;
  note_access(writes ? known.write : known.read, actor);
}

void Flows::learn(std::uint64_t id, Item item) {
  if (item >> kPlaceShift != kMeetingPlace >> kPlaceShift) look_for_race(id, item, false);
  know(actor(id), item);
  std::uint64_t& before = last(last_learner_, last_place_learner_, item);
  if (before == id + 1) return;
  before = id + 1;
  learnt_.push_back({id, item});
}

void Flows::learn_range(std::uint64_t id, Item first, Item last) {
  const auto same = [&](const Range& range) {
    return range.actor == id && range.first == first && range.last == last;
  };
  if (std::none_of(ranges_.begin(), ranges_.end(), same)) ranges_.push_back({id, first, last});
  for (auto place = device_places_.lower_bound(first);
       place != device_places_.end() && *place <= last; ++place) {
    learn(id, *place);
  }
}

void Flows::tell(std::uint64_t id, Item item) {
  if (item >> kPlaceShift != kMeetingPlace >> kPlaceShift) look_for_race(id, item, true);
  const Actor& teller = actor(id);
  // A place that is written for the first time may have been read as part of a range before.
  if (item >> kPlaceShift == kDevicePlace >> kPlaceShift && device_places_.insert(item).second) {
    for (const Range& range : ranges_) {
      if (item >= range.first && item <= range.last) learnt_.push_back({range.actor, item});
    }
  }
  if (teller.known.empty()) return;
  std::uint64_t& before = last(last_told_, last_place_told_, item);
  if (before == teller.signature) return;
  before = teller.signature;
  if (teller.is_whole) {
    told_.push_back({item, id, true});
    return;
  }
  for (const Item known : teller.known) {
    if (known != item) told_.push_back({item, known, false});
  }
}

}  // namespace holdfast::check
