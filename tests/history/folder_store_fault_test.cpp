// Power cuts behind every operation of a history, and a fault at each of them in turn, over a
// folder that is simulated. Whatever happens: nothing that was reported durable is lost, and
// nothing that is not whole is offered.
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <ostream>
#include <random>

#include "history/folder_store.hpp"
#include "simulated_folder.hpp"
#include "step_ledger.hpp"
#include "support/scratch.hpp"
#include "support/share.hpp"

namespace holdfast {
namespace {

using detail::concat;
using history::Step;
using history::StepStore;
using test::FolderDisk;
using test::FolderLife;
using test::SavedStep;
using Fault = FolderLife::Fault;
using Kind = FolderLife::Kind;

constexpr std::uint64_t kMost = 11000;  // bytes of a step: three chunks of the smallest size

std::unique_ptr<StepStore> open_over(std::shared_ptr<FolderLife> life, bool read_only = false) {
  return history::open_folder_store(std::make_unique<test::SimulatedFolder>(std::move(life)),
                                    {read_only, "h"}, {4096, 1});
}

// One history and all that happens to it.
class Lives {
 public:
  // What is wrong, if anything was.
  std::string failure;
  std::uint64_t cuts = 0;
  bool omit_file_sync = false;
  bool omit_folder_sync = false;
  bool omit_folder_sync_while_opening = false;
  std::function<void()> on_change = [] {};

  void begin_life() {
    store_.reset();
    life_ = std::make_shared<FolderLife>(FolderLife{disk_});
    life_->on_done = [this] { on_change(); };
  }
  FolderLife& life() { return *life_; }

  // Each returns false if it threw; then `last_error` says what.
  bool open() {
    // A history has to be there for its steps to be lost.
    life_->omit_folder_sync = omit_folder_sync_while_opening && was_open_;
    const bool is_open = guarded([&] { store_ = open_over(life_); });
    life_->omit_folder_sync = omit_folder_sync;
    life_->omit_file_sync = omit_file_sync;
    if (!is_open || life_->dead()) return false;
    was_open_ = true;
    // What is offered has to stay.
    FolderDisk seen = disk_;
    const auto quiet = std::make_shared<FolderLife>(FolderLife{seen});
    guarded([&] { ledger_.settle(*open_over(quiet, true)); });
    // A fault may have a step listed apart that the next opening has.
    if (!life_->fault_struck) note(check_store());
    return true;
  }
  bool write(const SavedStep& saved, const history::StepStore::Pace& pace = {}) {
    ledger_.begin_write(saved);
    bool done = false;
    if (!guarded([&] { done = store_->write(saved.info, saved.blob, pace); })) return false;
    done ? ledger_.wrote(saved) : ledger_.take_back(saved);
    return true;
  }
  bool remove(Step step) {
    ledger_.begin_remove(step);
    if (!guarded([&] { store_->remove(step); })) return false;
    ledger_.removed(step);
    return true;
  }
  bool read(Step step) {
    return guarded([&] { test::read_step(*store_, step); });
  }

  // Opens what a power cut leaves.
  FolderDisk cut(const test::Choose& choose) {
    FolderDisk left = disk_.after_cut(choose);
    ++cuts;
    note(judge(left));
    return left;
  }
  // A power cut that the history goes on after.
  void lose_power(const test::Choose& choose) {
    disk_ = cut(choose);
    begin_life();
  }
  // As the next process finds it, with no power cut between.
  std::string judge_now() {
    FolderDisk copy = disk_;
    return judge(copy);
  }

  // What is wrong with the store that is open; no fault strikes while the test looks at it.
  std::string check_store() {
    const auto fail_at = std::exchange(life_->fail_at, ~std::uint64_t{0});
    const auto kill_at = std::exchange(life_->kill_at, ~std::uint64_t{0});
    const auto operations = life_->operations;
    const std::string wrong = ledger_.check(*store_);
    life_->fail_at = fail_at;
    life_->kill_at = kill_at;
    life_->operations = operations;
    return wrong;
  }

