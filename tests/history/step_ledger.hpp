// What a history may hold, kept apart from it: the oracle of its tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "history/folder_store.hpp"

namespace holdfast::test {

struct SavedStep {
  history::StepInfo info;  // saved_at_ns tells it from every other, and later ones have more
  std::vector<std::byte> blob;
  friend bool operator==(const SavedStep&, const SavedStep&) = default;
};

// Of `id` alone, at most `most` bytes.
inline SavedStep make_step(history::Step step, std::uint64_t id, std::uint64_t most) {
  std::mt19937_64 random(id);
  SavedStep saved;
  const std::uint64_t bytes = random() % (most + 1);
  saved.info = {step, bytes, {}, id};
  std::uint64_t at = 0;
  for (std::uint64_t part = random() % 4; part > 0 && at < bytes; --part) {
    const std::uint64_t size = 1 + random() % (bytes - at);
    saved.info.parts.push_back({"part " + std::to_string(part), at, size});
    at += size;
  }
  saved.blob.resize(bytes);
  for (std::byte& value : saved.blob) value = static_cast<std::byte>(random());
  return saved;
}

// As a store has it; throws what the store throws.
inline SavedStep read_step(history::StepStore& store, history::Step step) {
  SavedStep saved;
  saved.info = store.find(step).value();
  saved.blob.resize(saved.info.bytes);
  if (!store.read(step, saved.blob, {})) throw std::runtime_error("a read without a pace gave up");
  return saved;
}

// For each step, what may be found of it: one thing where a call has returned, more while one is on
// its way and after one that failed.
class StepLedger {
 public:
  void begin_write(const SavedStep& saved) { allowed(saved.info.step).push_back(saved); }
  void wrote(const SavedStep& saved) { allowed_[saved.info.step] = {saved}; }
  // Given up: nothing of it remains.
  void take_back(const SavedStep& saved) {
    std::erase(allowed(saved.info.step), std::optional(saved));
  }
  void begin_remove(history::Step step) { allowed(step).push_back(std::nullopt); }
  void removed(history::Step step) { allowed_[step] = {std::nullopt}; }

  // What is wrong with what a store offers; empty if nothing is.
  std::string check(history::StepStore& store) const {
    for (const history::DamagedFile& file : store.damaged()) return "damaged: " + file.reason;
    std::set<history::Step> steps;
    for (const auto& [step, states] : allowed_) steps.insert(step);
    for (const history::StepInfo& info : store.steps()) steps.insert(info.step);
    std::optional<std::pair<std::uint64_t, history::Step>> last;
    for (const history::Step step : steps) {
      std::optional<SavedStep> found;
      try {
        if (store.find(step)) found = read_step(store, step);
      } catch (const Error& error) {
        return error.what();
      }
      const auto states = allowed_.find(step);
      const bool known = states != allowed_.end();
      if (!(known ? std::count(states->second.begin(), states->second.end(), found) > 0 : !found)) {
        return "step " + std::to_string(step) + (found ? " is not what was saved" : " is lost");
      }
      if (found) last = std::max(last, {{found->info.saved_at_ns, step}});
    }
    if (store.latest() != (last ? std::optional(last->second) : std::nullopt)) {
      return "another step is the latest";
    }
    return {};
  }

  // What is found is what there is.
  void settle(history::StepStore& store) {
    for (auto& [step, states] : allowed_) {
      states = {store.find(step) ? std::optional(read_step(store, step)) : std::nullopt};
    }
  }

  std::vector<history::Step> possible() const {
    std::vector<history::Step> steps;
    for (const auto& [step, states] : allowed_) {
      if (states != States{std::nullopt}) steps.push_back(step);
    }
    return steps;
  }

 private:
  using States = std::vector<std::optional<SavedStep>>;
  States& allowed(history::Step step) {
    return allowed_.try_emplace(step, States{std::nullopt}).first->second;
  }
  std::map<history::Step, States> allowed_;
};

}  // namespace holdfast::test
