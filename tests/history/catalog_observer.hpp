// What must hold of a catalog whatever happens, by one who sees the calls and their answers alone:
// for the search of all small histories and for random large ones.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "history/catalog.hpp"

namespace holdfast::test {

// Each check returns what is wrong; empty if nothing is.
struct CatalogObserver {
  using Catalog = history::Catalog;
  using State = history::State;
  using Step = history::Step;
  using Transfer = history::Transfer;

  std::set<Step> begun, arrived, discarded, harmed;
  std::map<Step, int> announced;        // hints whose restores have not ended
  std::set<std::pair<int, Step>> owed;  // kept for a restore that is still to come

  void recall(Step step) {
    const auto found = announced.find(step);
    if (found != announced.end() && --found->second == 0) announced.erase(found);
  }
  // A save of a number that was used before.
  void begin(Step step) {
    begun.insert(step);
    for (auto* set : {&arrived, &discarded, &harmed}) set->erase(step);
  }

  // A save was begun that no storage had room for: what hints keep in a cache may have made way.
  static bool is_last_resort(const Catalog& before, const Catalog& after,
                             const std::vector<history::TierSpec>& tiers) {
    if (after.transfers().empty() || after.transfers().size() == before.transfers().size())
      return false;
    const Transfer& begun = after.transfers().back();
    if (begun.kind != Transfer::Kind::save) return false;
    for (int tier = 0; tier < before.tiers(); ++tier) {
      const history::TierSpec& spec = tiers[static_cast<std::size_t>(tier)];
      if (!spec.storage) continue;
      std::uint64_t used = begun.bytes;
      for (const Step step : before.known_steps()) {
        if (before.state(step, tier) != State::absent) used += before.bytes_of(step);
      }
      if (spec.capacity == 0 || used <= spec.capacity) return false;
    }
    return true;
  }

  // Across any call: `owed_before` is what was owed before it, `evicted` what it took away.
  std::string judge_change(const Catalog& before, const std::set<std::pair<int, Step>>& owed_before,
                           const Catalog& after, const std::vector<std::pair<int, Step>>& evicted,
                           const std::vector<history::TierSpec>& tiers) const {
    const bool hints_give_way = is_last_resort(before, after, tiers);
    for (const auto& [tier, step] : evicted) {
      const State state = before.state(step, tier);
      if (discarded.contains(step)) continue;
      const bool kept = is_ready(state) || owed_before.contains({tier, step});
      if (kept && !hints_give_way) {
        return "evicted before it was restored";
      }
      bool elsewhere = false, stored = false, storable = false;
      for (int below = tier + 1; below < before.tiers(); ++below) {
        const bool storage = tiers[static_cast<std::size_t>(below)].storage;
        storable |= storage;
        if (!is_whole(before.state(step, below))) continue;
        elsewhere = true;
        stored |= storage;
      }
      if (!elsewhere) return "evicted while nothing else has it";
      // A cache behind a partner's memory is lost with the process.
      if (tiers[static_cast<std::size_t>(tier)].keeps_newest && storable && !stored) {
        return "evicted from what keeps the newest, and not stored";
      }
    }
    for (const Step step : arrived) {
      if (discarded.contains(step) || harmed.contains(step)) continue;
      bool whole = false;
      for (int tier = 0; tier < after.tiers(); ++tier) whole |= is_whole(after.state(step, tier));
      if (!whole) return "checkpoint " + std::to_string(step) + " is lost";
    }
    return {};
  }

  // What a state says of a copy, by the sentences of the paper.
  static std::string judge(const Catalog& catalog, Step step, int tier,
                           const std::set<State>& expected, const char* when) {
    const State state = catalog.state(step, tier);
    if (expected.contains(state)) return {};
    return std::string(to_string(state)) + " " + when + ", tier " + std::to_string(tier);
  }

  // Behind a transfer that is done, of a checkpoint that is there still.
  std::string judge_end(const Catalog& catalog, const std::vector<history::TierSpec>& tiers,
                        const Transfer& transfer) const {
    using enum State;
    const Step step = transfer.step;
    std::string wrong;
    const auto expect = [&](int tier, const std::set<State>& expected, const char* when) {
      if (wrong.empty()) wrong = judge(catalog, step, tier, expected, when);
    };
    switch (transfer.kind) {
      case Transfer::Kind::save:
      case Transfer::Kind::flush:
      case Transfer::Kind::refill:
        expect(transfer.to, {written_alone, flushed}, "behind a write");
        break;
      case Transfer::Kind::fetch:
        // Hints that were passed over before their checkpoint was saved are gone, so not all that
        // were given count.
        if (catalog.is_hinted(step) && !announced.contains(step)) return "hinted by nobody";
        if (catalog.is_hinted(step)) {
          expect(transfer.to, {ready, ready_alone}, "behind a prefetch");
        } else {
          expect(transfer.to, {flushed, written_alone}, "behind a prefetch in vain");
        }
        if (tiers[static_cast<std::size_t>(transfer.from)].keeps_newest) {
          expect(transfer.from, {written_alone, flushed, consumed, consumed_alone},
                 "behind a promotion that leaves it as it was");
        } else if (!tiers[static_cast<std::size_t>(transfer.from)].storage) {
          expect(transfer.from, {consumed, consumed_alone}, "behind its promotion");
        }
        break;
      case Transfer::Kind::restore:
        for (int tier = 0; tier < catalog.tiers(); ++tier) {
          if (tiers[static_cast<std::size_t>(tier)].storage) continue;
          if (!is_whole(catalog.state(step, tier))) continue;
          if (transfer.keep) {
            expect(tier, {written_alone, flushed}, "behind a restore that keeps");
          } else {
            expect(tier, {consumed, consumed_alone}, "behind a restore");
          }
        }
    }
    return wrong;
  }

  void remember_owed(const Catalog& catalog) {
    std::erase_if(owed, [&](const auto& copy) {
      return !announced.contains(copy.second) ||
             catalog.state(copy.second, copy.first) == State::absent;
    });
    for (const auto& [step, times] : announced) {
      for (int tier = 0; tier < catalog.tiers(); ++tier) {
        if (is_ready(catalog.state(step, tier))) owed.insert({tier, step});
      }
    }
  }

  // What holds at any time.
  std::string judge_all(const Catalog& catalog) const {
    for (const Step step : begun) {
      if (!catalog.contains(step) || announced.contains(step)) continue;
      for (int tier = 0; tier < catalog.tiers(); ++tier) {
        if (is_ready(catalog.state(step, tier))) {
          return "kept for a restore that nobody has announced";
        }
      }
    }
    for (const Transfer& transfer : catalog.transfers()) {
      if (transfer.to < 0) continue;
      const bool fetch = transfer.kind == Transfer::Kind::fetch;
      const std::string wrong =
          judge(catalog, transfer.step, transfer.to, {fetch ? State::reading : State::writing},
                "while it is written");
      if (!wrong.empty()) return wrong;
    }
    return {};
  }
};

}  // namespace holdfast::test