  StepStore& store() { return *store_; }
  FolderDisk& disk() { return disk_; }
  std::optional<Errc> last_error;
  std::string last_words;

 private:
  std::string judge(FolderDisk& disk) const {
    try {
      const auto life = std::make_shared<FolderLife>(FolderLife{disk});
      const auto store = open_over(life);
      for (const std::string& name : disk.names()) {
        if (history::is_temporary_name(name)) return "remains are left: " + name;
      }
      return ledger_.check(*store);
    } catch (const Error& error) {
      return concat("it does not open: ", error.what());
    }
  }
  void note(const std::string& wrong) {
    if (failure.empty()) failure = wrong;
  }
  template <class Body>
  bool guarded(Body&& body) {
    last_error.reset();
    try {
      body();
      return true;
    } catch (const Error& error) {
      last_error = error.code();
      last_words = error.what();
      return false;
    }
  }

  FolderDisk disk_;
  bool was_open_ = false;
  std::shared_ptr<FolderLife> life_;
  std::unique_ptr<StepStore> store_;
  test::StepLedger ledger_;
};

// ---- Power cuts ---------------------------------------------------------------------------------

// Every state that a power cut can leave, behind every operation of creating, writing, replacing
// and removing.
TEST(FolderStoreCutTest, EveryStateThatACutLeavesIsWhole) {
  Lives lives;
  const auto all_cuts = [&] {
    test::AllChoices choices;
    choices.for_each([&](const test::Choose& choose) {
      lives.cut(choose);
      return lives.failure.empty();
    });
  };
  lives.on_change = all_cuts;
  lives.begin_life();
  ASSERT_TRUE(lives.open());
  const auto of_bytes = [](Step step, std::uint64_t id, std::uint64_t bytes) {
    SavedStep saved = test::make_step(step, id, 0);
    saved.blob.assign(bytes, static_cast<std::byte>(id));
    saved.info.bytes = bytes;
    saved.info.parts = {{"x", 0, bytes}};
    return saved;
  };
  ASSERT_TRUE(lives.write(of_bytes(7, 1, 2 * 4096 + 1)));
  ASSERT_TRUE(lives.write(of_bytes(3, 2, 10)));
  ASSERT_TRUE(lives.remove(7));
  ASSERT_TRUE(lives.write(of_bytes(7, 3, 10)));
  lives.begin_life();
  ASSERT_TRUE(lives.open());
  ASSERT_TRUE(lives.remove(3));
  EXPECT_EQ(lives.failure, "");
  EXPECT_GT(lives.cuts, 1000u);
  std::printf("%llu states\n", static_cast<unsigned long long>(lives.cuts));
}

// Random lives, that end in any way, with faults, and with cuts sampled behind each operation.
class RandomLives {
 public:
  explicit RandomLives(std::uint64_t seed) : random_(seed) {}
  Lives lives;

  void run() {
    lives.on_change = [this] {
      for (int i = 0; i < 2; ++i) lives.cut(test::choose_by(random_));
    };
    for (int life = 0; life < 4 && lives.failure.empty(); ++life) {
      lives.begin_life();
      const bool killed = random_() % 2 == 0;
      if (killed) lives.life().kill_at = random_() % 60;
      if (!killed && random_() % 2 == 0) plan_fault();
      if (lives.open()) use();
      // A folder whose sync has failed shows what may never become durable. That is told to whoever
      // asked for it, and not to the next process: docs/format.md says so.
      const bool lost_sync = lives.life().fault_struck && lives.life().struck == Kind::sync;
      if ((lost_sync || random_() % 3 == 0) && lives.failure.empty()) {
        lives.lose_power(test::choose_by(random_));
      }
    }
    // The on_done of a life that has ended must not be called behind this object's.
    lives.on_change = [] {};
  }

