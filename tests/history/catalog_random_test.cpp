// Random histories of tens of checkpoints of many sizes over one to five tiers, with callers that
// wait, transfers that fail or find damage, and lanes that die. Behind every call the catalog is
// judged as in the search of small histories (catalog_model_test), and again and again everything
// under way is let end: then nobody may be left waiting.
//
// $HOLDFAST_CATALOG_RUN=number: that run alone, every call of it printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "catalog_observer.hpp"
#include "history/catalog.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast {
namespace {

using history::Answer;
using history::Catalog;
using history::Outcome;
using history::Step;
using history::TierSpec;
using history::Transfer;
using Kind = Transfer::Kind;
using Verdict = Answer::Verdict;

struct Totals {
  std::uint64_t calls = 0, waits = 0, evictions = 0, restores = 0, damages = 0, deaths = 0,
                settlings = 0, most_settling = 0;
};

class RandomHistory {
 public:
  RandomHistory(std::uint64_t seed, bool talks, Totals& totals)
      : random_(seed),
        talks_(talks),
        totals_(totals),
        tiers_(choose_tiers()),
        catalog_(tiers_, choose_options()) {}

  // Throws what is wrong.
  void go() {
    steps_ = 4 + below(40);
    fails_ = below(3) == 0 ? 0 : below(20);
    damages_ = below(3) == 0 ? 1 + below(5) : 0;
    dies_ = below(6) == 0;
    for (std::uint64_t call = 30 + below(120); call > 0; --call) {
      act();
      if (below(40) == 0) settle();
    }
    settle();
  }

 private:
  struct Caller {
    char what;  // 's'ave, 'r'estore, 'k'eep
    Step step;
    std::uint64_t bytes;
  };

  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

  std::vector<TierSpec> choose_tiers() {
    std::vector<TierSpec> tiers;
    const std::uint64_t caches = below(4);
    const std::uint64_t storages = caches == 0 ? 1 + below(2) : below(3);
    for (std::uint64_t i = 0; i < caches; ++i) {
      const std::uint64_t alignment = std::uint64_t{1} << below(5);
      tiers.push_back({.capacity = alignment + below(200), .alignment = alignment});
      const bool others =
          std::any_of(tiers.begin(), tiers.end(), [](const TierSpec& t) { return t.keeps_newest; });
      tiers.back().keeps_newest = i > 0 && !others && below(2) == 0;
      most_ = std::max(most_, tiers.back().capacity);
    }
    for (std::uint64_t i = 0; i < storages && tiers.size() < Catalog::kMaxTiers; ++i) {
      tiers.push_back({.capacity = below(2) * (1 + below(600)), .storage = true});
    }
    return tiers;
  }
  Catalog::Options choose_options() {
    return {.discard_consumed = below(4) == 0, .flush_attempts = static_cast<int>(1 + below(3))};
  }

  // Runs one call, and judges what it did.
  template <class Call>
  void judged(const std::string& name, Call&& call) {
    if (talks_) std::printf("%s\n", name.c_str());
    ++totals_.calls;
    last_ = name;
    const Catalog before = catalog_;
    const auto owed = observer_.owed;
    call();
    const auto evicted = catalog_.take_evicted();
    totals_.evictions += evicted.size();
    check(observer_.judge_change(before, owed, catalog_, evicted, tiers_));
    observer_.remember_owed(catalog_);
    check(observer_.judge_all(catalog_));
    std::string why;
    if (!catalog_.valid(&why)) check(why);
  }
  void check(const std::string& wrong) const {
    if (!wrong.empty()) throw std::runtime_error(wrong + ", behind " + last_);
  }

  // Mostly the sizes of one run are alike, as those of a program are.
  std::uint64_t choose_bytes() {
    if (below(8) == 0) return 1 + below(most_ + most_ / 8 + 2);
    return 1 + below(most_ / 3 + 1);
  }

  void act() {
    const std::uint64_t what = below(100);
    const Step step = below(steps_);
    if (what < 18) {
      if (callers_.size() < 3) ask({'s', step, choose_bytes()});
    } else if (what < 30) {
      if (callers_.size() < 3) ask({below(3) == 0 ? 'k' : 'r', step, 0});
    } else if (what < 40) {
      hint();
    } else if (what < 43) {
      discard(step);
    } else if (what < 44) {
      odd_call(step);
    } else if (what < 50) {
      for (std::size_t i = callers_.size(); i > 0; --i) retry(below(callers_.size()));
    } else if (what < 75) {
      lane();
    } else if (!catalog_.transfers().empty()) {
      const auto transfer = catalog_.transfers()[below(catalog_.transfers().size())];
      end(transfer, choose_outcome(transfer));
    }
  }

  void hint() {
    // The order that a program knows ahead, or any.
    const Step first = below(steps_ + 3);
    const std::uint64_t count = below(4) == 0 ? 1 + below(12) : 1;
    judged("hint from " + std::to_string(first), [&] {
      for (std::uint64_t i = 0; i < count; ++i) {
        const Step step = (first + steps_ + 3 - i) % (steps_ + 3);
        catalog_.hint(step);
        ++observer_.announced[step];
      }
      if (below(2) == 0) catalog_.start_prefetch();
    });
  }

