#include "check/groups.hpp"

#include <algorithm>

#include "check/recorder.hpp"

namespace holdfast::check {

void Groups::add(const std::vector<std::pair<std::uint64_t, std::uint32_t>>& touched) {
  for (const auto& [actor, word] : touched) {
    auto& actors = actors_[word];
    if (actors.size() >= kMany) continue;
    if (std::find(actors.begin(), actors.end(), actor) != actors.end()) continue;
    changed_ = true;
    actors.push_back(actor);
    if (all_actors_.insert(actor).second && is_item(actor)) ++items_;
  }
}

bool Groups::is_common(const std::vector<std::uint64_t>& actors) const {
  if (actors.size() > std::max(kFew, std::min(kMany - 1, all_actors_.size() / 2))) return true;
  const auto items = static_cast<std::size_t>(std::count_if(
      actors.begin(), actors.end(), [](std::uint64_t actor) { return is_item(actor); }));
  if (items > std::max(kFew, items_ / 2)) return true;
  return std::find(actors.begin(), actors.end(), Recorder::kHostActor) != actors.end();
}

bool Groups::form() {
  if (!changed_) return false;
  changed_ = false;
  std::unordered_set<std::uint32_t> shared;
  for (const auto& [word, actors] : actors_) {
    if (is_common(actors)) shared.insert(word);
  }
  // Words are united through their actors.
  std::unordered_map<std::uint32_t, std::uint32_t> parent;
  const auto find = [&](std::uint32_t word) {
    while (parent[word] != word) word = parent[word] = parent[parent[word]];
    return word;
  };
  std::unordered_map<std::uint64_t, std::uint32_t> word_of;  // of an actor
  for (const auto& [word, actors] : actors_) parent[word] = word;
  for (const auto& [word, actors] : actors_) {
    if (shared.count(word) != 0) continue;
    for (const std::uint64_t actor : actors) {
      const auto [known, first] = word_of.try_emplace(actor, word);
      if (first) continue;
      // The least word leads, so that a group's number is a function of its words.
      const std::uint32_t a = find(word);
      const std::uint32_t b = find(known->second);
      parent[std::max(a, b)] = std::min(a, b);
    }
  }
  std::unordered_map<std::uint32_t, std::uint32_t> group;
  for (const auto& [word, actors] : actors_) {
    if (shared.count(word) == 0) group[word] = find(word);
  }
  const bool same = group == group_ && shared == shared_;
  group_ = std::move(group);
  shared_ = std::move(shared);
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
