// Every interleaving of small histories: what the program asks for, what lanes begin, how transfers
// end, and lanes that die. The code that is searched is the code that runs.
#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_set>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "catalog_observer.hpp"
#include "history/catalog.hpp"
#include "support/sanitized.hpp"
#include "support/share.hpp"

namespace {

using holdfast::history::Answer;
using holdfast::history::Catalog;
using holdfast::history::Input;
using holdfast::history::is_evictable;
using holdfast::history::is_ready;
using holdfast::history::is_whole;
using holdfast::history::kInputs;
using holdfast::history::kStates;
using holdfast::history::life_cycle;
using holdfast::history::LifeCycleTable;
using holdfast::history::Outcome;
using holdfast::history::State;
using holdfast::history::Step;
using holdfast::history::TierSpec;
using holdfast::history::Transfer;
using holdfast::test::Every;
using holdfast::test::every;
using holdfast::test::kSanitized;
using holdfast::test::share;
using holdfast::test::test_seed;
using Verdict = Answer::Verdict;

// $HOLDFAST_MODEL_LARGE=1: searches of millions of states.
bool large() { return std::getenv("HOLDFAST_MODEL_LARGE") != nullptr; }

// What a search may do, and how often.
struct Scenario {
  std::string name;
  std::vector<TierSpec> tiers;
  std::vector<std::uint64_t> sizes = {1, 1, 1};  // of the checkpoints 0, 1, 2
  // In order: the count to the next oldest flush would multiply the states.
  Catalog::Options options{.oldest_flush_every = 1};
  int restores = large() ? 2 : 1, hints = kSanitized ? 1 : 2, discards = 1, failures = 1,
      damages = 0, deaths = 0;
  int drains = 0;           // times that another thread waits until all is flushed
  int flushes_at_once = 1;  // of a lane
  friend void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }
  bool never_full = true;  // storage without a limit, and lanes that live
};

TierSpec cache(std::uint64_t units) { return {.capacity = units, .alignment = 1}; }
// Of a partner.
TierSpec safe(std::uint64_t units) {
  return {.capacity = units, .alignment = 1, .keeps_newest = true};
}
TierSpec storage(std::uint64_t units = 0) { return {.capacity = units, .storage = true}; }

// A history at one moment, with what an observer knows of it.
struct Node : holdfast::test::CatalogObserver {
  explicit Node(Catalog with) : catalog(std::move(with)) {}
  Catalog catalog;
  int restores = 0, hints = 0, discards = 0, failures = 0, damages = 0, deaths = 0;
  int drains = 0;                                // begun and ended
  std::optional<std::pair<char, Step>> blocked;  // 's'ave or 'r'estore that waits
  struct Action {
    std::string name;
    std::shared_ptr<const Action> before;
  };
  std::shared_ptr<const Action> last;

  std::string path() const {
    std::string path;
    for (const Action* action = last.get(); action; action = action->before.get()) {
      path = " " + action->name + path;
    }
    return path;
  }

  std::string key() const {
    std::string key = catalog.fingerprint();
    for (const int used : {restores, hints, discards, failures, damages, deaths, drains}) {
      key += static_cast<char>('a' + used);
    }
    for (const auto* set : {&begun, &arrived, &discarded, &harmed}) {
      for (const Step step : *set) key += static_cast<char>('0' + step);
      key += ';';
    }
    for (const auto& [step, times] : announced) {
      key += static_cast<char>('0' + step), key += static_cast<char>('0' + times);
    }
    for (const auto& [tier, step] : owed) {
      key += static_cast<char>('A' + tier), key += static_cast<char>('0' + step);
    }
    if (blocked) key += blocked->first, key += static_cast<char>('0' + blocked->second);
    return key;
  }
};

class Search {
 public:
  Search(const Scenario& scenario, const LifeCycleTable& table)
      : scenario_(scenario), start_(Catalog(scenario.tiers, scenario.options, table)) {}

  // Returns what is wrong, and how one comes to it; empty if nothing is.
  std::string run(std::size_t limit) {
    add(start_);
    while (!open_.empty() && wrong_.empty()) {
      if (seen_.size() > limit) return "more than " + std::to_string(limit) + " states";
      const Node node = std::move(open_.front());
      open_.pop_front();
      try {
        expand(node);
      } catch (const std::logic_error& error) {
        Node at = node;
        at.last = last_;
        wrong_ = error.what() + (" behind" + at.path());
      }
    }
    return wrong_;
  }
  std::size_t states() const { return seen_.size(); }
  std::size_t blocked() const { return blocked_; }
  std::size_t evictions() const { return evictions_; }
  std::size_t past() const { return past_; }

