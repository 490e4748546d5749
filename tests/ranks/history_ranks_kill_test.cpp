// Ranks are killed, one of them or all together, at random moments: while they open their
// histories, save, agree, discard and close them. The others come to an end by themselves and in
// time; and whatever the next life finds, all ranks find of one save, whole, and nothing is missing
// that was reported as complete on all of them.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <random>
#include <stdexcept>

#include "history/history_oracle.hpp"
#include "holdfast/history.hpp"
#include "rank_processes.hpp"
#include "support/scratch.hpp"

namespace holdfast {
namespace {

using test::Field;
using test::RankProcesses;
using Clock = std::chrono::steady_clock;

constexpr int kRanks = 3;
constexpr std::uint64_t kSteps = 4096;  // numbers that the test can come to
constexpr std::uint64_t kKeepLast = 3;
constexpr int kLost = 42;  // how a rank ends that has lost another
constexpr std::chrono::seconds kPatience{5};

// What is complete on all ranks: an id, or 0 where that is not known, and below it how often one
// was taken back. A rank that is late must not report what another has let go meanwhile.
class Reported {
 public:
  std::uint64_t id() const { return value_ >> kIdShift; }
  std::uint64_t times() const { return value_ & kTimes; }
  void set(std::uint64_t id, std::uint64_t known_times) {
    std::uint64_t value = value_;
    while ((value & kTimes) == known_times &&
           !value_.compare_exchange_weak(value, id << kIdShift | known_times)) {
    }
  }
  void take_back() {
    std::uint64_t value = value_;
    while (!value_.compare_exchange_weak(value, (value + 1) & kTimes)) {
    }
  }

 private:
  static constexpr unsigned kIdShift = 16;
  static constexpr std::uint64_t kTimes = (1u << kIdShift) - 1;
  std::atomic<std::uint64_t> value_;
};

// What the processes have in common, and survives them. A content's id is the same on all ranks but
// for its last digits, which are the rank.
struct Ledger {
  std::atomic<std::uint64_t> ids;  // of lives and saves
  Reported reported[kSteps];
  std::atomic<std::uint64_t> found[kRanks][kSteps];  // of this life's opening; 0: not there
  std::atomic<std::uint64_t> reports, saves, discards, lost, checks, opened;
  std::atomic<std::uint64_t> floor[kRanks];  // below it the rule of retention may be at work
  std::atomic<bool> some;                    // there is one that all ranks have
};

[[noreturn]] void wrong(std::uint64_t step, const std::string& what) {
  throw std::runtime_error("checkpoint " + std::to_string(step) + " " + what);
}

class Life {
 public:
  Life(const HistoryOptions& options, Ledger& ledger, std::uint64_t seed)
      : group_(options.ranks),
        rank_(static_cast<std::uint64_t>(group_->rank())),
        ledger_(ledger),
        floor_(*std::max_element(std::begin(ledger.floor), std::end(ledger.floor))),
        history_(History::open(options)),
        random_(seed) {}

  // What was found, beside what is known.
  void check() {
    const std::vector<std::uint64_t> steps = history_.steps();
    for (std::uint64_t step = 0; step < kSteps; ++step) ledger_.found[rank_][step] = 0;
    for (const std::uint64_t step : steps) {
      ledger_.found[rank_][step] = restored(step);
      next_ = std::max(next_, step + 1);
    }
    prepare_for_agreement(0);
    history_.agree();  // all have written theirs
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      const std::uint64_t id = ledger_.found[rank_][step], reported = ledger_.reported[step].id();
      for (const auto& other : ledger_.found) {
        if (other[step] != id) wrong(step, "is another one on another rank");
      }
      if (reported != 0 && id != reported && step >= floor_) wrong(step, "was reported");
    }
    if (ledger_.some && steps.empty()) wrong(0, "and all others are lost");
    history_.agree();  // all have read it
    note_removed();
    ++ledger_.checks;
    ++ledger_.opened;
  }