  void discard(Step step) {
    judged("discard " + std::to_string(step), [&] {
      const bool there = catalog_.contains(step);
      if (there) {
        observer_.discarded.insert(step);
        observer_.announced.erase(step);
      }
      if (catalog_.discard(step) != there) check("discard() and contains() differ");
    });
  }

  void odd_call(Step step) {
    const std::uint64_t kind = below(3);
    if (kind == 0) {
      judged("retry flushes", [&] { catalog_.retry_flushes(); });
    } else if (kind == 1) {
      draining_ = !draining_;
      judged(draining_ ? "drain" : "drained",
             [&] { draining_ ? catalog_.drain_begins() : catalog_.drain_ends(); });
    } else if (damages_ > 0) {
      const int tier = static_cast<int>(below(tiers_.size()));
      judged("found damaged " + std::to_string(step) + " in " + std::to_string(tier), [&] {
        observer_.harmed.insert(step);
        catalog_.found_damaged(step, tier);
      });
    }
  }

  Answer question(const Caller& caller) {
    if (caller.what == 's') return catalog_.begin_save(caller.step, caller.bytes, below(5) == 0);
    return catalog_.begin_restore(caller.step, caller.what == 'k');
  }

  // Whether the caller goes on.
  bool answered(const Caller& caller, bool waited) {
    bool goes_on = true;
    judged(caller.what + (" " + std::to_string(caller.step)) + (waited ? " again" : ""), [&] {
      const Answer answer = question(caller);
      goes_on = answer.verdict != Verdict::wait;
      if (answer.verdict == Verdict::go && caller.what == 's') observer_.begin(caller.step);
      if (answer.verdict == Verdict::lost && !observer_.harmed.contains(caller.step)) {
        check("restore() calls it lost");
      }
      if (goes_on && waited) catalog_.caller_goes_on();
      if (!goes_on && !waited) catalog_.caller_waits();
    });
    return goes_on;
  }
  void ask(const Caller& caller) {
    if (answered(caller, false)) return;
    ++totals_.waits;
    callers_.push_back(caller);
  }
  bool retry(std::size_t i) {
    if (!answered(callers_[i], true)) return false;
    callers_.erase(callers_.begin() + static_cast<std::ptrdiff_t>(i));
    return true;
  }

  // What a fetch lane does into storage is a refill.
  static bool is_of_lane(const Transfer& transfer, Kind kind, int tier) {
    if (kind == Kind::flush) return transfer.kind == kind && transfer.from == tier;
    const bool fetches = transfer.kind == Kind::fetch || transfer.kind == Kind::refill;
    return fetches && transfer.to == tier;
  }
  bool is_busy(Kind kind, int tier) const {
    return std::any_of(catalog_.transfers().begin(), catalog_.transfers().end(),
                       [&](const Transfer& transfer) { return is_of_lane(transfer, kind, tier); });
  }
  // Whether the lane has begun something.
  bool begin(Kind kind, int tier) {
    if (is_busy(kind, tier)) return false;
    bool begun = false;
    judged((kind == Kind::flush ? "flush lane " : "fetch lane ") + std::to_string(tier), [&] {
      const auto transfer =
          kind == Kind::flush ? catalog_.next_flush(tier) : catalog_.next_fetch(tier);
      begun = transfer.has_value();
    });
    return begun;
  }
  void lane() {
    if (tiers_.size() < 2) return;
    const Kind kind = below(2) == 0 ? Kind::flush : Kind::fetch;
    const int tier = static_cast<int>(below(tiers_.size() - 1));
    if (!dies_ || below(60) > 0) {
      begin(kind, tier);
      return;
    }
    ++totals_.deaths;
    if (tiers_[static_cast<std::size_t>(tier)].keeps_newest && below(2) == 0) {
      judged("its memory is lost", [&] { catalog_.take_no_more(tier); });
      return;
    }
    const auto transfers = catalog_.transfers();
    for (const Transfer& transfer : transfers) {
      if (is_of_lane(transfer, kind, tier)) end(transfer, Outcome::failed);
    }
    judged("lane dies", [&] { catalog_.lane_died(kind, tier); });
  }

  Outcome choose_outcome(const Transfer& transfer) {
    const std::uint64_t what = below(100);
    if (what < fails_) return Outcome::failed;
    if (what < fails_ + damages_ && transfer.from >= 0) return Outcome::damaged;
    return Outcome::done;
  }