 private:
  void fail(const Node& node, const std::string& what) {
    if (wrong_.empty()) wrong_ = what + " behind" + node.path();
  }

  // A copy of `node` behind an action; examined once the action was done.
  Node next(const Node& node, const std::string& action) {
    Node copy = node;
    copy.last = std::make_shared<const Node::Action>(action, node.last);
    last_ = copy.last;
    return copy;
  }

  // What holds of a node alone is looked at once, where it is new.
  void add(Node node) {
    const std::string key = node.key();
    if (!seen_.insert(XXH3_64bits(key.data(), key.size())).second) return;
    std::string why;
    if (!node.catalog.valid(&why)) return fail(node, why);
    const std::string wrong = node.judge_all(node.catalog);
    if (!wrong.empty()) return fail(node, wrong);
    open_.push_back(std::move(node));
  }

  // What must hold across any action.
  void arrive(const Node& before, Node after) {
    const auto evicted = after.catalog.take_evicted();
    evictions_ += evicted.size();
    const std::string lost =
        after.judge_change(before.catalog, before.owed, after.catalog, evicted, scenario_.tiers);
    if (!lost.empty()) return fail(after, lost);
    after.remember_owed(after.catalog);
    add(std::move(after));
  }

  void judge(const Node& node, Step step, int tier, std::set<State> expected, const char* when) {
    const std::string wrong = Node::judge(node.catalog, step, tier, expected, when);
    if (!wrong.empty()) fail(node, wrong);
  }

  void save(const Node& node, Step step) {
    Node after = next(node, "save" + std::to_string(step));
    const Answer answer = after.catalog.begin_save(step, scenario_.sizes[step], false);
    answered(node, std::move(after), answer, 's', step);
  }

  void restore(const Node& node, Step step, bool keep) {
    Node after = next(node, (keep ? "keep" : "restore") + std::to_string(step));
    const Answer answer = after.catalog.begin_restore(step, keep);
    if (answer.verdict == Verdict::lost && !after.harmed.contains(step)) {
      return fail(after, "restore() calls it lost");
    }
    answered(node, std::move(after), answer, keep ? 'k' : 'r', step);
  }

  void answered(const Node& before, Node after, const Answer& answer, char what, Step step) {
    const bool was_blocked = before.blocked.has_value();
    if (answer.verdict == Verdict::wait) {
      if (was_blocked) return;  // nothing has changed
      after.blocked = {what, step};
      after.catalog.caller_waits();
      ++blocked_;
    } else {
      if (was_blocked) {
        after.blocked.reset();
        after.catalog.caller_goes_on();
      }
      if (what == 's') after.begun.insert(step);
      if (answer.verdict == Verdict::full && scenario_.never_full) {
        return fail(after, "save() was refused where storage has room");
      }
      if (answer.verdict == Verdict::go && what == 's' && answer.transfer.to > 0) ++past_;
    }
    arrive(before, std::move(after));
  }

  void program(const Node& node) {
    if (node.drains < 2 * scenario_.drains) {
      const bool begins = node.drains % 2 == 0;
      Node after = next(node, begins ? "drain" : "drained");
      ++after.drains;
      begins ? after.catalog.drain_begins() : after.catalog.drain_ends();
      arrive(node, std::move(after));
    }
    if (node.blocked) {
      const auto [what, step] = *node.blocked;
      what == 's' ? save(node, step) : restore(node, step, what == 'k');
      return;
    }
    for (Step step = 0; step < scenario_.sizes.size(); ++step) {
      if (node.begun.contains(step)) continue;
      save(node, step);
      break;
    }
    for (Step step = 0; step < scenario_.sizes.size(); ++step) {
      if (node.hints < scenario_.hints) {
        Node after = next(node, "hint" + std::to_string(step));
        ++after.hints;
        ++after.announced[step];
        after.catalog.hint(step);
        after.catalog.start_prefetch();
        arrive(node, std::move(after));
      }
      if (!node.catalog.contains(step)) continue;
      if (node.restores < scenario_.restores) {
        Node after = node;
        ++after.restores;
        restore(after, step, false);
        restore(after, step, true);
      }
      if (node.discards < scenario_.discards) {
        Node after = next(node, "discard" + std::to_string(step));
        ++after.discards;
        after.discarded.insert(step);
        after.announced.erase(step);
        after.catalog.discard(step);
        arrive(node, std::move(after));
      }
    }
  }

