#include "check/groups.hpp"

#include <algorithm>

#include "check/recorder.hpp"

namespace holdfast::check {

void Groups::add(const std::vector<std::pair<std::uint64_t, std::uint32_t>>& touched) {
  for (const auto& [actor, word] : touched) {
    if (shared_.count(word) != 0) continue;
    auto& actors = actors_[word];
    if (std::find(actors.begin(), actors.end(), actor) != actors.end()) continue;
    changed_ = true;
    actors.push_back(actor);
    if (actor == Recorder::kHostActor || actors.size() > kFew) {
      actors_.erase(word);
      shared_.insert(word);
    }
  }
}

bool Groups::form() {
  if (!changed_) return false;
  changed_ = false;
  // Words are united through their actors.
  std::unordered_map<std::uint32_t, std::uint32_t> parent;
  const auto find = [&](std::uint32_t word) {
    while (parent[word] != word) word = parent[word] = parent[parent[word]];
    return word;
  };
  std::unordered_map<std::uint64_t, std::uint32_t> word_of;  // of an actor
  for (const auto& [word, actors] : actors_) parent[word] = word;
  for (const auto& [word, actors] : actors_) {
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
  for (const auto& [word, actors] : actors_) group[word] = find(word);
  const bool same = group == group_;
  group_ = std::move(group);
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