 private:
  void plan_fault() {
    FolderLife& life = lives.life();
    life.fail_at = random_() % 60;
    life.fault = static_cast<Fault>(1 + random_() % 4);
    life.error = random_() % 2 == 0 ? EIO : ENOSPC;
  }
  void use() {
    for (std::uint64_t i = random_() % 6; i > 0 && lives.failure.empty(); --i) {
      const Step step = random_() % 4;
      const bool is_there = lives.store().find(step).has_value();
      if (is_there && random_() % 2 == 0) {
        lives.remove(step);
      } else if (!is_there) {
        const bool gives_up = random_() % 6 == 0;
        lives.write(test::make_step(step, next_id_++, kMost),
                    [&](std::uint64_t) { return !gives_up; });
      }
    }
  }
  std::mt19937_64 random_;
  std::uint64_t next_id_ = 1;
};

TEST(FolderStoreCutTest, WhateverACutLeavesOfRandomLivesIsWhole) {
  const std::uint64_t seed = test::test_seed();
  std::uint64_t cuts = 0;
  for (std::uint64_t i = 0; i < test::some_of(1500); ++i) {
    RandomLives scenario(seed + i);
    scenario.run();
    ASSERT_EQ(scenario.lives.failure, "") << "HOLDFAST_TEST_SEED=" << seed + i;
    cuts += scenario.lives.cuts;
  }
  std::printf("%llu states\n", static_cast<unsigned long long>(cuts));
}

// The tests above find what is left out.
void expect_found(bool Lives::*omit) {
  const std::uint64_t seed = test::test_seed();
  for (std::uint64_t i = 0; i < 2000; ++i) {
    RandomLives scenario(seed + i);
    scenario.lives.*omit = true;
    scenario.run();
    if (scenario.lives.failure.empty()) continue;
    std::printf("found by scenario %llu: %s\n", static_cast<unsigned long long>(i),
                scenario.lives.failure.c_str());
    return;
  }
  ADD_FAILURE() << "nothing was found";
}
TEST(FolderStoreCutTest, TheTestItselfFindsAMissingSyncOfTheFile) {
  expect_found(&Lives::omit_file_sync);
}
TEST(FolderStoreCutTest, TheTestItselfFindsAMissingSyncOfTheFolder) {
  expect_found(&Lives::omit_folder_sync);
}
TEST(FolderStoreCutTest, TheTestItselfFindsAMissingSyncOfTheFolderWhileOpening) {
  expect_found(&Lives::omit_folder_sync_while_opening);
}

// ---- Faults -------------------------------------------------------------------------------------

struct FaultCase {
  const char* name;
  Fault fault;
  int error;
};
void PrintTo(const FaultCase& fault, std::ostream* out) { *out << fault.name; }

class FolderStoreFaultTest : public ::testing::TestWithParam<FaultCase> {
 protected:
  static constexpr Step kKept = 1, kGone = 2, kNew = 3;
  const SavedStep kept_ = test::make_step(kKept, 1, kMost);
  const SavedStep gone_ = test::make_step(kGone, 2, kMost);
  SavedStep new_ = test::make_step(kNew, 4, kMost);