  bool lane_is_busy(const Node& node, Transfer::Kind kind, int tier) const {
    int left = kind == Transfer::Kind::flush ? scenario_.flushes_at_once : 1;
    for (const Transfer& transfer : node.catalog.transfers()) {
      left -= is_of_lane(transfer, kind, tier);
    }
    return left <= 0;
  }
  // What a fetch lane does into storage is a refill.
  static bool is_of_lane(const Transfer& transfer, Transfer::Kind kind, int tier) {
    if (kind == Transfer::Kind::flush) return transfer.kind == kind && transfer.from == tier;
    const bool fetches =
        transfer.kind == Transfer::Kind::fetch || transfer.kind == Transfer::Kind::refill;
    return fetches && transfer.to == tier;
  }

  // The prefetcher has passed the first that is hinted, if the fastest tier has it.
  void judge_wanted(const Node& before, const Node& after) {
    if (before.announced.size() != 1 || after.deaths > 0) return;
    const Step step = before.announced.begin()->first;
    if (!before.catalog.contains(step)) return;
    if (!is_whole(before.catalog.state(step, 0)) || before.catalog.prefetch_distance() == 0) return;
    judge(after, step, 0, {State::ready, State::ready_alone}, "though it is wanted next");
  }

  // Returns whether any lane could begin something.
  bool lanes(const Node& node) {
    bool any = false;
    for (const Transfer::Kind kind : {Transfer::Kind::flush, Transfer::Kind::fetch}) {
      for (int tier = 0; tier + 1 < node.catalog.tiers(); ++tier) {
        const bool flush = kind == Transfer::Kind::flush;
        const std::string name = (flush ? "flush" : "fetch") + std::to_string(tier);
        if (!lane_is_busy(node, kind, tier)) {
          Node after = next(node, name);
          const auto begun =
              flush ? after.catalog.next_flush(tier) : after.catalog.next_fetch(tier);
          any |= begun.has_value();
          if (!flush && tier == 0) judge_wanted(node, after);
          arrive(node, std::move(after));
        }
        if (node.deaths < scenario_.deaths) {
          Node after = next(node, name + "-dies");
          ++after.deaths;
          for (const Transfer& transfer : node.catalog.transfers()) {
            if (!is_of_lane(transfer, kind, tier)) continue;
            after.catalog.finish(transfer, Outcome::failed);
            if (transfer.kind == Transfer::Kind::fetch) after.recall(transfer.step);
          }
          after.catalog.lane_died(kind, tier);
          arrive(node, std::move(after));
        }
        const bool partners = scenario_.tiers[static_cast<std::size_t>(tier)].keeps_newest;
        if (node.deaths < scenario_.deaths && flush && partners) {
          Node after = next(node, "lost" + std::to_string(tier));
          ++after.deaths;
          after.catalog.take_no_more(tier);
          arrive(node, std::move(after));
        }
      }
    }
    return any;
  }

  void end(const Node& node, const Transfer& transfer, Outcome outcome) {
    const char* names[] = {"done", "failed", "damaged"};
    Node after = next(node, std::string(names[static_cast<int>(outcome)]) + "(" +
                                std::to_string(static_cast<int>(transfer.kind)) + "," +
                                std::to_string(transfer.step) + ")");
    after.failures += outcome == Outcome::failed;
    if (outcome == Outcome::damaged) ++after.damages, after.harmed.insert(transfer.step);
    after.catalog.finish(transfer, outcome);
    const bool failed_fetch = transfer.kind == Transfer::Kind::fetch && outcome != Outcome::done;
    const bool restored = transfer.kind == Transfer::Kind::restore && outcome == Outcome::done;
    const bool doomed = after.discarded.contains(transfer.step);  // later hints mean a later one
    if (failed_fetch || (restored && !doomed)) after.recall(transfer.step);
    if (restored)
      std::erase_if(after.owed, [&](auto& copy) { return copy.second == transfer.step; });
    if (transfer.kind == Transfer::Kind::fetch) after.owed.erase({transfer.from, transfer.step});
    if (transfer.kind == Transfer::Kind::save && outcome == Outcome::done) {
      after.arrived.insert(transfer.step);
    }
    if (outcome == Outcome::done && after.catalog.contains(transfer.step)) {
      const std::string wrong = after.judge_end(after.catalog, scenario_.tiers, transfer);
      if (!wrong.empty()) fail(after, wrong);
    }
    if (scenario_.options.discard_consumed && !transfer.keep &&
        transfer.kind == Transfer::Kind::restore && outcome == Outcome::done) {
      after.discarded.insert(transfer.step);
    }
    arrive(node, std::move(after));
  }