  // Until this rank is killed, or loses another; or it ends after so many rounds.
  void work(int rounds) {
    while (rounds-- > 0 && next_ + 1 < kSteps) {
      const std::uint64_t what = random_() % 16;
      if (what == 0) {
        go_back();
      } else if (what == 1) {
        discard_all();
      } else {
        save();
      }
      const auto steps = history_.steps();
      if (!steps.empty() && random_() % 4 == 0) restored(steps[random_() % steps.size()]);
    }
    history_.close();
  }

 private:
  std::uint64_t restored(std::uint64_t step) {
    Field field;
    Stream stream;
    const std::uint64_t bytes = history_.size(step, "field");
    history_.protect_raw("field", field.data(), bytes);
    history_.restore(step, stream, true);
    stream.synchronize();
    if (!field.holds(field.id(), bytes) || field.id() % 16 != rank_) wrong(step, "has wrong bytes");
    return field.id() / 16;
  }

  // All ranks have the same seed, and so do the same.
  void save() {
    const std::uint64_t step = next_++;
    const std::uint64_t id = random_() >> 20 | 1;
    ++ledger_.saves;
    prepare_for_agreement(1);
    Field field;
    Stream stream;
    const std::uint64_t bytes = field.fill(id * 16 + rank_);
    history_.protect_raw("field", field.data(), bytes);
    const Ticket ticket = history_.save(step, stream);
    stream.synchronize();
    mine_[step] = id;
    const std::uint64_t what = random_() % 4;
    if (what == 3) return;
    if (what == 0) {
      history_.wait_for_all(ticket);
      report(step);
    } else if (what == 1) {
      for (const std::uint64_t agreed : history_.agree()) report(agreed);
    } else if (const auto latest = history_.latest_of_all()) {
      report(*latest);
    }
    note_removed();
  }

  // The rule may let go what is older than the last ones, of which `more` are about to be saved.
  void prepare_for_agreement(std::size_t more) {
    const auto steps = history_.steps();
    if (steps.size() + more > kKeepLast) {
      ledger_.floor[rank_] = steps[steps.size() + more - kKeepLast];
    }
    for (std::uint64_t i = 0; i < kSteps; ++i) times_[i] = ledger_.reported[i].times();
  }

  // By the rule.
  void note_removed() {
    const auto steps = history_.steps();
    for (std::uint64_t step = 0; step < kSteps; ++step) {
      const bool gone = !std::binary_search(steps.begin(), steps.end(), step);
      if (gone && (step < next_ || ledger_.reported[step].id() != 0)) {
        ledger_.reported[step].take_back();
      }
    }
    ledger_.floor[rank_] = 0;
  }

  // What the rule lets go before anyone could look is not reported.
  void report(std::uint64_t step) {
    const auto own = mine_.find(step);
    const std::uint64_t id = own != mine_.end() ? own->second : ledger_.found[rank_][step].load();
    ledger_.reported[step].set(id, times_[step]);
    ledger_.some = true;
    ++ledger_.reports;
  }

  void discard(std::uint64_t step) {
    ledger_.reported[step].take_back();
    ++ledger_.discards;
    history_.discard(step);
  }

  // As a program that begins anew from an earlier checkpoint that all have, behind which it saves
  // others.
  void go_back() {
    const std::uint64_t chosen = random_();
    if (history_.steps().empty()) return;  // agree() would let go the last that all have
    prepare_for_agreement(0);
    auto agreed = history_.agree();
    for (const std::uint64_t step : agreed) report(step);
    note_removed();
    const auto steps = history_.steps();  // without what the rule let go in agree()
    std::erase_if(agreed, [&](std::uint64_t step) {
      return !std::binary_search(steps.begin(), steps.end(), step);
    });
    if (agreed.empty()) return;
    const std::uint64_t to = agreed[chosen % agreed.size()];
    for (std::size_t i = steps.size(); i-- > 0 && steps[i] > to;) discard(steps[i]);
    next_ = to + 1;
  }

  void discard_all() {
    for (const std::uint64_t step : history_.steps()) discard(step);
  }