  // A history of two steps and the remains of a killed write, and a life over it whose operation
  // `fail_at` fails.
  std::unique_ptr<Lives> prepare(std::uint64_t fail_at) {
    auto lives = std::make_unique<Lives>();
    lives->begin_life();
    EXPECT_TRUE(lives->open() && lives->write(kept_) && lives->write(gone_));
    lives->life().kill_at = lives->life().operations + 4;
    EXPECT_FALSE(lives->write(test::make_step(9, 3, kMost)));
    EXPECT_EQ(lives->disk().names().size(), 4u);  // with the history's own file
    lives->begin_life();
    lives->life().fail_at = fail_at;
    lives->life().fault = GetParam().fault;
    lives->life().error = GetParam().error;
    return lives;
  }
  bool is_transient() const {
    return GetParam().fault == Fault::interrupted || GetParam().fault == Fault::short_transfer;
  }
  // A call that may have failed. If it did, then by the fault, and it says so.
  void check_call(const Lives& lives, bool succeeded, const char* call) const {
    SCOPED_TRACE(call);
    if (succeeded) return;
    EXPECT_FALSE(is_transient()) << lives.last_words;
    EXPECT_EQ(*lives.last_error, GetParam().error == ENOSPC ? Errc::no_space : Errc::io)
        << lives.last_words;
    EXPECT_NE(lives.last_words.find("/simulated"), std::string::npos) << lives.last_words;
  }
  void check_after_failed_write(Lives& lives) {
    EXPECT_FALSE(lives.store().find(kNew)) << "a write that threw is listed";
    // The only ones that a fault may leave are those whose removal it struck.
    if (lives.life().struck != Kind::unlink) {
      for (const std::string& name : lives.disk().names()) {
        EXPECT_FALSE(history::is_temporary_name(name)) << name;
        EXPECT_NE(name, history::step_file_name(kNew));
      }
    }
    if (*lives.last_error == Errc::no_space) {
      EXPECT_NE(lives.last_words.find("step 3 takes"), std::string::npos) << lives.last_words;
    }
    new_.info.saved_at_ns++;
    EXPECT_TRUE(lives.write(new_)) << "the second attempt: " << lives.last_words;
  }
  // Returns whether there was such an operation.
  bool run(std::uint64_t fail_at) {
    const std::unique_ptr<Lives> prepared = prepare(fail_at);
    Lives& lives = *prepared;
    std::mt19937_64 random(fail_at);
    lives.on_change = [&] {
      for (int i = 0; i < 3; ++i) lives.cut(test::choose_by(random));
    };
    bool done = lives.open();
    check_call(lives, done, "open");
    if (!done || !lives.store().damaged().empty()) {
      EXPECT_TRUE(lives.life().fault_struck);
      // A fault while a step was looked at has that step listed apart; the next opening has it.
      EXPECT_EQ(lives.judge_now(), "");
      return true;
    }
    done = lives.write(new_);
    check_call(lives, done, "write");
    if (!done) check_after_failed_write(lives);
    done = lives.read(kKept);
    check_call(lives, done, "read");
    if (!done) {
      EXPECT_TRUE(lives.read(kKept));
    }
    done = lives.remove(kGone);
    check_call(lives, done, "remove");
    if (!done && !lives.remove(kGone)) {
      EXPECT_EQ(*lives.last_error, Errc::not_found);
    }
    EXPECT_EQ(lives.check_store(), "");
    EXPECT_EQ(lives.judge_now(), "");
    EXPECT_EQ(lives.failure, "");
    lives.on_change = [] {};
    return lives.life().operations > fail_at;
  }
};

TEST_P(FolderStoreFaultTest, AFaultAtAnyOperationIsAnErrorOrIsGoneOnWith) {
  std::uint64_t operations = 0;
  while (run(operations)) {
    if (HasFailure()) FAIL() << "at operation " << operations;
    ++operations;
  }
  EXPECT_GT(operations, 25u);
}

TEST_P(FolderStoreFaultTest, AFaultAtAnyOperationOfCreatingLeavesNoHistoryOrOne) {
  for (std::uint64_t fail_at = 0;; ++fail_at) {
    Lives lives;
    lives.begin_life();
    lives.life().fail_at = fail_at;
    lives.life().fault = GetParam().fault;
    lives.life().error = GetParam().error;
    check_call(lives, lives.open(), "open");
    EXPECT_EQ(lives.judge_now(), "");
    if (lives.life().operations <= fail_at) break;
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, FolderStoreFaultTest,
                         ::testing::Values(FaultCase{"EIO", Fault::error, EIO},
                                           FaultCase{"ENOSPC", Fault::error, ENOSPC},
                                           FaultCase{"EINTR", Fault::interrupted, EINTR},
                                           FaultCase{"short", Fault::short_transfer, 0},
                                           FaultCase{"torn", Fault::torn, EIO}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace holdfast