  // The program asks for all to be flushed: a lane has something to do, or nothing is pending.
  void wait_for_flushes(const Node& node) {
    Catalog waited = node.catalog;
    waited.caller_waits();
    if (!waited.flush_pending()) return;
    for (int tier = 0; tier < waited.tiers(); ++tier) {
      if (!waited.is_cache(tier)) continue;
      if (waited.next_flush(tier)) return;
    }
    fail(node, "who waits for flushes waits for ever");
  }

  void expand(const Node& node) {
    program(node);
    const bool lanes_begin = lanes(node);
    for (const Transfer& transfer : node.catalog.transfers()) {
      end(node, transfer, Outcome::done);
      if (node.failures < scenario_.failures) end(node, transfer, Outcome::failed);
      if (node.damages < scenario_.damages && transfer.from >= 0) {
        end(node, transfer, Outcome::damaged);
      }
    }
    const bool rests = !lanes_begin && node.catalog.transfers().empty();
    if (rests) wait_for_flushes(node);
    if (rests && node.blocked) {
      Node retry = node;
      const auto [what, step] = *node.blocked;
      const Answer answer = what == 's'
                                ? retry.catalog.begin_save(step, scenario_.sizes[step], false)
                                : retry.catalog.begin_restore(step, false);
      if (answer.verdict == Verdict::wait) fail(node, "the program waits for ever");
    }
  }

  const Scenario& scenario_;
  Node start_;
  std::deque<Node> open_;
  std::unordered_set<std::uint64_t> seen_;  // hashes of keys
  std::string wrong_;
  std::shared_ptr<const Node::Action> last_;
  std::size_t blocked_ = 0, evictions_ = 0, past_ = 0;
};

std::vector<Scenario> scenarios() {
  return {
      {.name = "AGpuCacheAndADisk", .tiers = {cache(2), storage()}},
      {.name = "SizesThatLeaveGaps", .tiers = {cache(3), storage()}, .sizes = {1, 2, 2}},
      {.name = "TwoCachesAlone", .tiers = {cache(1), cache(2)}, .never_full = false},
      {.name = "TwoCachesAndADisk", .tiers = {cache(1), cache(1), storage()}},
      {.name = "FlushedInTheOrderOfEviction",
       .tiers = {cache(2), cache(2), storage()},
       .options = {.oldest_flush_every = 2},
       .discards = 0,
       .failures = 0},
      {.name = "TheFrontStaysInTheFastestCache",
       .tiers = {cache(3), cache(1), storage()},
       .discards = 0,
       .failures = 0},
      {.name = "DrainedBesideTheProgram",
       .tiers = {cache(1), cache(1), storage()},
       .discards = 0,
       .failures = 0,
       .drains = 1},
      {.name = "ADiskThatIsFull",
       .tiers = {cache(1), cache(1), storage(1)},
       .failures = 0,
       .never_full = false},
      {.name = "ADiskThatMayHaveRoomOnceMoreHasCome",
       .tiers = {cache(1), cache(1), storage(1)},
       .options = {.retains = true, .oldest_flush_every = 1},
       .failures = 0,
       .never_full = false},
      {.name = "ADiskThatTakesTheSmallAlone",
       .tiers = {cache(2), cache(2), storage(2)},
       .sizes = {1, 2, 1},
       .options = {.retains = true, .oldest_flush_every = 1},
       .discards = 0,
       .failures = 0,
       .never_full = false},
      {.name = "LanesThatDie",
       .tiers = {cache(1), cache(1), storage()},
       .discards = 0,
       .failures = 0,
       .deaths = 1,
       .never_full = false},
      {.name = "Damage", .tiers = {cache(1), cache(1), storage()}, .failures = 0, .damages = 1},
      {.name = "ConsumedAndDiscarded",
       .tiers = {cache(1), cache(2), storage()},
       .options = {.discard_consumed = true, .oldest_flush_every = 1},
       .discards = 0},
      {.name = "APartnerAndADisk",
       .tiers = {cache(1), safe(1), storage()},
       .failures = 0,
       .damages = 1},
      {.name = "APartnerThatIsFull",
       .tiers = {cache(1), safe(2), storage(1)},
       .sizes = {1, 1, 2},
       .failures = 0,
       .never_full = false},
      {.name = "AHostAPartnerAndADisk",
       .tiers = {cache(1), cache(1), safe(1), storage()},
       .sizes = {1, 1},
       .discards = 1},
      {.name = "APartnerBeforeTheHost",
       .tiers = {cache(1), safe(1), cache(1), storage()},
       .sizes = {1, 1},
       .discards = 1},
      {.name = "APartnerThatIsBroughtTwoAtOnce",
       .tiers = {cache(2), safe(2), storage()},
       .hints = large() ? 1 : 0,
       .discards = large() ? 1 : 0,
       .failures = 1,
       .flushes_at_once = 2},
      {.name = "APartnerBeforeTheHostThatIsLost",
       .tiers = {cache(1), safe(1), cache(1), storage()},
       .sizes = {1, 1},
       .hints = 1,
       .discards = 0,
       .failures = 0,
       .deaths = 1,
       .never_full = false},
      {.name = "APartnerThatIsLostOrWhoseLanesDie",
       .tiers = {cache(1), safe(1), storage()},
       .discards = 0,
       .failures = 0,
       .deaths = 1,
       .never_full = false},
      {.name = "ADiskThatLosesWhatARemoteTierHas",
       .tiers = {cache(1), storage(1), storage()},
       .sizes = {1, 1},
       .damages = 1},
      {.name = "FourTiers",
       .tiers = {cache(1), cache(1), storage(), storage()},
       .sizes = {1, 1},
       .discards = 1},
  };
}

