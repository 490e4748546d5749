// The transaction flag: commits, recoveries, misuse, and processes that are really killed.
#include "holdfast/transaction.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "holdfast/undo_log.hpp"
#include "support/process.hpp"
#include "support/scratch.hpp"
#include "undo_log/log_kernels.hpp"

namespace holdfast {
namespace {

using test::error_of;

constexpr std::uint32_t kCells = 2000;
constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;

// An array of counters that go up together, each step a transaction.
struct Counters {
  Region region;
  Transaction transaction;
  UndoLog log;
  std::span<std::uint64_t> cells;
  Stream stream;

  static Counters create(const std::string& path) {
    RegionOptions options;
    options.size = 4 * kMiB;
    Region region = Region::create(path, options);
    Transaction transaction = Transaction::create(region, "tx");
    UndoLog log = UndoLog::create(region, "log", transaction, LogShape::coalesced(kCells, 16));
    auto cells = region.allocate<std::uint64_t>("cells", kCells, Tracking::marked);
    return {std::move(region), std::move(transaction), std::move(log), cells, Stream()};
  }
  static Counters open(const std::string& path) {
    Region region = Region::open(path);
    Transaction transaction = Transaction::open(region, "tx");
    UndoLog log = UndoLog::open(region, "log", transaction);
    auto cells = region.find<std::uint64_t>("cells");
    return {std::move(region), std::move(transaction), std::move(log), cells, Stream()};
  }