  void end(Transfer transfer, Outcome outcome) {  // a copy: it is of the catalog
    const char* const names[] = {"done ", "failed ", "damaged "};
    const char* const kinds[] = {"save ", "flush ", "fetch ", "restore ", "refill "};
    judged(names[static_cast<int>(outcome)] + std::string(kinds[static_cast<int>(transfer.kind)]) +
               std::to_string(transfer.step),
           [&] {
             const Step step = transfer.step;
             const bool done = outcome == Outcome::done;
             const bool was_there = catalog_.contains(step);
             if (outcome == Outcome::damaged) observer_.harmed.insert(step), ++totals_.damages;
             catalog_.finish(transfer, outcome);
             const bool restored = transfer.kind == Kind::restore && done;
             totals_.restores += restored;
             if ((transfer.kind == Kind::fetch && !done) || (restored && was_there)) {
               observer_.recall(step);
             }
             if (restored) {
               std::erase_if(observer_.owed, [&](auto& copy) { return copy.second == step; });
             }
             if (transfer.kind == Kind::fetch) observer_.owed.erase({transfer.from, step});
             if (transfer.kind == Kind::save && done) observer_.arrived.insert(step);
             if (done && catalog_.contains(step)) {
               check(observer_.judge_end(catalog_, tiers_, transfer));
             }
             if (was_there && restored && !catalog_.contains(step)) {
               observer_.discarded.insert(step);
             }
           });
  }

  // Everything under way ends, in any order, and lanes do what there is; callers ask again. That is
  // bounded, and then nobody waits: not who asked, nor who waits for a ticket or in flush().
  void settle() {
    ++totals_.settlings;
    catalog_.caller_waits();  // in flush()
    const std::uint64_t bound = 200 + 40 * tiers_.size() * (steps_ + observer_.announced.size());
    std::uint64_t actions = 0;
    for (bool goes_on = true; goes_on;) {
      goes_on = false;
      for (int tier = 0; tier + 1 < catalog_.tiers(); ++tier) {
        for (const Kind kind : {Kind::flush, Kind::fetch}) {
          const bool begun = begin(kind, tier);
          goes_on |= begun;
          actions += begun;
        }
      }
      while (!catalog_.transfers().empty()) {
        end(catalog_.transfers()[below(catalog_.transfers().size())], Outcome::done);
        goes_on = true;
        ++actions;
        if (below(2) == 0) break;
      }
      for (std::size_t i = callers_.size(); i > 0; --i) goes_on |= retry(below(callers_.size()));
      if (actions > bound) check("lanes never come to rest");
    }
    totals_.most_settling = std::max(totals_.most_settling, actions);
    if (!callers_.empty()) {
      check(std::string("'") + callers_[0].what + "' of " + std::to_string(callers_[0].step) +
            " waits for ever");
    }
    if (catalog_.flush_pending()) check("flush() waits for ever");
    if (catalog_.refill_pending()) check("flush() waits for ever for a refill");
    if (catalog_.discard_pending()) check("what was discarded never goes");
    for (const Step step : catalog_.steps()) {
      for (int tier = 0; tier < catalog_.tiers(); ++tier) {
        if (!is_whole(catalog_.state(step, tier)) && catalog_.will_reach(step, tier)) {
          check("a ticket waits for ever");
        }
      }
    }
    catalog_.caller_goes_on();
  }

  std::mt19937_64 random_;
  const bool talks_;
  Totals& totals_;
  std::uint64_t most_ = 100;
  const std::vector<TierSpec> tiers_;
  Catalog catalog_;
  test::CatalogObserver observer_;
  std::vector<Caller> callers_;
  std::uint64_t steps_ = 0, fails_ = 0, damages_ = 0;
  bool draining_ = false;
  bool dies_ = false;
  std::string last_;
};

TEST(CatalogRandomTest, TenThousandHistoriesKeepTheirPromises) {
  const char* const one = std::getenv("HOLDFAST_CATALOG_RUN");
  const std::uint64_t seed = one ? std::strtoull(one, nullptr, 0) : test::test_seed();
  const std::uint64_t runs = one ? 1 : test::some_of(10'000);
  Totals totals;
  for (std::uint64_t run = 0; run < runs; ++run) {
    try {
      RandomHistory(seed + run, one != nullptr, totals).go();
    } catch (const std::exception& error) {
      FAIL() << error.what() << ": HOLDFAST_CATALOG_RUN=" << seed + run;
    }
  }
  std::printf(
      "%llu calls, %llu waits, %llu evictions, %llu restores, %llu damages, %llu deaths; "
      "%llu times at rest, behind at most %llu transfers\n",
      static_cast<unsigned long long>(totals.calls), static_cast<unsigned long long>(totals.waits),
      static_cast<unsigned long long>(totals.evictions),
      static_cast<unsigned long long>(totals.restores),
      static_cast<unsigned long long>(totals.damages),
      static_cast<unsigned long long>(totals.deaths),
      static_cast<unsigned long long>(totals.settlings),
      static_cast<unsigned long long>(totals.most_settling));
  if (one || test::share() > 1) return;
  EXPECT_GT(totals.waits, 1000u);
  EXPECT_GT(totals.evictions, 10'000u);
  EXPECT_GT(totals.restores, 10'000u);
  EXPECT_GT(totals.deaths, 100u);
}

}  // namespace
}  // namespace holdfast
