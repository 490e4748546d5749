#include "check/groups.hpp"

#include <algorithm>
#include <utility>

#include "check/recorder.hpp"

namespace holdfast::check {

void Groups::add(const std::vector<Flows::Learnt>& learnt, const std::vector<Flows::Told>& told) {
  for (const auto& [actor, item] : learnt) {
    const auto [of_actor, first] = learnt_.try_emplace(actor);
    if (first && is_item(actor)) ++items_;
    if (!of_actor->second.insert(item).second) continue;
    changed_ = true;
    // Of those beyond it is enough that they are many.
    auto& readers = readers_[item];
    if (readers.size() < kMany) readers.push_back(actor);
  }
  for (const Flows::Told& flow : told) {
    Sources& sources = sources_[flow.to];
    const bool fresh = flow.from_actor ? sources.actors.insert(flow.from).second
                                       : sources.items.insert(flow.from).second;
    changed_ = changed_ || fresh;
  }
}

bool Groups::is_common(const std::vector<std::uint64_t>& actors) const {
  if (actors.size() > std::max(kFew, std::min(kMany - 1, learnt_.size() / 2))) return true;
  const auto items = static_cast<std::size_t>(std::count_if(
      actors.begin(), actors.end(), [](std::uint64_t actor) { return is_item(actor); }));
  if (items > std::max(kFew, items_ / 2)) return true;
  return std::find(actors.begin(), actors.end(), Recorder::kHostActor) != actors.end();
}

// One forming of the groups.
class Groups::Forming {
 public:
  explicit Forming(const Groups& groups) : groups_(groups) {
    for (const auto& [item, readers] : groups_.readers_) {
      if (is_word(item)) parent_[word(item)] = word(item);
    }
    find_shared();
    unite();
  }

  std::unordered_set<std::uint32_t> shared;
  std::unordered_map<std::uint32_t, std::uint32_t> group;

 private:
  static std::uint32_t word(Item item) { return static_cast<std::uint32_t>(item); }

  // The words that whoever reads `item` learns of, beside itself.
  std::vector<std::uint32_t> words_behind(Item item) {
    std::vector<std::uint32_t> result;
    std::unordered_set<Item> items{item};
    std::unordered_set<std::uint64_t> actors;
    std::vector<Item> open{item};
    const auto meet = [&](Item next) {
      ++steps_;
      if (!items.insert(next).second) return;
      open.push_back(next);
      if (is_word(next)) result.push_back(word(next));
    };
    while (!open.empty() && steps_ < kMostSteps) {
      const Item at = open.back();
      open.pop_back();
      const auto sources = groups_.sources_.find(at);
      if (sources == groups_.sources_.end()) continue;
      for (const Item from : sources->second.items) meet(from);
      for (const std::uint64_t actor : sources->second.actors) {
        if (!actors.insert(actor).second) continue;
        for (const Item from : groups_.learnt_.at(actor)) meet(from);
      }
    }
    return result;
  }

  // What is behind a common item is as common as that.
  void find_shared() {
    for (const auto& [item, readers] : groups_.readers_) {
      if (!groups_.is_common(readers)) continue;
      if (is_word(item)) shared.insert(word(item));
      for (const std::uint32_t behind : words_behind(item)) shared.insert(behind);
    }
  }

  std::uint32_t find(std::uint32_t at) {
    while (parent_[at] != at) at = parent_[at] = parent_[parent_[at]];
    return at;
  }

  // Words are united through the actors that learn of them. (What is behind a word that is not
  // common needs no look: who wrote it has learnt of both.)
  void unite() {
    std::unordered_map<std::uint64_t, std::uint32_t> word_of;  // of an actor
    const auto learns = [&](std::uint64_t actor, std::uint32_t what) {
      if (shared.count(what) != 0) return;
      const auto [known, first] = word_of.try_emplace(actor, what);
      if (first) return;
      // The least word leads, so that a group's number is a function of its words.
      const std::uint32_t a = find(what);
      const std::uint32_t b = find(known->second);
      parent_[std::max(a, b)] = std::min(a, b);
    };
    for (const auto& [item, readers] : groups_.readers_) {
      if (is_word(item)) {
        for (const std::uint64_t actor : readers) learns(actor, word(item));
      } else if (!groups_.is_common(readers)) {
        for (const std::uint32_t behind : words_behind(item)) {
          for (const std::uint64_t actor : readers) learns(actor, behind);
        }
      }
    }
    const bool gave_up = groups_.given_up_ || steps_ >= kMostSteps;
    std::uint32_t least = kShared;
    for (const auto& [at, any] : parent_) least = std::min(least, at);
    for (const auto& [at, any] : parent_) {
      if (gave_up || shared.count(at) == 0) group[at] = gave_up ? least : at;
    }
    if (gave_up) {
      shared.clear();
      return;
    }
    for (auto& [at, number] : group) number = find(at);
  }

  const Groups& groups_;
  std::unordered_map<std::uint32_t, std::uint32_t> parent_;
  std::size_t steps_ = 0;
};

bool Groups::form() {
  if (!changed_) return false;
  changed_ = false;
  Forming formed(*this);
  const bool same = formed.group == group_ && formed.shared == shared_;
  group_ = std::move(formed.group);
  shared_ = std::move(formed.shared);
  all_.clear();
  for (const auto& [word, number] : group_) {
    if (word == number) all_.push_back(number);
  }
  std::sort(all_.begin(), all_.end());
  return !same;
}

std::uint32_t Groups::of(std::uint32_t word) const {
  if (shared_.count(word) != 0) return kShared;
  const auto found = group_.find(word);
  return found == group_.end() ? word : found->second;
}

}  // namespace holdfast::check