  void step() {
    transaction.begin(stream);
    test::add_one(stream, log, cells.data(), kCells, region.marks());
    transaction.commit(stream);
    stream.synchronize();
  }
  void recover() {
    if (!transaction.interrupted()) return;
    test::undo_cells(stream, log, cells.data(), kCells, region.marks());
    transaction.roll_back(stream);
    stream.synchronize();
  }
  std::uint64_t used_slots() {
    PinnedBuffer<std::uint32_t> count(1);
    test::count_used_slots(stream, log, count.data());
    stream.synchronize();
    return count[0];
  }
  std::uint64_t different_cells() const {
    std::uint64_t different = 0;
    for (const std::uint64_t cell : cells) different += cell != cells[0];
    return different;
  }
};

class TransactionTest : public test::Scratch {};

TEST_F(TransactionTest, CommitKeepsAndEmptiesTheLog) {
  Counters counters = Counters::create(path());
  for (int i = 0; i < 3; ++i) counters.step();
  EXPECT_EQ(counters.cells[0], 3u);
  EXPECT_EQ(counters.different_cells(), 0u);
  EXPECT_EQ(counters.used_slots(), 0u);
}

TEST_F(TransactionTest, WhatDidNotCommitIsUndone) {
  {
    Counters counters = Counters::create(path());
    counters.step();
    counters.transaction.begin(counters.stream);
    test::add_one(counters.stream, counters.log, counters.cells.data(), kCells / 2,
                  counters.region.marks());
    counters.stream.synchronize();
    EXPECT_EQ(counters.cells[0], 2u);
    counters.region.abandon();
  }
  Counters counters = Counters::open(path());
  EXPECT_TRUE(counters.transaction.interrupted());
  EXPECT_EQ(error_of([&] { counters.transaction.begin(counters.stream); }, {"roll_back"}),
            Errc::invalid_argument);
  counters.recover();
  EXPECT_FALSE(counters.transaction.interrupted());
  EXPECT_EQ(counters.cells[0], 1u);
  EXPECT_EQ(counters.different_cells(), 0u);
  counters.step();
  EXPECT_EQ(counters.cells[kCells - 1], 2u);
}

TEST_F(TransactionTest, MisuseIsRefused) {
  Counters counters = Counters::create(path());
  Transaction& tx = counters.transaction;
  EXPECT_EQ(error_of([&] { tx.commit(counters.stream); }, {"'tx'"}), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { tx.roll_back(counters.stream); }), Errc::invalid_argument);
  tx.begin(counters.stream);
  EXPECT_EQ(error_of([&] { tx.begin(counters.stream); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { tx.clear_logs(counters.stream); }), Errc::invalid_argument);
  tx.commit(counters.stream);
}

// Tags start over after 65,535 epochs; a tail of the last round must not come to life.
TEST_F(TransactionTest, TagsStartOverWithoutRevivingOldEntries) {
  {
    Counters counters = Counters::create(path());
    counters.step();  // leaves tails with tag 1
    counters.region.find<TransactionHeader>("tx")[0].state = std::uint64_t{65533} << 2;
    counters.region.close();
  }
  Counters counters = Counters::open(path());
  for (int i = 0; i < 4; ++i) {
    counters.step();
    EXPECT_EQ(counters.used_slots(), 0u) << i;
  }
  EXPECT_EQ(counters.cells[0], 5u);
}

TEST_F(TransactionTest, ASweepThatACrashCutOffIsFinished) {
  {
    Counters counters = Counters::create(path());
    counters.step();
    counters.region.find<TransactionHeader>("tx")[0].state =
        std::uint64_t{65535} << 2 | TransactionHeader::kSweeping;
    counters.region.abandon();
  }
  Counters counters = Counters::open(path());
  counters.step();
  EXPECT_EQ(counters.used_slots(), 0u);
  EXPECT_EQ(counters.different_cells(), 0u);
}

TEST_F(TransactionTest, AnObjectThatIsNoTransactionIsRefused) {
  Counters counters = Counters::create(path());
  counters.region.find<TransactionHeader>("tx")[0].magic ^= 1;
  EXPECT_EQ(error_of([&] { Transaction::open(counters.region, "tx"); }, {"'tx'", "magic"}),
            Errc::damaged);
}

struct Progress {
  std::uint64_t committed;
};

// The child of the test below.
TEST(TransactionChild, DISABLED_StepsUntilKilled) {
  Counters counters = Counters::open(test::from_environment("HOLDFAST_TEST_PATH"));
  counters.recover();
  test::report(Progress{counters.cells[0]});
  for (;;) {
    counters.step();
    test::report(Progress{counters.cells[0]});
  }
}

TEST_F(TransactionTest, KilledAtAnyMomentItIsAtAStep) {
  std::mt19937_64 random(test::test_seed());
  Counters::create(path()).region.close();
  std::uint64_t acknowledged = 0;
  int interrupted = 0;
  for (int round = 0; round < 15; ++round) {
    {
      test::Child child("TransactionChild.DISABLED_StepsUntilKilled",
                        {{"HOLDFAST_TEST_PATH", path()}, {"HOLDFAST_ARENA_DIR", arenas()}});
      Progress progress{};
      ASSERT_TRUE(child.read(progress));
      EXPECT_GE(progress.committed, acknowledged);
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
      child.kill();
      acknowledged = progress.committed;
      while (child.read(progress)) acknowledged = progress.committed;
      ::setenv("HOLDFAST_ARENA_DIR", arenas().c_str(), 1);
    }
    // Looked at twice: a recovery that another crash cuts off, then a whole one.
    Counters counters = Counters::open(path());
    interrupted += counters.transaction.interrupted();
    if (counters.transaction.interrupted() && round % 2 == 0) {
      test::undo_cells(counters.stream, counters.log, counters.cells.data(), kCells,
                       counters.region.marks());
      counters.stream.synchronize();
      counters.region.abandon();
      counters = Counters::open(path());
      EXPECT_TRUE(counters.transaction.interrupted());
    }
    counters.recover();
    EXPECT_EQ(counters.different_cells(), 0u);
    EXPECT_GE(counters.cells[0], acknowledged);
    EXPECT_LE(counters.cells[0], acknowledged + 1);
    counters.region.abandon();
  }
  EXPECT_GT(interrupted, 0) << "no kill fell into a transaction: the test tested nothing";
}

}  // namespace
}  // namespace holdfast
