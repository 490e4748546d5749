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

void Flows::learn(std::uint64_t id, Item item) {
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