  const std::shared_ptr<RankGroup> group_;
  const std::uint64_t rank_;
  Ledger& ledger_;
  const std::uint64_t floor_;  // of the last life: no rank is through its opening yet
  History history_;
  std::mt19937_64 random_;
  std::map<std::uint64_t, std::uint64_t> mine_;  // saved in this life
  std::uint64_t times_[kSteps] = {};             // before it was asked what all have
  std::uint64_t next_ = 0;
};

class HistoryRanksKillTest : public test::Scratch, public ::testing::WithParamInterface<bool> {
 protected:
  static constexpr int kLives = 40;

  int live(int rank, Ledger& ledger, std::uint64_t seed, int rounds) const {
    try {
      HistoryOptions options;
      options.ranks =
          local_ranks({.path = path("ranks"), .rank = rank, .size = kRanks, .timeout = kPatience});
      options.ranks_timeout = kPatience;
      options.host_bytes = 6 * Field::kMost;
      if (GetParam()) options.host_region = arenas() + "/host";
      options.disk = arenas() + "/run";  // a kill, and no loss of power: memory will do
      options.keep_last = kKeepLast;
      Life life(options, ledger, seed);
      life.check();
      life.work(rounds);
      return 0;
    } catch (const Error& error) {
      // Of a rank that was killed; or that one of those tells that has heard of it.
      if (error.code() != Errc::rank_lost) throw;
      ++ledger.lost;
      return kLost;
    }
  }
};

TEST_P(HistoryRanksKillTest, WhatAllHaveIsNotLostAndNothingElseIsOffered) {
  const std::uint64_t seed = test::test_seed();
  std::mt19937_64 random(seed);
  void* const memory =
      ::mmap(nullptr, sizeof(Ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  Ledger& ledger = *new (memory) Ledger{};
  int kills = 0;
  for (int life = 0; life < kLives; ++life) {
    const std::uint64_t life_seed = random();
    const int rounds = random() % 8 == 0 ? 20 : 1'000'000;
    const bool all = random() % 3 == 0, from_opening = random() % 4 != 0;
    const int victim = static_cast<int>(random() % kRanks);
    const auto patience = std::chrono::microseconds(random() % 120'000);
    ledger.opened = 0;
    RankProcesses ranks(
        kRanks, [&](int rank) { return this->live(rank, ledger, life_seed, rounds); }, 60);
    const auto limit = Clock::now() + std::chrono::seconds(20);
    while (from_opening && ledger.opened < kRanks && !ranks.has_ended(0) && Clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(patience);
    for (int rank = 0; rank < kRanks; ++rank) {
      if (!all && rank != victim) continue;
      if (!ranks.has_ended(rank)) ++kills;
      ranks.kill(rank);
    }
    const auto killed = Clock::now();
    const std::vector<int> ends = ranks.wait_all();
    // Twice the patience at most, of a rank that comes when the others have waited for the one
    // that does not; and the end of what it was at.
    EXPECT_LT(Clock::now() - killed, 3 * kPatience) << "life " << life;
    for (int rank = 0; rank < kRanks; ++rank) {
      const int end = ends[static_cast<std::size_t>(rank)];
      const bool may_be_killed = all || rank == victim;
      ASSERT_TRUE(end == 0 || end == kLost || (may_be_killed && end == -SIGKILL))
          << "seed " << seed << ", life " << life << ", rank " << rank << " ended as " << end;
    }
  }
  std::cout << kills << " kills, " << ledger.saves << " saves, " << ledger.reports << " reports, "
            << ledger.discards << " discards, " << ledger.checks << " checks, " << ledger.lost
            << " ranks that lost another\n";
  EXPECT_GT(kills, kLives / 4);  // on a busy machine many come too late
  EXPECT_GT(ledger.reports, 100u);
  EXPECT_GT(ledger.lost, 10u);
  ::munmap(memory, sizeof(Ledger));
}

INSTANTIATE_TEST_SUITE_P(Host, HistoryRanksKillTest, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "InARegion" : "InMemory");
});

}  // namespace
}  // namespace holdfast