class CatalogModel : public ::testing::TestWithParam<Scenario> {};

TEST_P(CatalogModel, LosesNothingAndNeverWaitsForEver) {
  Scenario scenario = GetParam();
  if (share() > 1 && test_seed() % share() != 0) scenario.hints = std::min(scenario.hints, 1);
  Search search(scenario, life_cycle());
  EXPECT_EQ(search.run(20'000'000), "");
  std::printf("%zu states, %zu waits, %zu evictions, %zu saves past the first tier\n",
              search.states(), search.blocked(), search.evictions(), search.past());
  EXPECT_GT(search.states(), 1000u);
  EXPECT_GT(search.evictions(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Scenarios, CatalogModel, ::testing::ValuesIn(scenarios()),
                         [](const auto& info) { return info.param.name; });

// Small, and with all that can happen in one or another.
std::vector<Scenario> small_scenarios() {
  return {
      {.name = "Disk", .tiers = {cache(1), storage()}, .sizes = {1, 1}, .restores = 1, .hints = 1},
      {.name = "Host",
       .tiers = {cache(1), cache(1), storage()},
       .sizes = {1, 1},
       .restores = 1,
       .hints = 1,
       .damages = 1},
      {.name = "Memory",
       .tiers = {cache(1), cache(2)},
       .sizes = {1, 1},
       .restores = 1,
       .hints = 2,
       .never_full = false},
  };
}

// Every entry of the table, changed to each other state and to "must not come". life_cycle_test
// notices each by the paper's sentences; here the search itself does, but for those that the
// catalog puts right before anyone can see them: it compares what is alone with what slower tiers
// have at the end of every call, and looks at hints again before it evicts for a prefetch.
TEST(CatalogModelMutants, AChangedLifeCycleIsNoticed) {
  if (kSanitized) GTEST_SKIP() << "other builds search";
  std::size_t changes = 0, changed = 0, survived = 0;
  const Every tried = every();
  for (std::size_t state = 0; state < kStates; ++state) {
    for (std::size_t input = 0; input < kInputs; ++input) {
      const std::uint8_t right = life_cycle().next[state][input];
      if (right == kStates) continue;
      for (std::uint8_t next = 0; next <= kStates; ++next) {
        if (next == right || changes++ % tried.step != tried.first) continue;
        LifeCycleTable table = life_cycle();
        table.next[state][input] = next;
        ++changed;
        bool noticed = false;
        for (const Scenario& scenario : small_scenarios()) {
          noticed |= !Search(scenario, table).run(1'000'000).empty();
          if (noticed) break;
        }
        if (noticed) continue;
        ++survived;
        const std::string name =
            std::string(to_string(static_cast<State>(state))) + ", " +
            to_string(static_cast<Input>(input)) + " -> " +
            (next == kStates ? "nothing" : to_string(static_cast<State>(next)));
        std::printf("survives: %s\n", name.c_str());
        EXPECT_NE(next, kStates) << name;
        if (next != kStates) {
          EXPECT_TRUE(is_whole(static_cast<State>(next)) && is_whole(static_cast<State>(right)))
              << name;
        }
      }
    }
  }
  std::printf("%zu changed tables, %zu survive the search\n", changed, survived);
  EXPECT_LT(survived * (share() == 1 ? 10 : 2), changed);
}

}  // namespace
